"""What a cold start loads: each function in a new process that handles one event.

Whoever adds an import sees it here, and what it costs with `python -m benchmarks cold_starts`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import alluvia
from infra.specs import BACKFILL, INGEST, MERGE, QUERY, VACUUM, Spec
from tests.access import grant, token
from tests.infra.conftest import ROOT
from tests.s3server import CREDENTIALS, REGION, S3Server

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
DRIVER = """
import json, sys
before = set(sys.modules)
from importlib import import_module
folder, event = json.loads(sys.argv[1])
handler = import_module(f"functions.{folder}.handler").handler
answer = handler(event, None) if event is not None else {}
assert answer.get("statusCode", 200) == 200, answer
print(json.dumps(sorted(set(sys.modules) - before)))
"""
LOGS = {"aws_lambda_powertools", "botocore", "jmespath", "typing_extensions"}
"""Powertools asks botocore for its version only."""
LAKE = {"cython_runtime", "orjson", "pyarrow", "pyarrow.ipc"}
PARQUET = {"pyarrow.fs", "pyarrow.parquet"}
COMPUTED = LAKE | PARQUET | {"pyarrow.compute"}
S3 = {"obstore"}
ON_S3 = {BACKFILL: set[str](), VACUUM: S3 | {"arro3"}}
"""What reaches S3; vacuum lists a bucket as columns."""
AWS = {"boto3", "botocore", "dateutil", "jmespath", "s3transfer", "six", "urllib3"}
QUERIES = {"alluvia.engine.conditions", "alluvia.engine.duck", "alluvia.engine.queries", "alluvia.query"}
"""DuckDB is in the process that runs the query."""
DUCKDB = "_duckdb"
"""DuckDB's own module: the package around it takes as long to load."""
TOKENS = {"cryptography"}
MOMENTS = {"dateutil", "six"}
"""What Arrow makes a moment of Python's with, where they are installed."""
LIGHT = ("certifi", "functions", "pyarrow.lib", "pyarrow.types", "pyarrow.util", "pyarrow.vendored")
"""What comes with anything else; certifi is in no layer, and botocore uses it where there is one."""
LISTED = re.compile(
    r"alluvia\.(engine\.(conditions|duck|queries)|query|serverless\.routes\.(bodies|contents|openapi)"
    r"|sql\.grammar\.statements|verify|cli|server"
    r"|operations\.(append\.append_evolving|changes|compaction\.optimize|reading\.history|retention\.vacuum"
    r"|rows\.(delete|update|upsert)|tables\.convert))\b"
)
"""The parts of the library that not every function needs."""
SIGNED = {"iam": {"userArn": "arn:aws:iam::123456789012:user/ada"}}
POST: dict[str, Any] = {
    "version": "2.0", "rawPath": "/v1/events/events", "headers": {}, "isBase64Encoded": False,
    "requestContext": {
        "authorizer": SIGNED, "http": {"method": "POST", "path": "/v1/events/events"}, "stage": "$default",
    },
    "body": '{"event_id": "new", "event": "signup"}',
}  # fmt: skip
LOGS_POST: dict[str, Any] = POST | {
    "rawPath": "/v1/logs",
    "headers": {"content-type": "application/json"},
    "body": "{}",
}
ASK = POST | {
    "rawPath": "/q",
    "requestContext": {"authorizer": SIGNED, "http": {"method": "POST", "path": "/q"}, "stage": "$default"},
    "body": '{"query": "SELECT count(*) FROM events"}',
}
CASES: list[tuple[Spec, dict[str, Any] | None, set[str]]] = [
    (INGEST, POST, LOGS | LAKE | PARQUET),
    (QUERY, {"query": "SELECT count(*) FROM events"}, LOGS | LAKE | QUERIES),
    (MERGE, {}, LOGS | COMPUTED | {"alluvia.engine.duck", "alluvia.operations.compaction.optimize", DUCKDB}),
    (VACUUM, {}, LOGS | LAKE | {"alluvia.operations.retention.vacuum"}),
    (BACKFILL, None, LOGS | AWS),
]
each_function = pytest.mark.parametrize(("spec", "event", "expected"), CASES, ids=[spec.folder for spec, *_ in CASES])


