from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import alluvia
from alluvia.clock import SystemClock
from alluvia.store import open_store
from alluvia_spark.backfill_job.job import ROWS
from alluvia_spark.backfill_job.tasks import LINES, read_task
from alluvia_spark.sources.files import SourceOptions
from alluvia_spark.sources.manifest import portion_of, write_manifest
from alluvia_spark.sources.source import list_files
from tests.spark.jobs import job_of

LINE = b'{"event_id":"%d","event":"view","body":"%b"}\n'


def test_what_passes_through_java_is_in_small_pieces(tmp_path: Path) -> None:
    """Java copies a row whole, to twice its bytes: rows of 30 MB ran out of a heap of 1 GB."""
    chance = random.Random(7)
    lines = [LINE % (number, chance.randbytes(16_000).hex().encode()) for number in range(1600)]
    source = tmp_path / "in" / "events.ndjson"
    source.parent.mkdir()
    source.write_bytes(b"".join(lines))
    lake = alluvia.connect(str(tmp_path / "lake"))
    lake.create_events("events")
    files = write_manifest(lake.store, "manifest", list_files(str(source), SystemClock(), SourceOptions()))
    splits = files.splits(64 << 20)
    assert len(splits) == 1
    job = replace(job_of(lake, "events", stores=open_store), manifest="manifest")
    chunks = list(read_task(job, 0, portion_of(splits, 0)))
    assert [sum(chunk.rows for chunk in chunks if chunk.table == table) for table in (ROWS, LINES)] == [len(lines)] * 2
    assert sum(len(chunk.payload) for chunk in chunks) > 40 << 20
    assert max(len(chunk.payload) for chunk in chunks) < 20 << 20
