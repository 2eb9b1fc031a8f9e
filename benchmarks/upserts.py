"""Putting 10,000 rows by key into a table of 1,000,000: half of the keys are in the table."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import alluvia
from benchmarks.measure import Run, in_processes, megabytes, milliseconds
from benchmarks.report import Figure
from benchmarks.tables import OPEN
from tests.s3server import S3Server

ROWS = 1_000_000
FILES = 10
CHANGED = 10_000
REPEATS = 3
TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("value", pa.float64()), ("at", TIME)])


def figures(_: S3Server, folder: Path) -> list[Figure]:
    """Measure keys that lie all over the table, and keys that lie in one of its files."""
    table = alluvia.connect(str(folder)).create_table("base", SCHEMA, properties=OPEN)
    for start in range(0, ROWS, ROWS // FILES):
        table.append(_rows(range(start, start + ROWS // FILES)))
    chance = random.Random(1)
    new = range(ROWS, ROWS + CHANGED // 2)
    everywhere = chance.sample(range(ROWS), CHANGED // 2)
    near = chance.sample(range(ROWS // 2, ROWS // 2 + ROWS // FILES), CHANGED // 2)
    found = []
    for where, keys in (("all over the table", everywhere), ("in one file", near)):
        rows = folder / "rows.parquet"
        pq.write_table(_rows([*keys, *new]), rows)
        found += _compared(folder, rows, where)
    return found


def _rows(ids: range | list[int]) -> pa.Table:
    names = [f"name {number * 7919 % 1_000_003}" for number in ids]
    values = [number * 0.37 for number in ids]
    times = [1_700_000_000_000_000 + number for number in ids]
    return pa.table([pa.array(ids, pa.int64()), names, values, pa.array(times, TIME)], schema=SCHEMA)


def _compared(folder: Path, rows: Path, where: str) -> list[Figure]:
    runs: dict[str, list[Run]] = {"ours": [], "deltalake": []}
    for _ in range(REPEATS):
        for side, done in runs.items():
            shutil.rmtree(folder / side, ignore_errors=True)
            shutil.copytree(folder / "base", folder / side)
            arguments = {"uri": str(folder / side), "rows": str(rows)}
            done.append(in_processes({side: (f"upsert_{side}", arguments)}, 1)[side])
    ours, theirs = runs["ours"], runs["deltalake"]
    assert all(run.answer == [CHANGED // 2, CHANGED // 2] for run in (*ours, *theirs))
    memory, their_memory = (min(run.peak_bytes for run in each) for each in (ours, theirs))
    seconds, their_seconds = (min(run.seconds for run in each) for each in (ours, theirs))
    name = f"Upsert of {CHANGED:,} rows into {ROWS:,}, keys {where}"
    return [
        Figure(f"{name}: peak memory", megabytes(memory), megabytes(their_memory), memory / their_memory,
               "below deltalake's", memory < their_memory),
        Figure(f"{name}: time", milliseconds(seconds), milliseconds(their_seconds), seconds / their_seconds),
    ]  # fmt: skip
