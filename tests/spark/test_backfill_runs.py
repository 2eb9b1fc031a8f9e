"""Backfills that run again, at once, that crash or take long: each file is loaded once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import alluvia
from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.errors import Invalid, MetadataChanged, TableNotFound, Unavailable
from alluvia.operations.transactions.lake_transaction import StagedTables
from alluvia_spark import backfill
from alluvia_spark.backfill_job import committing, execute, known_ids
from alluvia_spark.backfill_job.job import Report
from tests.spark import faults
from tests.spark.backfills import BROKEN, COLUMNS, event_of, ingest, numbers_of, rejects_of, rows_of, write
from tests.spark.backfills import events as events  # noqa: PLC0414 - a fixture
from tests.spark.backfills import fill as fill  # noqa: PLC0414 - a fixture

pytestmark = pytest.mark.slow


def _crash(*_: object) -> None:
    raise KeyboardInterrupt


def _keys(lake: Lake) -> set[str]:
    return {info.key for info in lake.store.list("")}


def test_a_second_run_of_a_job_changes_nothing(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path
) -> None:
    source = write(tmp_path / "in.ndjson", [event_of(1), event_of(2), *BROKEN])
    first = fill(source)
    keys = _keys(lake)
    again = fill(source)
    assert (first.already_applied, again.already_applied) == (False, True)
    assert again.version == first.version
    assert _keys(lake) == keys


def test_a_job_whose_rows_were_taken_back_loads_them_again(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path
) -> None:
    source = write(tmp_path / "in.ndjson", [event_of(1), event_of(2)])
    first = fill(source)
    fill(write(tmp_path / "other.ndjson", [event_of(3)]), "other")
    events.restore(version=first.version)
    assert fill(source).already_applied
    events.restore(version=0)
    assert numbers_of(events) == []
    assert (fill(source).rows, fill(tmp_path / "other.ndjson", "other").rows) == (2, 1)
    assert numbers_of(events) == [1, 2, 3]
    assert fill(source).already_applied
    events.restore(version=first.version)  # which holds the job's first rows
    assert numbers_of(events) == [1, 2]
    assert fill(source).already_applied


def test_another_job_loads_what_the_table_in_the_place_of_the_old_one_lacks(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_ids, "IDS_IN_COMMIT_MAX", 1)
    source = write(tmp_path / "in.ndjson", [event_of(1), event_of(2), event_of(3)])
    fill(source)
    kept = events.to_arrow(where="event_id = 'e1'")
    with lake.transaction() as tx:
        tx.create_table("requests", kept.schema, replace=True).append(kept)
    assert ingest(lake, event_of(1), event_of(2)) == (1, 1, 0)
    report = fill(source, "another")
    assert (report.rows, report.duplicates) == (1, 2)
    assert numbers_of(events) == [1, 2, 3]


def test_a_table_that_has_the_name_later_gets_no_rows(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "in.ndjson", [event_of(1), b"{broken"])

    def execute_and_replace(*args: Any) -> Any:
        outcome = execute.execute(*args)
        lake.drop_table("requests")
        lake.create_events("requests", COLUMNS)
        return outcome

    with monkeypatch.context() as patch:
        patch.setattr(backfill, "execute", execute_and_replace)
        with pytest.raises(TableNotFound, match="was dropped during the job"):
            fill(source)
    with pytest.raises(Invalid, match="belongs to a table of that name that is gone"):
        fill(source)
    assert len(lake["requests"].files) == 0
    assert fill(source, "another").rows == 1


def test_a_column_that_becomes_required_during_the_job_makes_it_start_again(
    events: Table, fill: Callable[..., Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "in.ndjson", [event_of(1)])

    def execute_and_constrain(*args: Any) -> Any:
        outcome = execute.execute(*args)
        events.lake.sql("ALTER TABLE requests ADD CONSTRAINT ok CHECK (status = 200)")
        return outcome

    with monkeypatch.context() as patch:
        patch.setattr(backfill, "execute", execute_and_constrain)
        with pytest.raises(MetadataChanged, match="run the job again"):
            fill(source)
    report = fill(source)
    assert (report.rows, report.rejects) == (0, 1)


def test_two_runs_of_a_job_at_once_give_one_copy(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "in.ndjson", [*(event_of(number) for number in range(100)), *BROKEN])
    both_written = threading.Barrier(2, timeout=120)

    def execute_and_wait(*args: Any) -> Any:
        outcome = execute.execute(*args)
        both_written.wait()
        return outcome

    monkeypatch.setattr(backfill, "execute", execute_and_wait)
    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(fill, [source, source]))
    assert sorted(report.already_applied for report in reports) == [False, True]
    assert [report.rows for report in reports] == [100, 100]
    assert numbers_of(events) == list(range(100))
    assert len(rejects_of(lake)) == len(BROKEN)
    assert sum(entry.operation == "WRITE" for entry in events.history()) == 1


def test_a_crash_before_the_commit_loses_and_repeats_nothing(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"
    write(
        folder / "a.ndjson",
        [event_of(1), event_of(2), *BROKEN, b'{"event_id":"e3","ts":"2026-01-01T00:00:00Z","n":"x"}'],
    )
    with monkeypatch.context() as patch:
        patch.setattr(StagedTables, "commit", _crash)
        with pytest.raises(KeyboardInterrupt):
            fill(folder)
    assert events.snapshot().version == 0
    assert not rejects_of(lake)
    written = {key for key in _keys(lake) if "/part-" in key and "_rejects" not in key}
    write(folder / "b.ndjson", [event_of(3), b"{late"])  # came after the job had begun: no part of it
    events.evolve(add={"n": "long"})  # by which e3 would be a reject, which in the job's first run it was not

    report = fill(folder)

    assert (report.rows, report.rejects, report.already_applied) == (3, 4, False)
    assert [(row["event_id"], row["properties"], row["n"]) for row in rows_of(events)] == [
        ("e1", '{"n":1}', None),
        ("e2", '{"n":2}', None),
        ("e3", '{"n":"x"}', None),
    ]
    assert len(rejects_of(lake)) == len(BROKEN)
    orphans = events.vacuum(timedelta(days=2), dry_run=True).orphans
    assert len(written) == 1
    assert not written & {f"requests/{file.path}" for file in events.snapshot().files}
    assert not orphans  # young files might still be committed

    clock = ManualClock(start_us=events.snapshot().timestamp_ms * 1000 + 3 * 86_400_000_000)
    later = alluvia.connect(lake.uri, clock=clock).table("requests")
    gone = {f"requests/{key}" for key in later.vacuum(timedelta(days=2), dry_run=True).orphans}
    assert gone == written | {key for key in _keys(lake) if "/_alluvia/scratch/" in key}


def test_spark_giving_up_is_reported_in_one_line_and_commits_nothing(
    events: Table, fill: Callable[..., Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "in.ndjson", [event_of(1)])
    (tmp_path / "is_a_file").touch()
    marker = tmp_path / "is_a_file" / "marker"
    with pytest.raises(Unavailable, match=r"^the Spark job failed: NotADirectoryError: .*$"):
        fill(source, stores=partial(faults.open_failing, marker, False))
    assert events.snapshot().version == 0


def test_a_run_takes_the_files_of_one_that_was_killed(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "in.ndjson", [*(event_of(n, day=1 + n % 3) for n in range(40)), *BROKEN])
    with monkeypatch.context() as patch:
        patch.setattr(StagedTables, "commit", _crash)
        with pytest.raises(KeyboardInterrupt):
            fill(source)
    files = {key for key in _keys(lake) if key.endswith(".parquet")}
    assert fill(source).rows == 40
    assert {key for key in _keys(lake) if key.endswith(".parquet")} == files
    assert numbers_of(events) == list(range(40))
    assert len(rejects_of(lake)) == len(BROKEN)

    events.restore(version=0)  # from now on, vacuum may take the files
    assert fill(source).rows == 40
    assert not files & {f"requests/{file.path}" for file in events.files}


def test_a_job_id_stands_for_one_source(events: Table, fill: Callable[..., Report], tmp_path: Path) -> None:
    source = write(tmp_path / "a.ndjson", [b"{broken"])
    other = write(tmp_path / "b.ndjson", [event_of(1)])
    fill(source, "one")
    assert fill(other, "two").rows == 1
    with pytest.raises(Invalid, match="belongs to the source"):
        fill(tmp_path / "c.ndjson", "one")


def test_a_job_that_took_so_long_that_vacuum_may_have_its_files_does_not_commit(
    events: Table, fill: Callable[..., Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()

    def slowly(*args: Any) -> Any:
        clock.advance(13 * 3600)
        return execute.execute(*args)

    monkeypatch.setattr(backfill, "execute", slowly)
    with pytest.raises(Unavailable, match="over 12 hours"):
        fill(write(tmp_path / "in.ndjson", [event_of(1)]), clock=clock)
    assert events.snapshot().version == 0


def test_a_job_that_slept_in_its_commit_starts_over(
    events: Table, fill: Callable[..., Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    tries: list[int] = []

    def slept(*args: Any) -> Any:
        if not tries:
            clock.advance(26 * 3600)
        tries.append(clock.now_ms())
        return committing.commit(*args)

    monkeypatch.setattr(backfill, "commit", slept)
    assert fill(write(tmp_path / "in.ndjson", [event_of(1)]), clock=clock).rows == 1
    assert len(tries) == 2
    assert events.count() == 1
