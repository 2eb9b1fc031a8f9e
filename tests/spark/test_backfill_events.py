"""Events of a backfill and of ingestion: each id once, whichever comes first."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import alluvia
from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.commit.event_window import id_files
from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import Limits
from alluvia_spark import backfill
from alluvia_spark.backfill_job import execute, known_ids
from alluvia_spark.backfill_job.job import Report
from alluvia_spark.sources import source as source_files
from tests.spark.backfills import (
    BROKEN,
    COLUMNS,
    NDJSON,
    event_of,
    ingest,
    numbers_of,
    rejects_of,
    rows_of,
    write,
)
from tests.spark.backfills import events as events  # noqa: PLC0414 - a fixture
from tests.spark.backfills import fill as fill  # noqa: PLC0414 - a fixture

pytestmark = pytest.mark.slow


def _at_day(table: Table, event_id: str, day: int) -> pa.Table:
    """Return a row that did not come by ingestion."""
    moment = datetime(2026, 1, day, tzinfo=UTC)
    row = {"event_id": event_id, "ts": moment, "received_at": moment}
    return pa.Table.from_pylist([row], schema=table.schema)


def test_events_that_the_table_holds_are_duplicates(lake: Lake, fill: Callable[..., Report], tmp_path: Path) -> None:
    events = lake.create_events("requests", COLUMNS, properties={"delta.enableDeletionVectors": "true"})
    fill(write(tmp_path / "one.ndjson", [*(event_of(n, day=1 + n % 3) for n in range(40)), event_of(40, source="s")]))
    events.append(_at_day(events, "typed", 2))
    events.delete("event_id IN ('e1', 'e2')")  # which may come again
    lines = [
        *(event_of(n, day=1 + n % 3) for n in range(30, 45)),
        event_of(40, source="s"),
        event_of(1, day=2),
        event_of(2, day=3),
        event_of(50, day=2, event_id="typed"),
        event_of(51, day=9, event_id="e3"),
    ]
    report = fill(write(tmp_path / "two.ndjson", lines), "two")
    assert (report.rows, report.duplicates, report.rejects, report.conflicting) == (7, 12, 1, 1)
    known = [(f"e{n}", None) for n in (*range(40), *range(40, 45))] + [("e40", "s"), ("typed", None)]
    assert sorted(map(str, known)) == sorted(str((row["event_id"], row["source"])) for row in rows_of(events))
    elsewhere = write(tmp_path / "three.ndjson", [event_of(52, day=9, event_id="e3")])
    assert fill(elsewhere, "three").rows == 1  # files of other days are not looked at


def test_ingestion_knows_the_events_of_a_backfill(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path
) -> None:
    fill(write(tmp_path / "in.ndjson", [*(event_of(n, day=1 + n % 3) for n in range(40)), *BROKEN]))
    other = event_of(8, event_id="e7")
    assert ingest(lake, event_of(7, day=2), other, event_of(40), event_of(7, day=2, source="s")) == (2, 1, 1)
    assert len(rejects_of(lake)) == len(BROKEN) + 1
    later = alluvia.connect(lake.uri)
    assert ingest(later, event_of(8, day=3)) == (0, 1, 0)


@pytest.mark.parametrize("ids_in_commit", [1000, 0])
def test_events_that_are_ingested_during_a_job_are_left_out(
    lake: Lake,
    events: Table,
    fill: Callable[..., Report],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ids_in_commit: int,
) -> None:
    source = write(tmp_path / "in.ndjson", [*(event_of(n, day=1 + n % 3) for n in range(40)), *BROKEN])
    runs: list[int] = []

    def execute_and_ingest(*args: Any) -> Any:
        outcome = execute.execute(*args)
        runs.append(outcome.counts.rows - outcome.counts.duplicates)
        live = event_of(5, day=3) if len(runs) == 1 else event_of(100 + len(runs))
        assert ingest(alluvia.connect(lake.uri), live) == (1, 0, 0)
        return outcome

    monkeypatch.setattr(backfill, "execute", execute_and_ingest)
    monkeypatch.setattr(known_ids, "IDS_IN_COMMIT_MAX", ids_in_commit)
    report = fill(source)
    assert runs == [40, 39]
    assert (report.rows, report.duplicates) == (39, 1)
    assert numbers_of(events) == [*range(40), 102]
    assert len(rejects_of(lake)) == len(BROKEN)


def test_one_id_in_two_partitions_is_one_row_the_first(
    events: Table, fill: Callable[..., Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        event_of(0, day=2, event_id="same"),
        *(event_of(number, day=1 + number % 4) for number in range(1, 400)),
        event_of(400, day=1, event_id="same"),
        event_of(401, day=2, event_id="same"),
        event_of(400, day=3, event_id="same", source="other"),
    ]
    monkeypatch.setattr(execute, "SPLIT_BYTES_MIN", 3000)
    monkeypatch.setattr(source_files, "CUT_BYTES_MIN", 3000)
    monkeypatch.setattr(id_files, "RANGE_IDS", 100)
    report = fill(write(tmp_path / "in.ndjson", lines))
    assert (report.rows, report.duplicates, report.rejects, report.conflicting) == (401, 0, 2, 2)
    assert numbers_of(events) == list(range(401))


def test_an_id_with_other_content_is_the_reject_that_ingestion_makes_of_it(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        *(event_of(number, day=1 + number % 4) for number in range(200)),
        b"",
        event_of(7, day=4),  # once more
        b'{"n": 7, "event": "e", "ts": "2026-01-04T00:00:00Z", "event_id": "e7"}',  # once more, written otherwise
        event_of(1000, day=4, event_id="e7"),  # other content in the same partition
        event_of(1001, day=2, event_id="e7"),
        event_of(1001, day=2, event_id="e7"),
        b'{"event_id":"e8","ts":"2026-01-01T00:00:00Z","status":"broken"}',
        b'{"event_id":"e9","source":"","n":9}',
        b'{"event_id":"e9","source":"other","n":9}',
    ]
    other = alluvia.connect(str(tmp_path / "other"))
    posted = other.create_events("requests", COLUMNS)
    body = split(b"\n".join(lines), content_type=NDJSON, content_encoding=None, limits=Limits())
    answer = ingest_batch(other.catalog, "requests", body.events, body.rejects, arrival_us=1)
    monkeypatch.setattr(execute, "SPLIT_BYTES_MIN", 3000)
    monkeypatch.setattr(source_files, "CUT_BYTES_MIN", 3000)
    monkeypatch.setattr(id_files, "RANGE_IDS", 50)

    report = fill(write(tmp_path / "in.ndjson", lines))

    assert (report.rows, report.duplicates, report.rejects, report.conflicting) == (202, 2, 4, 3)
    assert (answer.stored, answer.duplicates, answer.rejected, answer.conflicting) == (202, 2, 4, 3)
    received = ("received_at", "ts")
    assert rows_of(events, *received) == rows_of(posted, *received)
    assert rejects_of(lake) == rejects_of(other)
    assert len(rejects_of(lake)) == 3
    names = [table.scan(["event_id"]).read_all() for table in (lake["requests/_rejects"], other["requests/_rejects"])]
    assert sorted(names[0]["event_id"].to_pylist()) == sorted(names[1]["event_id"].to_pylist())


def test_equal_lines_without_an_id_are_two_events_with_ids_that_never_change(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = write(tmp_path / "in.ndjson.gz", [b'{"event":"x"}', b'{"event":"x"}'])
    found = []
    for name in ("one", "two"):
        lake = alluvia.connect(str(tmp_path / name))
        table = lake.create_events("requests")
        backfill.run(lake.uri, "requests", str(source), spark=spark)
        found.append(table.scan(["event_id"]).read_all()["event_id"].to_pylist())
    assert sorted(found[0]) == sorted(found[1])
    assert [event_id.partition("/")[2] for event_id in sorted(found[0])] == ["0", "14"]


def test_rows_without_a_time_have_the_jobs_start(
    events: Table, spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    source = write(tmp_path / "in.ndjson", [b'{"event_id":"a"}'])
    backfill.run(lake.uri, "requests", str(source), "job", spark=spark, clock=ManualClock(start_us=1_234_567))
    (row,) = rows_of(events)
    assert row["ts"] == row["received_at"]
    assert row["ts"].timestamp() == 1.234567


def test_ingestion_knows_the_events_of_a_backfill_that_is_too_big_for_its_commit(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path
) -> None:
    count = id_files.IDS_IN_COMMIT_MAX + 5000
    report = fill(write(tmp_path / "in.ndjson", [event_of(n, day=1 + n % 2) for n in range(count)]))
    assert (report.rows, report.duplicates) == (count, 0)
    entry = lake.store.get(f"requests/_delta_log/{report.version:020}.json").splitlines()[0]
    assert len(entry) < 2000
    assert [info.size for info in lake.store.list("requests/_alluvia/window/ids/")] == [
        16 * count + 4 * 533 + 532 * 512
    ]

    other = event_of(8, event_id="e7")
    later = alluvia.connect(lake.uri)
    assert ingest(later, event_of(7, day=2), other, event_of(count), event_of(count - 1, day=2)) == (1, 2, 1)
    events.checkpoint()
    assert ingest(alluvia.connect(lake.uri), *(event_of(n, day=1 + n % 2) for n in range(0, count, 9999))) == (0, 14, 0)
    assert DeltaTable(f"{lake.uri.removeprefix('file://')}/requests").count() == events.count() == count + 1
