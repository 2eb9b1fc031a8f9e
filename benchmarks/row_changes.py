"""Changing rows of a table of 1,000,000: 10,000 upserted by key, half of them new, 10,000 deleted or updated."""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import alluvia
from benchmarks.measure import Run, best, in_processes, megabytes, milliseconds
from benchmarks.report import Figure
from benchmarks.tables import OPEN
from tests.s3server import S3Server

ROWS = 1_000_000
FILES = 10
CHANGED = 10_000
REPEATS = 5
TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("value", pa.float64()), ("at", TIME)])
WHERE = f"id % {ROWS // CHANGED} = 7"


def figures(_: S3Server, folder: Path) -> list[Figure]:
    """Measure rows that lie all over the table, and an upsert whose keys lie in one of its files."""
    table = alluvia.connect(str(folder)).create_table("base", SCHEMA, properties=OPEN)
    for start in range(0, ROWS, ROWS // FILES):
        table.append(_rows(range(start, start + ROWS // FILES)))
    chance = random.Random(1)
    new = range(ROWS, ROWS + CHANGED // 2)
    everywhere = chance.sample(range(ROWS), CHANGED // 2)
    near = chance.sample(range(ROWS // 2, ROWS // 2 + ROWS // FILES), CHANGED // 2)
    scattered = _source(folder / "scattered.parquet", [*everywhere, *new])
    together = _source(folder / "together.parquet", [*near, *new])
    half = [CHANGED // 2, CHANGED // 2]
    found: list[Figure] = []
    for name, action, arguments, answer in (
        ("Delete of 10,000 rows of 1,000,000, all over the table", "delete", {"where": WHERE}, CHANGED),
        (
            "Update of 10,000 rows of 1,000,000, all over the table",
            "update",
            {"values": {"value": "value + 1"}, "where": WHERE},
            CHANGED,
        ),
        ("Upsert of 10,000 rows into 1,000,000, keys all over the table", "upsert", {"rows": scattered}, half),
        ("Upsert of 10,000 rows into 1,000,000, keys in one file", "upsert", {"rows": together}, half),
    ):
        ours, theirs = _runs(folder, action, arguments)
        assert ours.answer == theirs.answer == answer
        found += _compared(name, ours, theirs)
    return found


def _source(path: Path, ids: list[int]) -> str:
    pq.write_table(_rows(ids), path)
    return str(path)


def _rows(ids: range | list[int]) -> pa.Table:
    names = [f"name {number * 7919 % 1_000_003}" for number in ids]
    values = [number * 0.37 for number in ids]
    times = [1_700_000_000_000_000 + number for number in ids]
    return pa.table([pa.array(ids, pa.int64()), names, values, pa.array(times, TIME)], schema=SCHEMA)


def _runs(folder: Path, action: str, arguments: Mapping[str, Any]) -> tuple[Run, Run]:
    """Run an action of each side, in turns, on a fresh copy of the table each time; return the best of each."""
    runs: dict[str, list[Run]] = {"ours": [], "deltalake": []}
    for _ in range(REPEATS):
        for side in runs:
            shutil.rmtree(folder / side, ignore_errors=True)
            shutil.copytree(folder / "base", folder / side)
            runs[side] += in_processes(
                {side: (f"{action}_{side}", {"uri": str(folder / side), **arguments})}, 1
            ).values()
    return best(runs["ours"]), best(runs["deltalake"])


def _compared(name: str, ours: Run, theirs: Run) -> list[Figure]:
    found = [(megabytes(ours.peak_bytes), megabytes(theirs.peak_bytes), ours.peak_bytes / theirs.peak_bytes)]
    for mine, other in ((ours.cpu_seconds, theirs.cpu_seconds), (ours.seconds, theirs.seconds)):
        found.append((milliseconds(mine), milliseconds(other), mine / other))
    return [
        Figure(f"{name}: {what}", mine, other, ratio, "below deltalake's", ratio < 1)
        for what, (mine, other, ratio) in zip(("peak memory", "CPU time", "time"), found, strict=True)
    ]
