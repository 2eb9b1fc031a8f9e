"""Appends on a warm handle: commits a second over S3, and whether the size of the table or its age slows them."""

from __future__ import annotations

import shutil
from pathlib import Path
from statistics import median

import deltalake
import pyarrow as pa

import alluvia
from benchmarks.measure import in_turns, milliseconds
from benchmarks.report import Figure
from benchmarks.requests import ROWS as SMALL
from benchmarks.requests import SCHEMA as SMALL_SCHEMA
from benchmarks.requests import delta_options
from benchmarks.tables import OPEN, table_of
from tests.s3server import S3Server

APPENDS = 200
LATE = 50
CHECKPOINT_EVERY = 50
FEW, MANY = 100, 100_000


def figures(server: S3Server, folder: Path) -> list[Figure]:
    """Measure over S3 and on a directory."""
    return [*_commits_a_second(server), _checkpointing(server), *_sizes(folder)]


def _sides(server: S3Server, interval: int) -> tuple[alluvia.Table, deltalake.DeltaTable]:
    bucket = server.new_bucket()
    ours = alluvia.connect(f"s3://{bucket}", **server.options).create_table("ours", SMALL_SCHEMA, properties=OPEN)
    uri, options = f"s3://{bucket}/theirs", delta_options(server)
    configuration = {"delta.checkpointInterval": str(interval)}
    deltalake.write_deltalake(uri, SMALL, storage_options=options, configuration=configuration)
    return ours, deltalake.DeltaTable(uri, storage_options=options)


def _commits_a_second(server: S3Server) -> list[Figure]:
    ours, theirs = _sides(server, 1_000_000)
    seconds = in_turns(
        {
            "ours": lambda: ours.append(SMALL),
            "theirs": lambda: deltalake.write_deltalake(theirs, SMALL, mode="append"),
        },
        APPENDS,
    )
    found = []
    for name, part in (("first", slice(LATE)), ("last", slice(-LATE, None))):
        rate, their_rate = (1 / median(seconds[side][part]) for side in ("ours", "theirs"))
        title = f"Appends of {len(SMALL)} rows over S3, {name} {LATE} of {APPENDS}: commits a second"
        ratio = rate / their_rate
        found.append(Figure(title, f"{rate:.0f}", f"{their_rate:.0f}", ratio, "at least 2 times", ratio >= 2))
    return found


def _checkpointing(server: S3Server) -> Figure:
    ours, theirs = _sides(server, CHECKPOINT_EVERY)

    def append() -> None:
        version = ours.append(SMALL).version
        if version % CHECKPOINT_EVERY == 0:
            ours.checkpoint()

    their_append = lambda: deltalake.write_deltalake(theirs, SMALL, mode="append")  # noqa: E731
    seconds = in_turns({"ours": append, "theirs": their_append}, 2 * CHECKPOINT_EVERY)
    rate, their_rate = (len(each) / sum(each) for each in seconds.values())
    title = f"The same with a checkpoint after each {CHECKPOINT_EVERY}: commits a second"
    return Figure(title, f"{rate:.0f}", f"{their_rate:.0f}", rate / their_rate)


def _sizes(folder: Path) -> list[Figure]:
    lake = alluvia.connect(str(folder))
    tables = {}
    for name, files, policy in (("few", FEW, "classic"), ("many", MANY, "classic"), ("sidecars", MANY, "v2")):
        table_of(lake, name, files, properties={"delta.checkpointPolicy": policy}).checkpoint()
        tables[name] = alluvia.connect(str(folder)).table(name)
    theirs = {}
    for name in ("few", "many"):
        shutil.copytree(folder / name, folder / f"their_{name}")
        theirs[name] = deltalake.DeltaTable(folder / f"their_{name}")
    rows = pa.table({"id": pa.array([1], pa.int64()), "day": ["2024-01-01"]})
    actions = {name: lambda table=table: table.append(rows) for name, table in tables.items()}
    seconds = in_turns(actions, APPENDS)
    their_actions = {
        name: lambda table=table: deltalake.write_deltalake(table, rows, mode="append", schema_mode="merge")
        for name, table in theirs.items()
    }
    their_seconds = in_turns(their_actions, 10)
    found = []
    for name, kind in (("many", "v1 checkpoint"), ("sidecars", "v2 checkpoint")):
        for which, part in (("first", slice(LATE)), ("last", slice(-LATE, None))):
            few, many = (median(seconds[each][part]) for each in ("few", name))
            title = f"Warm append to {MANY:,} files ({kind}), {which} {LATE} of {APPENDS}"
            peer = f"{milliseconds(few)} (ours, {FEW} files)"
            ratio = many / few
            found.append(Figure(title, milliseconds(many), peer, ratio, "at most 1.2 times", ratio <= 1.2))
    few, many = (median(their_seconds[each]) for each in ("few", "many"))
    title = f"deltalake's append to {MANY:,} files and to {FEW}, compared with ours to {MANY:,}"
    ours = milliseconds(median(seconds["many"]))
    return [*found, Figure(title, ours, f"{milliseconds(many)}, {milliseconds(few)}", median(seconds["many"]) / many)]