def loaded(spec: Spec, event: dict[str, Any] | None, environment: Mapping[str, str]) -> set[str]:
    """Return the packages that a function loads, the public modules of pyarrow, and the parts of the library."""
    command = [sys.executable, "-c", DRIVER, json.dumps([spec.folder, event])]
    given = {"PATH": "/usr/bin:/bin", "POWERTOOLS_LOG_LEVEL": "WARNING", **environment}
    done = subprocess.run(command, env=given, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = set()
    for name in json.loads(done.stdout.splitlines()[-1]):
        top, *rest = name.split(".")
        if top == "alluvia":
            found |= {match[0]} if (match := LISTED.match(name)) else set()
        elif top == "pyarrow" and rest and not rest[0].startswith("_"):
            found.add(f"{top}.{rest[0]}")
        elif top == DUCKDB or (top not in sys.stdlib_module_names and not top.startswith("_")):
            found.add(top)
    return found.difference(LIGHT)


def test_formats_are_loaded_where_they_are_used(tmp_path: Path) -> None:
    environment = {"ALLUVIA_LAKE": str(tmp_path), "ALLUVIA_CREATE_TABLES": "true"}
    found = loaded(INGEST, LOGS_POST, environment)
    assert {"google", "opentelemetry"} <= found


def make(lake: alluvia.Lake) -> None:
    """Make a table of two small files, which merge makes one."""
    events = lake.create_events("events")
    for number in range(2):
        events.append([{"event_id": f"old-{number}", "ts": NOON, "received_at": NOON}])


@each_function
def test_on_a_directory(tmp_path: Path, spec: Spec, event: dict[str, Any] | None, expected: set[str]) -> None:
    make(alluvia.connect(tmp_path))
    assert loaded(spec, event, {"ALLUVIA_LAKE": str(tmp_path)}) == expected


def test_a_simple_check_constraint_needs_no_duckdb(tmp_path: Path) -> None:
    lake = alluvia.connect(tmp_path)
    make(lake)
    lake.sql("ALTER TABLE events ADD CONSTRAINT known CHECK (event IS NULL OR event <> '')")
    assert not {DUCKDB, "duckdb"} & loaded(INGEST, POST, {"ALLUVIA_LAKE": str(tmp_path)})


@each_function
def test_on_s3(s3_server: S3Server, spec: Spec, event: dict[str, Any] | None, expected: set[str]) -> None:
    lake = alluvia.connect(f"s3://{s3_server.new_bucket()}/lake", **s3_server.options)
    make(lake)
    environment = {
        "ALLUVIA_LAKE": lake.uri, "ALLUVIA_ENDPOINT_URL": s3_server.endpoint_url, "AWS_DEFAULT_REGION": REGION,
        **{name.upper(): value for name, value in CREDENTIALS.items()},
    }  # fmt: skip
    assert loaded(spec, event, environment) == expected | ON_S3.get(spec, S3)


@pytest.mark.parametrize(("spec", "event"), [(INGEST, POST), (QUERY, ASK)], ids=["ingest", "query"])
def test_tokens_load_no_more_than_their_signature_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spec: Spec, event: dict[str, Any]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    lake = alluvia.connect(tmp_path / "lake")
    make(lake)
    bearer = token(lake, grant("append:events"), grant("read:events"))
    environment = {"ALLUVIA_LAKE": str(tmp_path / "lake"), "ALLUVIA_AUTH": "tokens"}
    expected = next(packages for each, _, packages in CASES if each is spec)
    found = loaded(spec, {**event, "headers": {"authorization": f"Bearer {bearer}"}}, environment)
    assert found == expected | TOKENS


def test_a_query_is_planned_without_duckdb_in_the_process_that_serves(tmp_path: Path) -> None:
    lake = alluvia.connect(tmp_path)
    make(lake)
    lake.table("events").checkpoint()
    query = "SELECT event_id FROM events WHERE ts > now() - INTERVAL 1 DAY AND ts >= '2026-11-01' AND event_id = 'a'"
    assert loaded(QUERY, {"query": query}, {"ALLUVIA_LAKE": str(tmp_path)}) == LOGS | LAKE | PARQUET | QUERIES | MOMENTS


def test_the_process_of_a_query_starts_before_its_parent_loads_arrow() -> None:
    code = """
import sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "pyarrow":
            sys.meta_path.remove(self)
            print(len(sys.modules["alluvia.processes.starting"]._ahead))
sys.meta_path.insert(0, Watch())
import functions.query.handler
from alluvia.processes import starting
from alluvia.query.process import processes
import gc
print(len(starting._ahead), [worker.alive for worker in processes.POOL._idle], gc.isenabled())
"""
    environment = {"PATH": "/usr/bin:/bin", "AWS_LAMBDA_FUNCTION_NAME": "query"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.splitlines() == ["1", "0 [True] True"]


def test_checkpoints_of_ingestion_load_no_more_of_arrow(tmp_path: Path) -> None:
    code = """
import atexit, json, sys
from functions.ingest.handler import handler
named = {"pyarrow.compute", "dateutil"}
atexit.register(lambda: print(named & sys.modules.keys()))  # after the checkpoints in the background
for number in range(120):
    body = json.dumps({"event_id": str(number), "amount": number})
    assert handler(json.loads(sys.argv[1]) | {"body": body}, None)["statusCode"] == 200
"""
    make(alluvia.connect(tmp_path))
    environment = {"PATH": "/usr/bin:/bin", "POWERTOOLS_LOG_LEVEL": "WARNING", "ALLUVIA_LAKE": str(tmp_path)}
    command = [sys.executable, "-c", code, json.dumps(POST)]
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    assert list((tmp_path / "events" / "_delta_log").glob("*.checkpoint.parquet"))
    assert done.stdout.splitlines()[-1] == "set()"


def test_the_process_of_a_query_loads_duckdb_pyarrow_and_little_else() -> None:
    code = "import sys, alluvia.query.process.worker; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    loaded = set(done.stdout.split())
    assert {DUCKDB, "pyarrow", "alluvia.query.rendering"} <= loaded
    for heavy in (
        "duckdb",
        "importlib.metadata",
        "pyarrow.compute",
        "pyarrow.parquet",
        "obstore",
        "alluvia.store",
        "alluvia.delta.log.actions",
    ):
        assert heavy not in loaded
