"""The wheel outside the checkout: what is in it, and that what it promises runs where nothing else is installed."""

from __future__ import annotations

import json
import re
import signal
import zipfile
from pathlib import Path

import pytest

import alluvia
from alluvia.cli.client import Client
from tests.package.conftest import ROOT, Install, Installed
from tests.package.serving import serving

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("wheel")]


def test_the_wheel_holds_the_packages_and_nothing_beside_them(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    info = f"alluvia-{alluvia.__version__}.dist-info"
    assert {name.partition("/")[0] for name in names} == {"alluvia", "alluvia_ibis", "alluvia_spark", info}
    assert {"alluvia/py.typed", "alluvia_ibis/py.typed", "alluvia_spark/py.typed", f"{info}/licenses/LICENSE"} <= set(
        names
    )
    for folder in ("functions", "events/data", "shared/alluvia", "shared/alluvia_ibis", "shared/alluvia_spark"):
        inside = folder.removeprefix("shared/") if folder.startswith("shared/") else f"alluvia/{folder}"
        there = {path.relative_to(ROOT / folder).as_posix() for path in (ROOT / folder).rglob("*") if path.is_file()}
        missing = {f"{inside}/{name}" for name in there if "__pycache__" not in name} - set(names)
        assert not missing


def test_the_demo_runs_in_an_empty_folder(with_cli: Installed) -> None:
    done = with_cli.run("alluvia", "demo")
    assert (done.returncode, done.stderr) == (0, "")
    assert (with_cli.folder / "lake" / "requests" / "_delta_log").is_dir()
    typed = re.findall(r"^  (alluvia .*)$", done.stdout, re.MULTILINE)
    assert len(typed) == 4
    found = with_cli.run("alluvia", "query", "SELECT count(*) AS n FROM requests", "--json")
    assert json.loads(found.stdout) == {"n": 9999}


def test_serve_takes_events_and_answers_queries(with_cli: Installed) -> None:
    with serving(with_cli, ["alluvia", "serve", "--port", "0"]) as (process, port):
        client = Client(port)
        assert client.post("/v1/events/app", {"event": "signup"}).json()["stored"] == 1
        answer = client.post("/q", {"query": "SELECT event FROM app"}, {"Accept": "application/json"})
        assert answer.json() == [{"event": "signup"}]
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0


def test_every_function_can_be_invoked(with_cli: Installed) -> None:
    (with_cli.folder / "empty.json").write_text("{}")
    done = with_cli.run("alluvia", "invoke", "--lake", "memory://lake", "vacuum", "empty.json")
    assert done.returncode == 0, done.stderr
    missing = with_cli.run("alluvia", "invoke", "--lake", "memory://lake", "backfill", "empty.json")
    expected = "alluvia: the backfill function needs the package boto3: pip install 'alluvia[aws]'\n"
    assert (missing.returncode, missing.stderr) == (1, expected)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("alluvia.connect('s3://bucket/lake')", r"a lake on S3 needs the package \w+: pip install 'alluvia\[aws\]'"),
        ("import alluvia_spark.backfill", r"alluvia_spark needs the package pyspark: pip install 'alluvia\[spark\]'"),
    ],
)
def test_the_core_says_what_to_install(core: Installed, code: str, says: str) -> None:
    caught = f"import alluvia\ntry:\n    {code}\nexcept (alluvia.errors.AlluviaError, ImportError) as e:\n    print(e)"
    done = core.run("python", "-c", caught)
    assert re.fullmatch(says, done.stdout.strip()), done.stderr


def test_the_command_line_without_its_packages_is_one_line(core: Installed) -> None:
    done = core.run("alluvia", "demo")
    expected = "alluvia: the command line needs the package click: pip install 'alluvia[cli]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", expected)


def test_the_core_keeps_tables_in_a_folder(core: Installed) -> None:
    code = """
import alluvia
table = alluvia.connect("library").create_table("t", {"n": "long"}, sort_by=["n"])
table.append([{"n": 1}, {"n": 2}])
table.delete("n = 1")
table.optimize()
print(alluvia.connect("library").sql("SELECT n FROM t").to_pylist())
"""
    done = core.run("python", "-c", code)
    assert done.stdout == "[{'n': 2}]\n", done.stderr


def test_ibis_finds_the_backend_in_the_wheel(install: Install) -> None:
    code = """
import ibis
con = ibis.connect("alluvia://lake")
made = con.create_table("t", {"n": [1, 2], "at": ["x", None]})
ibis.alluvia.connect("http://127.0.0.1:9")  # which sends nothing yet
print(made.filter(made.n > 1).execute().to_dict("records"), con.list_tables())
"""
    done = install(["ibis"]).run("python", "-c", code)
    assert done.stdout == "[{'n': 2, 'at': None}] ['t']\n", done.stderr
