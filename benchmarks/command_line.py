"""CPU of commands and their processes, compared with DuckDB's `SELECT 1` in Python. The best of several runs counts."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from pathlib import Path

import alluvia
from benchmarks.measure import milliseconds
from benchmarks.report import Figure
from tests.s3server import S3Server

RUNS = 9
ROWS = 100_000
PEER = "import duckdb; print(duckdb.sql('SELECT 1'))"
COMMANDS: dict[str, tuple[list[str], float | None]] = {
    "--version": (["--version"], 1.0),
    'query "SELECT 1"': (["query", "SELECT 1"], 3.2),
    f"query of {ROWS:,} rows": (["query", "SELECT g, count(*), sum(n) FROM t GROUP BY g"], None),
    "ingest of one event": (["ingest", "events", "one.ndjson"], None),
}
"""The arguments of each command, and its limit as a multiple of the CPU of the other side."""


def figures(server: S3Server, folder: Path) -> list[Figure]:  # noqa: ARG001 - all parts are called alike
    """Measure all commands in turns."""
    lake = alluvia.connect(folder / "lake")
    table = lake.create_table("t", {"g": "long", "n": "long"})
    table.append([{"g": number % 10, "n": number} for number in range(ROWS)])
    lake.create_events("events")
    (folder / "one.ndjson").write_text('{"event": "viewed", "user": "u17", "ms": 35}\n')
    runs = {"": [sys.executable, "-c", PEER]}
    runs |= {name: [sys.executable, "-m", "alluvia.cli", *words] for name, (words, _) in COMMANDS.items()}
    seconds = dict.fromkeys(runs, float("inf"))
    for _ in range(RUNS):
        for name, command in runs.items():
            seconds[name] = min(seconds[name], _cpu_seconds(command, folder))
    return [
        Figure(
            f"alluvia {name}: CPU",
            milliseconds(seconds[name]),
            f"{milliseconds(seconds[''])} (DuckDB, SELECT 1)",
            seconds[name] / seconds[""],
            "" if most is None else f"at most {most:g}",
            None if most is None else seconds[name] <= most * seconds[""],
        )
        for name, (_, most) in COMMANDS.items()
    ]


def _cpu_seconds(command: list[str], folder: Path) -> float:
    """Run a command, and return the CPU time that it and its processes took."""
    before = _children_seconds()
    environment = {**os.environ, "ALLUVIA_LAKE": str(folder / "lake")}
    subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.DEVNULL, check=True)
    return _children_seconds() - before


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime
