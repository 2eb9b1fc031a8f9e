"""Cold starts of the functions, as Lambda makes them: a process that finds its code and its layers, and nothing else.

CPU of loading the handler, and of its first event, compared with the bare imports of what it is made of: the least of
several runs each. The table has rows, so that a query reads files. A query's process is not
counted, but the time until its answer is.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import venv
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import alluvia
from benchmarks.report import Figure
from infra.sources import LIBRARY, stage_functions
from infra.specs import BACKFILL, INGEST, MERGE, QUERY, VACUUM, Spec
from layers.build import PACKAGE_FOLDER, build_layer, build_library
from layers.recipes import LAYERS, Machine
from tests.s3server import CREDENTIALS, REGION, S3Server

ROOT = Path(__file__).parents[1]
RUNS = 7
COMMITS = 3
NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
QUERY_BAR = 1.25
"""Of loading the query function, compared with bare imports."""
Json = dict[str, Any]
MACHINE = Machine(platform.machine(), ".".join(map(str, sys.version_info[:2])))
DRIVER = """
import json, os, resource, sys, time
given = json.load(sys.stdin)
sys.path[:0] = given["path"]
def cpu_ms():
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) * 1000
before, began = cpu_ms(), time.perf_counter()
for name in given["bare"]:
    __import__(name)
bare = cpu_ms() - before
if given["module"]:
    handler = __import__(given["module"], fromlist=["handler"]).handler
loaded = cpu_ms() - before
if given["module"] and given["event"] is not None:
    answer = handler(given["event"], None)
    assert not isinstance(answer, dict) or answer.get("statusCode", 200) == 200, answer
with open(given["out"], "w") as file:
    answered, elapsed = cpu_ms() - before, (time.perf_counter() - began) * 1000
    json.dump({"bare": bare, "loaded": loaded, "answered": answered, "elapsed": elapsed}, file)
"""
_COMMON = ["obstore.store", "pyarrow.parquet", "orjson", "aws_lambda_powertools"]
_POST = {
    "version": "2.0", "rawPath": "/v1/events/events", "headers": {}, "isBase64Encoded": False,
    "requestContext": {
        "authorizer": {"iam": {"userArn": "arn:aws:iam::123456789012:user/ada"}},
        "http": {"method": "POST", "path": "/v1/events/events"}, "stage": "$default",
    },
    "body": '{"event_id": "a", "event": "signup"}',
}  # fmt: skip
CASES: list[tuple[Spec, Json | None, list[str]]] = [
    (INGEST, _POST, _COMMON),
    (QUERY, {"query": "SELECT event FROM events WHERE ts >= '2026-11-01' LIMIT 1"}, [*_COMMON, "duckdb"]),
    (MERGE, {}, _COMMON),
    (VACUUM, {}, _COMMON),
    (BACKFILL, None, [*_COMMON, "boto3"]),  # its answers are EMR's
]


def figures(server: S3Server, folder: Path) -> list[Figure]:
    """Return the CPU of each function's cold start, with compiled modules and without."""
    lake = alluvia.connect(f"s3://{server.new_bucket()}/lake", **server.options)
    events = lake.create_events("events", partition_by=())
    for number in range(COMMITS):
        events.append([{"event_id": str(number), "event": "signup", "ts": NOON, "received_at": NOON}])
    compiled, plain = (Process(server, folder, lake.uri, compiled=compiled) for compiled in (True, False))
    found = []
    for spec, event, imports in CASES:
        bare = compiled.least(spec, None, imports, load=False)["bare"]
        with_pyc, without = compiled.least(spec, event, []), plain.least(spec, event, [])
        shown = (("load", "loaded"), ("load and answer", "answered"))
        for name, key in shown if event is not None else shown[:1]:
            ratio = with_pyc[key] / bare
            title = f"cold {spec.folder}, {name}: CPU, compared with bare imports"
            figure = Figure(title, f"{with_pyc[key]:.0f} ms", f"{bare:.0f} ms (imports)", ratio)
            if spec is QUERY and key == "loaded":
                figure = replace(figure, bar=f"{QUERY_BAR}", holds=ratio <= QUERY_BAR)
            found.append(figure)
        if event is not None:
            found.append(Figure(f"cold {spec.folder}: time until the answer", f"{with_pyc['elapsed']:.0f} ms"))
        ratio = with_pyc["answered"] / without["answered"]
        title = f"cold {spec.folder}: CPU with compiled modules, without"
        found.append(Figure(title, f"{with_pyc['answered']:.0f} ms", f"{without['answered']:.0f} ms", ratio))
    return found


class Process:
    """Starts functions as processes."""

    def __init__(self, server: S3Server, folder: Path, uri: str, *, compiled: bool) -> None:
        lock, build = ROOT / "requirements.lock", folder / "build"
        version = MACHINE.python_version if compiled else None
        built = {
            recipe.name: build_layer(recipe, lock=lock, build=build, machine=MACHINE, compiled=compiled)
            for recipe in LAYERS
        }
        built[LIBRARY] = build_library([ROOT / "shared" / "alluvia"], build=build, python_version=version)
        self._layers = {name: layer / PACKAGE_FOLDER for name, layer in built.items()}
        self._functions = stage_functions(ROOT, build, version)
        self._folder = folder
        venv.create(folder / "bare", with_pip=False)
        self._environment = {
            "PATH": "/usr/bin:/bin", "TMPDIR": str(folder), "AWS_LAMBDA_FUNCTION_NAME": "benchmark",
            "ALLUVIA_LAKE": uri, "ALLUVIA_ENDPOINT_URL": server.endpoint_url,
            "AWS_DEFAULT_REGION": REGION, **{name.upper(): value for name, value in CREDENTIALS.items()},
        }  # fmt: skip

    def least(self, spec: Spec, event: Json | None, imports: list[str], *, load: bool = True) -> dict[str, float]:
        """Return the least CPU of several cold starts, in ms: of imports, of loading, and of an answer besides."""
        runs = [self._run(spec, event, imports, load=load) for _ in range(RUNS)]
        return {key: min(run[key] for run in runs) for key in runs[0]}

    def _run(self, spec: Spec, event: Json | None, imports: list[str], *, load: bool) -> dict[str, float]:
        out = self._folder / "figures.json"
        given = {
            "path": [str(self._functions[spec.folder]), *(str(self._layers[name]) for name in spec.layers)],
            "module": f"functions.{spec.folder}.handler" if load else None,
            "event": event, "bare": imports, "out": str(out),
        }  # fmt: skip
        command = [str(self._folder / "bare" / "bin" / "python"), "-I", "-B", "-c", DRIVER]
        subprocess.run(command, input=json.dumps(given), env=self._environment, text=True, check=True,
                       stdout=subprocess.DEVNULL)  # fmt: skip
        found: dict[str, float] = json.loads(out.read_text())
        return found
