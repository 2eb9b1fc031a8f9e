"""The recipes as they are written; what they build in earnest is in test_deployment.py."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
from pathlib import Path

import pytest

from infra.sources import FUNCTIONS, stage_functions
from layers import compiling
from layers.build import build_archive, build_layer, build_library, digest, size_bytes
from layers.recipes import CORE, KEPT_SERVICES, LAYERS, SPARK, Recipe, dropped
from tests.infra.conftest import ROOT

PYARROW_USES = """
import io, sys
sys.path.insert(0, sys.argv[1])
import pyarrow as pa, pyarrow.compute, pyarrow.dataset, pyarrow.fs, pyarrow.json, pyarrow.parquet as pq
assert pa.__file__.startswith(sys.argv[1]), pa.__file__
table = pyarrow.json.read_json(io.BytesIO(b'{"a": 1, "b": "x"}\\n{"a": 2, "b": null}\\n'))
pq.write_table(table, sys.argv[1] + "/t.parquet", compression="zstd")
filtered = pyarrow.dataset.dataset(sys.argv[1] + "/t.parquet").to_table(filter=pyarrow.compute.field("a") > 1)
print(filtered.to_pylist())
"""


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def test_what_no_function_loads_is_dropped() -> None:
    kept = [
        "boto3/session.py",
        "fsspec/spec.py",
        "pyarrow/__init__.py",
        "pyarrow/lib.cpython-313-aarch64-linux-gnu.so",
        "pyarrow/libarrow.so.2600",
        "pyarrow/libarrow_substrait.so.2600",
        "pyarrow/parquet/core.py",
    ]
    left_out = [
        ".lock",
        "bin/jp.py",
        "boto3/examples/s3.rst",
        "pyarrow/_flight.cpython-313-aarch64-linux-gnu.so",
        "pyarrow/_s3fs.cpython-313-aarch64-linux-gnu.so",
        "pyarrow/array.pxi",
        "pyarrow/flight.py",
        "pyarrow/include/arrow/api.h",
        "pyarrow/libarrow_flight.so.2600",
        "pyarrow/libarrow_python_flight.so.2600",
        "pyarrow/libarrow_s3.so.2600",
        "pyarrow/tests/test_array.py",
    ]
    assert dropped([*left_out, *kept]) == left_out


def test_of_three_copies_of_a_library_the_one_that_the_loader_opens_stays() -> None:
    copies = ["pyarrow/libarrow_python.so", "pyarrow/libarrow_python.so.2600", "pyarrow/libarrow_python.so.2600.1.0"]
    assert dropped(copies) == [copies[0], copies[2]]
    for alone in copies:
        assert dropped([alone]) == []
    assert dropped(["pyarrow/libarrow.so.2600", "pyarrow/libarrow_python.so"]) == []


def test_the_layers_hold_the_core_and_the_extra_of_aws() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["aws"]]
    named = {re.split(r"[<>=]", each)[0] for each in wanted}
    assert {package for recipe in LAYERS for package in recipe.packages} == named


def test_the_command_line_and_its_packages_are_in_no_layer(tmp_path: Path) -> None:
    packages = {package for recipe in (*LAYERS, SPARK) for package in recipe.packages}
    assert packages.isdisjoint({"click", "prometheus-client", "prompt-toolkit", "rich", "waitress", "pyspark"})
    library = build_library([ROOT / "shared" / "alluvia"], build=tmp_path)
    assert (library / "python" / "alluvia" / "errors.py").is_file()
    assert not (library / "python" / "alluvia" / "cli").exists()
    assert not list(library.rglob("*.pyc"))


def test_a_library_is_built_anew_when_a_file_of_it_changes(tmp_path: Path) -> None:
    source = write(tmp_path / "alluvia" / "a.py", "A = 1\n")
    write(tmp_path / "alluvia" / ".cache" / "a.json")
    first = build_library([tmp_path / "alluvia"], build=tmp_path / "build")
    assert build_library([tmp_path / "alluvia"], build=tmp_path / "build") == first
    assert sorted(path.name for path in first.rglob("*") if path.is_file()) == ["a.py"]
    source.write_text("A = 2\n", encoding="utf-8")
    second = build_library([tmp_path / "alluvia"], build=tmp_path / "build")
    assert second != first
    assert (first / "python/alluvia/a.py").read_text(encoding="utf-8") == "A = 1\n"
    assert (second / "python/alluvia/a.py").read_text(encoding="utf-8") == "A = 2\n"
    source.rename(source.with_name("b.py"))
    assert build_library([tmp_path / "alluvia"], build=tmp_path / "build") not in {first, second}


def test_a_digest_tells_borders_and_order() -> None:
    keys = {digest(parts) for parts in ([b"ab", b"c"], [b"a", b"bc"], [b"abc"], [b"c", b"ab"], [b"abc", b""])}
    assert len(keys) == 5


def test_an_archive_has_the_packages_at_its_root_and_the_same_bytes_each_time(tmp_path: Path) -> None:
    layers = [tmp_path / "one-1", tmp_path / "two-2"]
    write(layers[0] / "python" / "orjson" / "__init__.py", "A")
    write(layers[1] / "python" / "alluvia" / "__init__.py", "BB")
    first = build_archive(layers, "environment.tar.gz", build=tmp_path / "build")
    again = build_archive(layers, "environment.tar.gz", build=tmp_path / "elsewhere")
    assert first.name == "environment.tar.gz"
    assert first.read_bytes() == again.read_bytes()
    with tarfile.open(first) as archive:
        found = {(entry.name, entry.size, entry.mode, entry.mtime, entry.uid) for entry in archive.getmembers()}
    assert found == {("orjson/__init__.py", 1, 0o644, 0, 0), ("alluvia/__init__.py", 2, 0o644, 0, 0)}


def test_a_failed_build_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    lock = write(tmp_path / "requirements.lock", "orjson==0.0.0\n")
    with pytest.raises(RuntimeError, match=r"(?s)core layer from requirements\.lock:.*orjson"):
        build_layer(CORE, lock=lock, build=tmp_path / "build")
    assert list((tmp_path / "build" / "layers").iterdir()) == []


@pytest.mark.slow
def test_a_wheel_that_the_lock_does_not_know_is_refused(tmp_path: Path) -> None:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    (pin,) = (line for line in lines if line.startswith("orjson=="))
    lock = write(tmp_path / "requirements.lock", f"{pin}\n    --hash=sha256:{'0' * 64}\n")
    with pytest.raises(RuntimeError, match="Hash mismatch"):
        build_layer(Recipe("one", ("orjson",)), lock=lock, build=tmp_path / "build")


@pytest.mark.slow
def test_pyarrow_works_without_what_is_dropped(tmp_path: Path) -> None:
    """On this machine's own build of pyarrow, since the layer's runs on arm64 alone."""
    packages = Path(sysconfig.get_path("platlib"))
    files = [path.relative_to(packages).as_posix() for path in (packages / "pyarrow").rglob("*") if path.is_file()]
    left_out = set(dropped(files))
    assert any("flight" in name for name in left_out)
    for name in set(files) - left_out:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).hardlink_to(packages / name)
    done = subprocess.run(
        [sys.executable, "-I", "-c", PYARROW_USES, str(tmp_path)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[{'a': 2, 'b': None}]"
    assert size_bytes(tmp_path / "pyarrow") < 0.75 * size_bytes(packages / "pyarrow")


def test_a_function_s_asset_holds_its_code_and_not_its_neighbours(tmp_path: Path) -> None:
    root = tmp_path / "root"
    for name in FUNCTIONS:
        write(root / "functions" / name / "handler.py", f"NAME = '{name}'\n")
        write(root / "functions" / name / "README.md")
        write(root / "functions" / name / "__pycache__" / "handler.pyc")
        write(root / "functions" / name / ".cache" / "state")
    write(root / "functions" / "backfill" / "job.py")
    write(root / "functions" / "ingest" / "answers.py")
    write(tmp_path / "build" / "functions" / "merge" / "functions" / "merge" / "removed.py")
    staged = stage_functions(root, tmp_path / "build")
    found = {
        name: sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
        for name, folder in staged.items()
    }
    assert found == {
        "ingest": ["functions/ingest/answers.py", "functions/ingest/handler.py"],
        "merge": ["functions/merge/handler.py"],
        "pipeline": ["functions/pipeline/handler.py"],
        "query": ["functions/query/handler.py"],
        "vacuum": ["functions/vacuum/handler.py"],
        "backfill": ["functions/backfill/handler.py"],
    }


def test_the_modules_of_functions_are_compiled(tmp_path: Path) -> None:
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    staged = stage_functions(ROOT, tmp_path, version)
    for folder in staged.values():
        for module in folder.rglob("*.py"):
            compiled = module.parent / "__pycache__" / f"{module.stem}.{sys.implementation.cache_tag}.pyc"
            flags = int.from_bytes(compiled.read_bytes()[4:8], "little")
            assert flags == 0b01, module  # by a hash that nobody compares: files of an archive have other times
    assert stage_functions(ROOT, tmp_path, version) == staged


def test_a_function_without_a_handler_is_named(tmp_path: Path) -> None:
    for name in FUNCTIONS:
        write(tmp_path / "functions" / name / "README.md")
    with pytest.raises(FileNotFoundError, match=r"functions/ingest/handler\.py"):
        stage_functions(tmp_path, tmp_path / "build")


MAGIC = {"3.13": b"\xf3\r\r\n", f"{sys.version_info.major}.{sys.version_info.minor}": importlib.util.MAGIC_NUMBER}


@pytest.mark.slow
@pytest.mark.parametrize("python_version", sorted(MAGIC))
def test_modules_are_compiled_for_the_functions_python(python_version: str, tmp_path: Path) -> None:
    """`/opt` is read-only: what is not compiled here is compiled at every cold start."""
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "module.py").write_text("def\n")
    with compiling.one_pyodide():
        library = build_library([ROOT / "shared" / "alluvia"], build=tmp_path, python_version=python_version)
        with pytest.raises(RuntimeError, match="module"):
            compiling.compile_modules(tmp_path / "broken", python_version, tmp_path)
    modules = [path.relative_to(library) for path in library.rglob("*.py")]
    assert Path("python/alluvia/api/lake.py") in modules
    for module in modules:
        name = f"{module.stem}.cpython-{python_version.replace('.', '')}.pyc"
        head = (library / module.parent / "__pycache__" / name).read_bytes()[:16]
        assert int.from_bytes(head[4:8], "little") == 0b01, module  # a hash, and one that nobody checks
        assert head[:4] == MAGIC[python_version]
    compiled = library / "python/alluvia/api/__pycache__" / f"lake.cpython-{python_version.replace('.', '')}.pyc"
    assert b"/opt/python/alluvia/api/lake.py" in compiled.read_bytes()
    assert str(tmp_path).encode() not in compiled.read_bytes()


def test_another_compiler_than_the_pinned_one_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(compiling.PYODIDE, "3.12", (compiling.PYODIDE["3.13"][0], "another"))
    (tmp_path / "layer").mkdir()
    with pytest.raises(RuntimeError, match="not the one that is pinned: its SHA-512 is rtCsyTU5"):
        compiling.compile_modules(tmp_path / "layer", "3.12", tmp_path / "build")
    with pytest.raises(RuntimeError, match=r"Python 3\.9 can be compiled by that Python only"):
        compiling.compile_modules(tmp_path / "layer", "3.9", tmp_path / "build")


def services_called(folder: Path) -> set[str]:
    """Return the services of AWS that code opens clients of."""
    found = set()
    for path in folder.rglob("*.py"):
        if "cli" in path.relative_to(folder).parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(ast.Attribute(ast.Name("boto3"), "client" | "resource"), [name, *_]):
                    assert isinstance(name, ast.Constant), f"{path}:{node.lineno} must name its service"
                    found.add(str(name.value))
                case ast.Attribute(attr="create_client"):
                    raise AssertionError(f"{path}:{node.lineno} must open its client by boto3.client")
    return found


def test_every_service_that_the_code_calls_is_in_the_layers() -> None:
    """Where its data is missing, boto3 raises UnknownServiceError, which looks like a service that does not answer."""
    called = services_called(ROOT / "shared") | services_called(ROOT / "functions")
    assert {"emr-serverless", "lambda", "secretsmanager", "sqs", "ssm", "stepfunctions"} <= called
    of_credentials = {"sso", "sso-oidc", "sts"}
    assert called | of_credentials == set(KEPT_SERVICES)


def test_services_that_are_never_called_are_left_out() -> None:
    services = ["botocore/data/sqs/x/service-2.json.gz", "botocore/data/ec2/x/service-2.json.gz"]
    assert dropped([*services, "botocore/data/endpoints.json"]) == services[1:]
