"""What a checkpoint of 100,000 files costs after one of them changed, and what a filtered scan reads of it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from deltalake import DeltaTable

import alluvia
from alluvia.api.lake import Lake
from alluvia.clock import SystemClock
from alluvia.commit.changes import Changes
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.log.actions import AddFile
from alluvia.delta.skipping.predicate import And, Comparison
from alluvia.store import CountingStore, open_store
from benchmarks.measure import in_turns, megabytes, milliseconds
from benchmarks.report import Figure
from benchmarks.tables import ROWS, table_of
from tests.s3server import S3Server

FILES = 100_000


def figures(_: S3Server, folder: Path) -> list[Figure]:
    """Measure bytes, time and sidecars, on a directory."""
    clock = SystemClock()
    store = CountingStore(open_store(str(folder), clock))
    lake = Lake(store, clock)
    full = table_of(lake, "full", FILES)
    parts = table_of(lake, "parts", FILES, properties={"delta.checkpointPolicy": "v2"})
    whole = _checkpoint(store, full)
    _checkpoint(store, parts)
    shutil.copytree(folder / "full", folder / "theirs", ignore=shutil.ignore_patterns("*checkpoint*"))
    theirs = DeltaTable(folder / "theirs")
    their_time = in_turns({"theirs": theirs.create_checkpoint}, 1)["theirs"][0]
    their_bytes = max((folder / "theirs/_delta_log").glob("*.checkpoint.parquet")).stat().st_size
    _replace_one(parts, FILES // 2)
    changed = _checkpoint(store, parts)
    _replace_one(full, FILES // 2)
    again = _checkpoint(store, full)
    share = changed[0] / again[0]
    name = f"Checkpoint of {FILES:,} files after one changed"
    return [
        Figure(f"{name}: bytes, against a full one of ours", megabytes(changed[0]), megabytes(again[0]) + " (ours, v1)",
               share, "below 5%", share < 0.05),
        Figure(f"{name}: bytes", megabytes(changed[0]), megabytes(their_bytes), changed[0] / their_bytes),
        Figure(f"{name}: time", milliseconds(changed[1]), milliseconds(their_time), changed[1] / their_time),
        Figure(f"Full v1 checkpoint of {FILES:,} files: bytes", megabytes(whole[0]), megabytes(their_bytes),
               whole[0] / their_bytes),
        Figure(f"Full v1 checkpoint of {FILES:,} files: time", milliseconds(again[1]), milliseconds(their_time),
               again[1] / their_time),
        *_filtered(lake),
    ]  # fmt: skip


def _checkpoint(store: CountingStore, table: alluvia.Table) -> tuple[int, float]:
    """Write a checkpoint; return the bytes written and the seconds taken."""
    store.reset()
    seconds = in_turns({"ours": table.checkpoint}, 1)["ours"][0]
    return store.bytes_written, seconds


def _replace_one(table: alluvia.Table, number: int) -> AddFile:
    """Replace the file of a number by another, as a delete of some of its rows does."""
    snapshot = table.snapshot()
    (file,) = Scan(snapshot, Comparison(("id",), "=", number * ROWS)).files
    new = replace(file, path=file.path.replace("part-", "new-"), uri=None)
    changes = Changes("DELETE", removes=[file.removed(0, data_change=True)], adds=[new])
    table._handle.transaction(snapshot).commit(changes)
    return new


def _filtered(lake: Lake) -> list[Figure]:
    """Count the sidecars that a filtered scan opens, by a column and by the partition."""
    found = []
    for what, predicate, wanted in (
        ("one file's id", Comparison(("id",), "=", 12_345 * ROWS), 1),
        (
            "half a day",
            And((Comparison(("day",), "=", "2024-01-13"), Comparison(("id",), "<", 12_500 * ROWS))),
            500,
        ),
    ):
        snapshot = Lake(lake.store, lake.clock).table("parts").snapshot()
        kept = Scan(snapshot, predicate).files
        assert len(kept) == wanted
        paths = {file.path for file in kept}
        opened = [part for part in snapshot.files.parts if part.is_open]
        needed = [part for part in snapshot.files.parts if any(file.path in paths for file in part.actions())]
        name = f"Sidecars opened by a scan that filters by {what}"
        shown = f"{len(opened)} of {len(snapshot.files.parts)}"
        found.append(Figure(name, shown, "", None, "those that hold matches", len(opened) == len(needed)))
    return found
