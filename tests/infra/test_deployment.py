"""`make synth` in earnest: the real layers, the real handlers, a process with no Docker, no node and no credentials."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from infra.specs import STACK_NAME
from layers.build import size_bytes
from layers.recipes import UNZIPPED_LIMIT_BYTES
from tests.infra.conftest import ROOT, read_template
from tests.infra.elf import AARCH64, machine, needed
from tests.infra.policies import resources_of, text

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("layers")]

Template = dict[str, Any]
TRAPPED = ("docker", "podman", "finch", "node", "npm", "aws", "cdk")


@pytest.fixture(scope="module")
def trap(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PATH on which whatever synthesis must do without leaves a mark and fails."""
    folder = tmp_path_factory.mktemp("trap")
    for name in TRAPPED:
        command = folder / name
        command.write_text(f"#!/bin/sh\necho \"{name} $*\" >> '{folder}/called'\nexit 1\n", encoding="utf-8")
        command.chmod(0o755)
    return folder


@pytest.fixture(scope="module")
def deployed(trap: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    outdir = tmp_path_factory.mktemp("deployed")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "CDK_", "JSII_"))}
    environment |= {
        "PATH": f"{trap}:/usr/bin:/bin",
        "CDK_OUTDIR": str(outdir),
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_SHARED_CREDENTIALS_FILE": str(trap / "none"),
        "AWS_CONFIG_FILE": str(trap / "none"),
    }
    done = subprocess.run(
        [sys.executable, str(ROOT / "infra" / "app.py")],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"synthesised Alluvia into {outdir}\n"
    return outdir


@pytest.fixture(scope="module")
def template(deployed: Path) -> Template:
    return read_template(deployed)


@pytest.fixture(scope="module")
def layers(deployed: Path, template: Template) -> dict[str, Path]:
    """The folder of packages of each layer, by the layer's logical id."""
    published = assets(deployed)
    found = resources_of(template, "AWS::Lambda::LayerVersion")
    return {name: published[layer["Content"]["S3Key"]] / "python" for name, layer in found.items()}


def assets(deployed: Path) -> dict[str, Path]:
    manifest = json.loads((deployed / f"{STACK_NAME}.assets.json").read_text(encoding="utf-8"))
    return {
        destination["objectKey"]: deployed / entry["source"]["path"]
        for entry in manifest["files"].values()
        for destination in entry["destinations"].values()
    }


def shared_objects(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and re.search(r"\.so(\.\d+)*$", path.name))


def test_neither_docker_nor_another_node_nor_a_client_was_called(deployed: Path, trap: Path) -> None:
    assert (deployed / f"{STACK_NAME}.template.json").is_file()
    assert not (trap / "called").exists()


def test_every_function_fits_into_lambda(deployed: Path, template: Template, layers: dict[str, Path]) -> None:
    published = assets(deployed)
    sizes = {}
    for name, function in resources_of(template, "AWS::Lambda::Function").items():
        parts = [published[function["Code"]["S3Key"]], *(layers[layer["Ref"]] for layer in function["Layers"])]
        sizes[name] = sum(map(size_bytes, parts))
    assert len(sizes) == 8
    assert all(0 < size < UNZIPPED_LIMIT_BYTES for size in sizes.values()), sizes


def test_every_handler_is_where_lambda_looks_for_it(deployed: Path, template: Template) -> None:
    published = assets(deployed)
    for function in resources_of(template, "AWS::Lambda::Function").values():
        module, _, attribute = function["Handler"].rpartition(".")
        code = published[function["Code"]["S3Key"]]
        source = code / f"{module.replace('.', '/')}.py"
        assert re.search(rf"^def {attribute}\(", source.read_text(encoding="utf-8"), re.MULTILINE)
        assert [path.name for path in code.glob("functions/*/")] == [module.split(".")[1]]


def test_all_compiled_code_is_for_arm64(layers: dict[str, Path]) -> None:
    found = [path for folder in layers.values() for path in shared_objects(folder)]
    assert len(found) > 20
    assert {machine(path) for path in found} == {AARCH64}
    tags = {match[1] for path in found if (match := re.search(r"\.cpython-(\d+)-", path.name))}
    assert tags == {"313"}


def test_no_library_misses_another(layers: dict[str, Path]) -> None:
    found = [path for folder in layers.values() for path in shared_objects(folder)]
    present = {path.name for path in found}
    wanted = set().union(*map(needed, found))
    assert "libarrow.so" in {name.partition(".so")[0] + ".so" for name in wanted}
    # What Amazon Linux itself has: the C and C++ runtimes and the loader.
    system = re.compile(r"(libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s|ld-linux-aarch64)\.so\.\d+")
    assert {name for name in wanted - present if not system.fullmatch(name)} == set()


def test_every_package_has_the_locked_version(layers: dict[str, Path]) -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pins = set(re.findall(r"^([a-z0-9-]+)==([^\s;]+)", lock, re.MULTILINE))
    found = {
        (name.replace("_", "-").lower(), version)
        for folder in layers.values()
        for path in folder.glob("*.dist-info")
        for name, _, version in [path.name.removesuffix(".dist-info").rpartition("-")]
    }
    assert found <= pins
    names = {name for name, _ in found}
    assert {"pyarrow", "orjson", "boto3", "botocore", "obstore", "aws-lambda-powertools", "duckdb"} <= names
    assert names.isdisjoint(
        {"click", "prometheus-client", "prompt-toolkit", "rich", "waitress", "pyspark", "aws-xray-sdk", "numpy"}
    )


def test_layers_share_no_file(layers: dict[str, Path]) -> None:
    files = [path.relative_to(folder) for folder in layers.values() for path in folder.rglob("*") if path.is_file()]
    assert len(files) == len(set(files))


def test_spark_gets_the_job_and_all_that_it_imports(deployed: Path, template: Template) -> None:
    (prefix,) = {
        text(function["Environment"]["Variables"]["ALLUVIA_CODE_URI"]).removeprefix("s3://").partition("/")[2]
        for function in resources_of(template, "AWS::Lambda::Function").values()
        if "ALLUVIA_CODE_URI" in function["Environment"]["Variables"]
    }
    published = assets(deployed)
    job = published[f"{prefix}/job.py"].read_text(encoding="utf-8")
    assert job == (ROOT / "functions" / "backfill" / "job.py").read_text(encoding="utf-8")
    with tarfile.open(published[f"{prefix}/environment.tar.gz"]) as archive:
        names = set(archive.getnames())
    assert {"alluvia/__init__.py", "alluvia_spark/__init__.py", "pyarrow/__init__.py", "orjson/__init__.py"} <= names
    assert {"boto3/__init__.py", "obstore/__init__.py"} <= names
    # EMR has its own Spark.
    assert not [name for name in names if name.startswith(("pyspark/", "alluvia/cli/"))]
