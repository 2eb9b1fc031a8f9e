"""Appends, a merge of 100 small files and queries, compared with IceDB v3 on the same S3 server.

IceDB is in no package index. Its source is fetched with git at a pinned commit, or is in the directory that the
environment variable `ICEDB_SOURCE` names. It runs with our versions of DuckDB, pyarrow and boto3.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import alluvia
from benchmarks.measure import Run, in_processes, megabytes, milliseconds
from benchmarks.report import Figure
from benchmarks.requests import shown
from tests.s3server import S3Server

REPOSITORY = "https://github.com/danthegoodman1/icedb"
COMMIT = "a708c3b00f859befc5903afe783f7b8dca7c4077"
SOURCE = "ICEDB_SOURCE"
APPENDS, APPEND_ROWS = 20, 2_000
FILES, FILE_ROWS = 100, 500
SCHEMA = {"id": "string", "ts": "long", "event": "string", "country": "string", "value": "double"}
Measured = tuple[Run, str, int]
"""A run, its requests as text, and their number."""


def figures(server: S3Server, folder: Path) -> list[Figure]:
    """Run both sides with the same rows, each action in a process of its own."""
    source, bucket = _source(folder), server.new_bucket()
    lake = alluvia.connect(f"s3://{bucket}/ours", **server.options)
    for name in ("spread", "small"):
        lake.create_table(name, SCHEMA, ["country"], ["event", "ts"])
    sides = {
        "ours": {"uri": f"s3://{bucket}/ours", "options": server.options},
        "icedb": {"source": str(source), "options": server.options, "bucket": bucket},
    }

    def run(action: str, **arguments: Any) -> dict[str, Measured]:
        found = {}
        for side, given in sides.items():
            server.requests()
            done = in_processes({side: (f"benchmarks.icedb_sides:{action}_{side}", {**given, **arguments})}, 1)[side]
            counts = server.requests()
            found[side] = done, shown(counts), counts.total()
        assert found["ours"][0].answer == found["icedb"][0].answer
        return found

    spread = {"table": "spread", "batches": APPENDS, "rows": APPEND_ROWS, "countries": 4}
    small = {"table": "small", "batches": FILES, "rows": FILE_ROWS, "countries": 1}
    return [
        *_compared(f"{APPENDS} appends of {APPEND_ROWS:,} rows to 4 partitions", run("append", **spread)),
        *_compared(f"{FILES} appends of {FILE_ROWS} rows to one partition", run("append", **small)),
        *_queried(f"Query of {FILES} files", run("query", table="small")),
        *_compared(f"Merge of {FILES} files into one", run("merge", table="small", files=FILES)),
        *_queried("Query after the merge", run("query", table="small"), bounded=True),
        *_compared("Merge with nothing to do", run("merge", table="small", files=FILES)),
    ]


def _compared(what: str, sides: dict[str, Measured]) -> Iterator[Figure]:
    ours, theirs = sides["ours"][0], sides["icedb"][0]
    yield from _queried(what, sides, bounded=True)
    cpu, their_cpu, memory, their_memory = ours.cpu_seconds, theirs.cpu_seconds, ours.peak_bytes, theirs.peak_bytes
    yield Figure(f"{what}: CPU, IceDB", milliseconds(cpu), milliseconds(their_cpu), cpu / their_cpu)
    yield Figure(f"{what}: peak memory, IceDB", megabytes(memory), megabytes(their_memory), memory / their_memory)


def _queried(what: str, sides: dict[str, Measured], *, bounded: bool = False) -> Iterator[Figure]:
    """Return requests and time: our queries run in processes of their own, whose CPU and memory are not counted."""
    (ours, text, sent), (theirs, their_text, theirs_sent) = sides["ours"], sides["icedb"]
    bar, holds = ("at most IceDB's", sent <= theirs_sent) if bounded else ("", None)
    yield Figure(f"{what}: requests, IceDB", text, their_text, sent / theirs_sent, bar, holds)
    time, their_time = ours.seconds, theirs.seconds
    yield Figure(f"{what}: time, IceDB", milliseconds(time), milliseconds(their_time), time / their_time)


def version() -> str:
    """Return which IceDB is compared."""
    return f"v3, from the directory {SOURCE}" if os.environ.get(SOURCE) else f"v3, commit {COMMIT}"


def _source(folder: Path) -> Path:
    given = os.environ.get(SOURCE)
    if given:
        return Path(given).resolve()
    target = folder / "icedb"
    for command in (
        ["init", "--quiet", str(target)],
        ["-C", str(target), "fetch", "--quiet", "--depth", "1", REPOSITORY, COMMIT],
        ["-C", str(target), "checkout", "--quiet", "FETCH_HEAD"],
    ):
        subprocess.run(["git", *command], check=True, timeout=300)
    return target
