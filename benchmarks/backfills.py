"""Backfills: our job against bare Spark jobs over the same files, by wall clock and by CPU of all processes."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import orjson
import pyarrow as pa

from alluvia_spark.backfill_job.plan import BUCKET_BYTES_MAX
from benchmarks.measure import ROOT, megabytes
from benchmarks.report import Figure
from tests.s3server import S3Server

EVENTS = 500_000
EVENTS_MANY = 3_500_000
FILES = 8
DAYS = 30
PAIRS = 5
PAIRS_MANY = 3
BLOCK_BYTES = 512 << 10
COLUMNS = pa.schema(
    [
        *(("ip", pa.string()), ("user", pa.string()), ("path", pa.string()), ("status", pa.int64())),
        *(("bytes", pa.int64()), ("agent", pa.string())),
    ]
)
AGENT = "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{}.0.0.0 Safari/537.36"


def figures(_: S3Server, folder: Path) -> list[Figure]:
    """Load the events of a month into an empty table, as our job, as a bare job of the same work, and plainly."""
    few, many = folder / "few", folder / "many"
    what = f"{EVENTS:,} events, {megabytes(_write(few, EVENTS, odd=True))} of NDJSON, 2 cores"
    found = _run("backfill_child", few, PAIRS, "ours", "odd", "alike", "plain", "delta")
    sides = found["sides"]
    more = f"{EVENTS_MANY:,} events, {megabytes(_write(many, EVENTS_MANY))} of NDJSON, 2 cores"
    big = _run("backfill_child", many, 1, "ours", "plain")
    sizes = _run("backfill_sizes", folder)
    cold, cold_big = _cold(few, PAIRS), _cold(many, PAIRS_MANY)
    return [
        *_compared(what, "a bare job of the same work", "alike", 1.0, sides),
        *_compared(what, "read.json → write.parquet", "plain", 0.8, sides),
        *_compared(what, "delta-spark: read.json → write.format(delta)", "delta", None, sides),
        *_compared(f"{what}, an odd one in each block", "without", "ours", 0.9, {**sides, "ours": sides["odd"]}, sides),
        *_compared(f"{what}, from the start of Python", "read.json → write.parquet", "plain", 0.8, cold),
        *_compared(f"{more}, one turn", "read.json → write.parquet", "plain", None, big["sides"]),
        *_compared(f"{more}, from the start of Python", "read.json → write.parquet", "plain", 0.8, cold_big),
        Figure(
            f"backfill: memory of a Python worker at most, {more}; three times the largest bucket",
            megabytes(big["workers"]),
            megabytes(3 * BUCKET_BYTES_MAX),
            big["workers"] / (3 * BUCKET_BYTES_MAX),
            "at most 1",
            big["workers"] <= 3 * BUCKET_BYTES_MAX,
        ),
        *_sizes(sizes),
    ]


def _cold(folder: Path, pairs: int) -> dict[str, list[list[float]]]:
    sides: dict[str, list[list[float]]] = {"ours": [], "plain": []}
    for _turn in range(pairs):
        for side, runs in sides.items():
            runs.append(_run("backfill_child", folder, "cold", side, time.time()))
    return sides


def _run(module: str, folder: Path, *arguments: object) -> Any:
    command = [sys.executable, "-m", f"benchmarks.{module}", str(folder), *map(str, arguments)]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=3600)
    return json.loads(done.stdout)


def _sizes(found: Mapping[str, Any]) -> Iterator[Figure]:
    files, job = found["source"], found["job"]
    grown = files["python_bytes"] + files["java_bytes"]
    yield Figure(
        f"backfill: driver's memory for {files['files']:,} source files in {files['tasks']:,} tasks, Java included",
        megabytes(grown),
        "200 MB",
        grown / 200e6,
        "at most 1",
        grown <= 200e6,
    )
    yield Figure(
        f"backfill: commit of {job['files']:,} files",
        f"{job['commit_seconds']:.2f} s",
        f"the job: {job['seconds']:.0f} s",
    )
    memory = f"{megabytes(job['python_bytes'])} and {megabytes(job['java_bytes'])}"
    yield Figure(f"backfill: driver's memory for it, Python's and Java's, as it grew by {job['files']:,} files", memory)


def _compared(
    what: str,
    whom: str,
    other: str,
    bar: float | None,
    sides: Mapping[str, Sequence[Sequence[float]]],
    others: Mapping[str, Sequence[Sequence[float]]] | None = None,
) -> Iterator[Figure]:
    theirs = (others or sides)[other]
    for at, kind in ((0, "time"), (1, "CPU")):
        ours, their = (median(run[at] for run in runs) for runs in (sides["ours"], theirs))
        ratio = median(b[at] / a[at] for a, b in zip(sides["ours"], theirs, strict=True))
        name = f"backfill: {kind}, {what}, against {whom}"
        if kind == "CPU" or bar is None:
            yield Figure(name, f"{ours:.1f} s", f"{their:.1f} s", ratio)
        else:
            yield Figure(name, f"{ours:.1f} s", f"{their:.1f} s", ratio, f"at least {bar}", holds=ratio >= bar)


def _write(folder: Path, events: int, *, odd: bool = False) -> int:
    """Write events, and if `odd` once more with an odd one in each block. Returns the bytes of the first."""
    chance = random.Random(5)
    first = datetime(2026, 1, 1, tzinfo=UTC)
    size = 0
    for name in ("in", "odd") if odd else ("in",):
        (folder / name).mkdir(parents=True)
    for number in range(FILES):
        lines = [_event(chance, at, first) for at in range(number, events, FILES)]
        data = b"".join(lines)
        size += len(data)
        (folder / "in" / f"{number}.ndjson").write_bytes(data)
        if not odd:
            continue
        step = len(lines) * BLOCK_BYTES // len(data)
        lines[::step] = [line[:-2] + b',"odd":{"deep":[1,null]}}\n' for line in lines[::step]]
        (folder / "odd" / f"{number}.ndjson").write_bytes(b"".join(lines))
    return size


def _event(chance: random.Random, number: int, first: datetime) -> bytes:
    moment = first + timedelta(seconds=chance.randrange(DAYS * 86_400))
    event = {
        "event_id": f"{chance.getrandbits(96):024x}",
        "ts": moment.isoformat().replace("+00:00", "Z"),
        "event": chance.choice(("view", "click", "order")),
        "source": "web",
        "ip": ".".join(str(chance.randrange(256)) for _ in range(4)),
        "user": f"u{int(chance.paretovariate(0.6)) % 1_000_000}",
        "path": f"/catalogue/{chance.randrange(50_000):05}/{number % 97}",
        "status": chance.choice((200, 200, 200, 304, 404)),
        "bytes": chance.randrange(100_000),
        "agent": AGENT.format(chance.randrange(90, 130)),
    }
    return orjson.dumps(event) + b"\n"
