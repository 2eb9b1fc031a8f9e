"""Refreshing a rollup after one small commit on a source of 1,000 files, over S3, compared with computing it anew."""

from __future__ import annotations

import random
import time
from collections import Counter
from datetime import date, timedelta
from pathlib import Path
from statistics import median

import pyarrow as pa

import alluvia
from benchmarks.measure import milliseconds
from benchmarks.report import Figure
from benchmarks.requests import count, shown
from tests.s3server import S3Server

DAYS, FILES_A_DAY, ROWS = 100, 10, 1_000
PAGES = 50
REPEATS = 7
SCHEMA = pa.schema([("day", pa.date32()), ("page", pa.string()), ("ms", pa.int64()), ("session", pa.string())])
QUERIES = {
    "folded": "SELECT day, page, count(*) AS hits, sum(ms) AS ms FROM events GROUP BY day, page",
    "recomputed": "SELECT day, page, count(DISTINCT session) AS sessions, avg(ms) AS ms FROM events GROUP BY day, page",
}


def figures(server: S3Server, _: Path) -> list[Figure]:
    """Measure requests and time of a refresh of each kind, and of filling the same rollup."""
    options = server.options
    uri = f"s3://{server.new_bucket()}"
    writer, refresher = alluvia.connect(uri, **options), alluvia.connect(uri, **options)
    chance = random.Random(1)
    make_source(writer, chance)
    found = []
    for mode, query in QUERIES.items():
        rollup = refresher.create_rollup(mode, query)
        seconds: dict[str, list[float]] = {"refresh": [], "fill": []}
        requests: dict[str, Counter[str]] = {}
        for number in range(REPEATS):
            writer["events"].append(rows_of(chance, DAYS - 1, 100))
            began = time.perf_counter()
            reports = []
            requests["refresh"] = count(server, lambda: reports.append(rollup.refresh()))  # noqa: B023
            seconds["refresh"].append(time.perf_counter() - began)
            assert [report.mode for report in reports] == [mode]
            anew = refresher.create_rollup(f"{mode}_{number}", query, fill=False)
            began = time.perf_counter()
            requests["fill"] = count(server, anew.refresh)
            seconds["fill"].append(time.perf_counter() - began)
        name = f"Refresh of a rollup after 100 rows more in {DAYS * FILES_A_DAY:,} files over S3, {mode}"
        asked = requests["refresh"].total() / requests["fill"].total()
        ratio = median(seconds["refresh"]) / median(seconds["fill"])
        found += [
            Figure(f"{name}: requests", shown(requests["refresh"]), f"{shown(requests['fill'])} (filled anew)", asked,
                   "below 0.1 times", asked < 0.1),
            Figure(f"{name}: time", milliseconds(median(seconds["refresh"])),
                   f"{milliseconds(median(seconds['fill']))} (filled anew)", ratio, "below 0.5 times", ratio < 0.5),
        ]  # fmt: skip
    return found


def make_source(lake: alluvia.Lake, chance: random.Random) -> None:
    """Create `events`, with files of one day each, and a checkpoint."""
    table = lake.create_table("events", SCHEMA, partition_by=["day"])
    writer = table._handle.writer(table.snapshot())
    files = [
        file for day in range(DAYS) for _ in range(FILES_A_DAY) for file in writer.write(rows_of(chance, day, ROWS))
    ]
    table.commit_files(files)
    table.checkpoint()


def rows_of(chance: random.Random, day: int, number: int) -> pa.Table:
    """Return rows of a day."""
    columns = [
        pa.array([date(2026, 1, 1) + timedelta(day)] * number, pa.date32()),
        pa.array([f"/page/{chance.randrange(PAGES)}" for _ in range(number)]),
        pa.array([chance.randrange(1000) for _ in range(number)], pa.int64()),
        pa.array([f"s{chance.randrange(10_000)}" for _ in range(number)]),
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)
