from __future__ import annotations

import gzip
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
from functools import partial
from hashlib import md5
from itertools import pairwise
from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import alluvia
from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.commit.event_window import id_files
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.skipping.predicate import Comparison
from alluvia.errors import Invalid, MetadataChanged, TableNotFound, Unavailable
from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import Limits
from alluvia.operations.transactions.lake_transaction import StagedTables
from alluvia_spark import backfill
from alluvia_spark.backfill_job import committing, execute, known_ids, plan
from alluvia_spark.backfill_job.job import Report
from alluvia_spark.sources import source as source_files
from alluvia_spark.sources.files import SourceOptions
from tests.cli.test_event_files import FORMS
from tests.spark import faults

pytestmark = pytest.mark.slow

ACCESS_LOG = Path(__file__).parents[2] / "events" / "data" / "access_log.ndjson.gz"
COLUMNS = pa.schema([("ip", pa.string()), ("status", pa.int64()), ("bytes", pa.int64())])
NDJSON = "application/x-ndjson"
BROKEN = [
    b"{broken",
    b'{"event_id":"r1","ts":"2015-05-17T10:00:00Z","status":"abc"}',
    b"[1]",
    b'{"event_id":"r2","event":5}',
]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return alluvia.connect(str(tmp_path / "lake"))


@pytest.fixture
def events(lake: Lake) -> Table:
    return lake.create_events("requests", COLUMNS)


@pytest.fixture
def fill(spark: SparkSession, lake: Lake) -> Callable[..., Report]:
    """Run a backfill into the lake's table `requests`."""

    def run(source: Path | str, job_id: str = "job", **options: Any) -> Report:
        return backfill.run(lake.uri, "requests", str(source), job_id, spark=spark, **options)

    return run


def _write(path: Path, lines: Sequence[bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    data = b"".join(line + b"\n" for line in lines)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


def _event(number: int, *, day: int = 1, event_id: str | None = None, **fields: object) -> bytes:
    body = {
        "event_id": event_id or f"e{number}",
        "ts": f"2026-01-{day:02}T00:00:00Z",
        "event": "e",
        "n": number,
        **fields,
    }
    return orjson.dumps(body)


def _at_day(table: Table, event_id: str, day: int) -> pa.Table:
    """Return a row that did not come by ingestion."""
    moment = datetime(2026, 1, day, tzinfo=UTC)
    row = {"event_id": event_id, "ts": moment, "received_at": moment}
    return pa.Table.from_pylist([row], schema=table.schema)


def _rows(table: Table, *without: str) -> list[dict[str, Any]]:
    rows = table.scan().read_all()
    return sorted(
        rows.drop_columns(list(without)).to_pylist(), key=lambda row: (str(row["event_id"]), str(row.get("source")))
    )


def _numbers(table: Table) -> list[int]:
    return sorted(orjson.loads(text)["n"] for text in table.scan(["properties"]).read_all()["properties"].to_pylist())


def _rejects(lake: Lake) -> list[tuple[str, bytes]]:
    rows = lake.table("requests/_rejects").scan(["reason", "raw"]).read_all().to_pylist()
    return sorted((row["reason"], row["raw"]) for row in rows)


def _crash(*_: object) -> None:
    raise KeyboardInterrupt


def _keys(lake: Lake) -> set[str]:
    return {info.key for info in lake.store.list("")}


def test_the_access_log_becomes_the_table_that_ingestion_makes_of_it(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path
) -> None:
    lines = gzip.decompress(ACCESS_LOG.read_bytes()).splitlines()
    lines[100:100] = BROKEN
    lines += lines[:50]
    source = _write(tmp_path / "access_log.ndjson.gz", lines)
    other = alluvia.connect(str(tmp_path / "other"))
    posted = other.create_events("requests", COLUMNS)
    body = split(b"\n".join(lines), content_type=NDJSON, content_encoding=None, limits=Limits())
    answer = ingest_batch(other.catalog, "requests", body.events, body.rejects, arrival_us=1)

    report = fill(source)

    assert (report.rows, report.duplicates, report.rejects) == (9999, 50, 4)
    assert (answer.accepted, answer.duplicates, answer.rejected) == (10049, 50, 4)
    assert _rows(events, "received_at") == _rows(posted, "received_at")
    assert _rejects(lake) == _rejects(other)
    assert report.version == events.snapshot().version == 2  # the transaction's claim, and its rows


def test_every_file_holds_one_day_sorted_with_statistics(
    lake: Lake, events: Table, fill: Callable[..., Report]
) -> None:
    report = fill(ACCESS_LOG)
    files = list(events.snapshot().files)
    assert report.files == len(files)
    assert report.bytes == sum(file.size for file in files)
    assert sorted({file.tags["alluvia.partition"] for file in files}) == [
        f'{{"day(ts)":"2015-05-{day}"}}' for day in (17, 18, 19, 20)
    ]
    for file in files:
        stats = orjson.loads(file.stats or "{}")
        assert stats["minValues"]["ts"][:10] == stats["maxValues"]["ts"][:10]
        stamps = pq.read_table(lake.store.url(events.snapshot().key(file)) or "")["ts"].to_pylist()
        assert stamps == sorted(stamps)
        assert len(stamps) == stats["numRecords"]


def test_another_reader_sees_the_same_rows(lake: Lake, events: Table, fill: Callable[..., Report]) -> None:
    fill(ACCESS_LOG)
    theirs = DeltaTable(f"{lake.uri}/requests").to_pyarrow_table()
    key = [("event_id", "ascending")]
    ours = events.scan().read_all().sort_by(key)
    assert theirs.sort_by(key).select(ours.schema.names).cast(ours.schema).equals(ours)


def test_a_second_run_of_a_job_changes_nothing(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path
) -> None:
    source = _write(tmp_path / "in.ndjson", [_event(1), _event(2), *BROKEN])
    first = fill(source)
    keys = _keys(lake)
    again = fill(source)
    assert (first.already_applied, again.already_applied) == (False, True)
    assert again.version == first.version
    assert _keys(lake) == keys


def test_a_job_whose_rows_were_taken_back_loads_them_again(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path
) -> None:
    source = _write(tmp_path / "in.ndjson", [_event(1), _event(2)])
    first = fill(source)
    fill(_write(tmp_path / "other.ndjson", [_event(3)]), "other")
    events.restore(version=first.version)
    assert fill(source).already_applied
    events.restore(version=0)
    assert _numbers(events) == []
    assert (fill(source).rows, fill(tmp_path / "other.ndjson", "other").rows) == (2, 1)
    assert _numbers(events) == [1, 2, 3]
    assert fill(source).already_applied
    events.restore(version=first.version)  # which holds the job's first rows
    assert _numbers(events) == [1, 2]
    assert fill(source).already_applied


def test_another_job_loads_what_the_table_in_the_place_of_the_old_one_lacks(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_ids, "IDS_IN_COMMIT_MAX", 1)
    source = _write(tmp_path / "in.ndjson", [_event(1), _event(2), _event(3)])
    fill(source)
    kept = events.to_arrow(where="event_id = 'e1'")
    with lake.transaction() as tx:
        tx.create_table("requests", kept.schema, replace=True).append(kept)
    assert _ingest(lake, _event(1), _event(2)) == (1, 1, 0)
    report = fill(source, "another")
    assert (report.rows, report.duplicates) == (1, 2)
    assert _numbers(events) == [1, 2, 3]


def test_a_table_that_has_the_name_later_gets_no_rows(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _write(tmp_path / "in.ndjson", [_event(1), b"{broken"])

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
    source = _write(tmp_path / "in.ndjson", [_event(1)])

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


def test_rows_that_a_table_refuses_are_the_rejects_that_ingestion_makes_of_them(
    lake: Lake, fill: Callable[..., Report], tmp_path: Path
) -> None:
    schema = pa.schema(
        [
            pa.field("event_id", pa.string(), nullable=False),
            pa.field("status", pa.int64(), nullable=False),
            ("place", pa.string()),
            ("source", pa.string()),
        ]
    )
    lines = [
        orjson.dumps(fields)
        for fields in (
            {"event_id": "good", "status": 200, "place": "a"},
            {"event_id": "null", "place": "a"},
            {"event_id": "broken", "status": 99, "place": "a"},
            {"event_id": "unknown", "status": 200, "place": "a", "source": "", "more": 1},
            {"event_id": "place", "status": 200, "place": ""},
            {"event_id": "both", "status": 7, "place": ""},
            {"event_id": "good", "status": 7, "place": "a"},
            {"event_id": "last", "status": 300, "place": None},
        )
    ]
    other = alluvia.connect(str(tmp_path / "other"))
    tables = []
    for each in (lake, other):
        tables.append(each.create_table("requests", schema, partition_by=["place"]))
        each.sql("ALTER TABLE requests ADD CONSTRAINT valid CHECK (status >= 100)")
    body = split(b"\n".join(lines), content_type=NDJSON, content_encoding=None, limits=Limits())
    answer = ingest_batch(other.catalog, "requests", body.events, body.rejects, arrival_us=1)

    report = fill(_write(tmp_path / "in.ndjson", lines))

    assert (report.rows, report.rejects) == (answer.stored, answer.rejected) == (2, 6)
    assert _rows(tables[0]) == _rows(tables[1])
    assert _rejects(lake) == _rejects(other)


def test_two_runs_of_a_job_at_once_give_one_copy(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _write(tmp_path / "in.ndjson", [*(_event(number) for number in range(100)), *BROKEN])
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
    assert _numbers(events) == list(range(100))
    assert len(_rejects(lake)) == len(BROKEN)
    assert sum(entry.operation == "WRITE" for entry in events.history()) == 1


def test_a_crash_before_the_commit_loses_and_repeats_nothing(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "in"
    _write(
        folder / "a.ndjson", [_event(1), _event(2), *BROKEN, b'{"event_id":"e3","ts":"2026-01-01T00:00:00Z","n":"x"}']
    )
    with monkeypatch.context() as patch:
        patch.setattr(StagedTables, "commit", _crash)
        with pytest.raises(KeyboardInterrupt):
            fill(folder)
    assert events.snapshot().version == 0
    assert not _rejects(lake)
    written = {key for key in _keys(lake) if "/part-" in key and "_rejects" not in key}
    _write(folder / "b.ndjson", [_event(3), b"{late"])  # came after the job had begun: no part of it
    events.evolve(add={"n": "long"})  # by which e3 would be a reject, which in the job's first run it was not

    report = fill(folder)

    assert (report.rows, report.rejects, report.already_applied) == (3, 4, False)
    assert [(row["event_id"], row["properties"], row["n"]) for row in _rows(events)] == [
        ("e1", '{"n":1}', None),
        ("e2", '{"n":2}', None),
        ("e3", '{"n":"x"}', None),
    ]
    assert len(_rejects(lake)) == len(BROKEN)
    orphans = events.vacuum(timedelta(days=2), dry_run=True).orphans
    assert len(written) == 1
    assert not written & {f"requests/{file.path}" for file in events.snapshot().files}
    assert not orphans  # young files might still be committed

    clock = ManualClock(start_us=events.snapshot().timestamp_ms * 1000 + 3 * 86_400_000_000)
    later = alluvia.connect(lake.uri, clock=clock).table("requests")
    gone = {f"requests/{key}" for key in later.vacuum(timedelta(days=2), dry_run=True).orphans}
    assert gone == written | {key for key in _keys(lake) if "/_alluvia/scratch/" in key}


@pytest.mark.parametrize("dies", [False, True], ids=["error", "death"])
def test_a_task_that_fails_after_its_files_are_written_is_tried_again(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path, dies: bool
) -> None:
    source = _write(tmp_path / "in.ndjson", [*(_event(number, day=1 + number % 3) for number in range(90)), *BROKEN])
    marker = tmp_path / "failed"
    report = fill(source, stores=partial(faults.open_failing, marker, dies))
    assert marker.exists()
    assert (report.rows, report.rejects) == (90, 4)
    assert _numbers(events) == list(range(90))
    assert len(_rejects(lake)) == len(BROKEN)


def test_spark_giving_up_is_reported_in_one_line_and_commits_nothing(
    events: Table, fill: Callable[..., Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _write(tmp_path / "in.ndjson", [_event(1)])
    (tmp_path / "is_a_file").touch()
    marker = tmp_path / "is_a_file" / "marker"
    with pytest.raises(Unavailable, match=r"^the Spark job failed: NotADirectoryError: .*$"):
        fill(source, stores=partial(faults.open_failing, marker, False))
    assert events.snapshot().version == 0


def test_files_directories_and_globs_plain_and_gzip(events: Table, fill: Callable[..., Report], tmp_path: Path) -> None:
    folder = tmp_path / "in"
    _write(folder / "a.ndjson", [_event(1)])
    _write(folder / "b.ndjson.gz", [_event(2)])
    _write(folder / "deep" / "c.ndjson.gz", [_event(3)])
    _write(folder / "_SUCCESS", [])
    assert fill(folder / "*.gz", "glob").rows == 1
    assert _numbers(events) == [2]
    assert fill(folder, "directory").rows == 2
    assert _numbers(events) == [1, 2, 3]
    report = fill((folder / "a.ndjson").as_uri(), "file")
    assert (report.rows, report.duplicates) == (0, 1)


def test_events_that_the_table_holds_are_duplicates(lake: Lake, fill: Callable[..., Report], tmp_path: Path) -> None:
    events = lake.create_events("requests", COLUMNS, properties={"delta.enableDeletionVectors": "true"})
    fill(_write(tmp_path / "one.ndjson", [*(_event(n, day=1 + n % 3) for n in range(40)), _event(40, source="s")]))
    events.append(_at_day(events, "typed", 2))
    events.delete("event_id IN ('e1', 'e2')")  # which may come again
    lines = [
        *(_event(n, day=1 + n % 3) for n in range(30, 45)),
        _event(40, source="s"),
        _event(1, day=2),
        _event(2, day=3),
        _event(50, day=2, event_id="typed"),
        _event(51, day=9, event_id="e3"),
    ]
    report = fill(_write(tmp_path / "two.ndjson", lines), "two")
    assert (report.rows, report.duplicates, report.rejects, report.conflicting) == (7, 12, 1, 1)
    known = [(f"e{n}", None) for n in (*range(40), *range(40, 45))] + [("e40", "s"), ("typed", None)]
    assert sorted(map(str, known)) == sorted(str((row["event_id"], row["source"])) for row in _rows(events))
    elsewhere = _write(tmp_path / "three.ndjson", [_event(52, day=9, event_id="e3")])
    assert fill(elsewhere, "three").rows == 1  # files of other days are not looked at


def _ingest(lake: Lake, *lines: bytes) -> tuple[int, int, int]:
    body = split(b"\n".join([*lines, b""]), content_type=NDJSON, content_encoding=None, limits=Limits())
    answer = ingest_batch(lake.catalog, "requests", body.events, body.rejects, arrival_us=1)
    return answer.stored, answer.duplicates, answer.conflicting


def test_ingestion_knows_the_events_of_a_backfill(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path
) -> None:
    fill(_write(tmp_path / "in.ndjson", [*(_event(n, day=1 + n % 3) for n in range(40)), *BROKEN]))
    other = _event(8, event_id="e7")
    assert _ingest(lake, _event(7, day=2), other, _event(40), _event(7, day=2, source="s")) == (2, 1, 1)
    assert len(_rejects(lake)) == len(BROKEN) + 1
    later = alluvia.connect(lake.uri)
    assert _ingest(later, _event(8, day=3)) == (0, 1, 0)


@pytest.mark.parametrize("ids_in_commit", [1000, 0])
def test_events_that_are_ingested_during_a_job_are_left_out(
    lake: Lake,
    events: Table,
    fill: Callable[..., Report],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    ids_in_commit: int,
) -> None:
    source = _write(tmp_path / "in.ndjson", [*(_event(n, day=1 + n % 3) for n in range(40)), *BROKEN])
    runs: list[int] = []

    def execute_and_ingest(*args: Any) -> Any:
        outcome = execute.execute(*args)
        runs.append(outcome.counts.rows - outcome.counts.duplicates)
        live = _event(5, day=3) if len(runs) == 1 else _event(100 + len(runs))
        assert _ingest(alluvia.connect(lake.uri), live) == (1, 0, 0)
        return outcome

    monkeypatch.setattr(backfill, "execute", execute_and_ingest)
    monkeypatch.setattr(known_ids, "IDS_IN_COMMIT_MAX", ids_in_commit)
    report = fill(source)
    assert runs == [40, 39]
    assert (report.rows, report.duplicates) == (39, 1)
    assert _numbers(events) == [*range(40), 102]
    assert len(_rejects(lake)) == len(BROKEN)


def test_a_run_takes_the_files_of_one_that_was_killed(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _write(tmp_path / "in.ndjson", [*(_event(n, day=1 + n % 3) for n in range(40)), *BROKEN])
    with monkeypatch.context() as patch:
        patch.setattr(StagedTables, "commit", _crash)
        with pytest.raises(KeyboardInterrupt):
            fill(source)
    files = {key for key in _keys(lake) if key.endswith(".parquet")}
    assert fill(source).rows == 40
    assert {key for key in _keys(lake) if key.endswith(".parquet")} == files
    assert _numbers(events) == list(range(40))
    assert len(_rejects(lake)) == len(BROKEN)

    events.restore(version=0)  # from now on, vacuum may take the files
    assert fill(source).rows == 40
    assert not files & {f"requests/{file.path}" for file in events.files}


def test_a_big_file_is_read_and_written_by_many_tasks(
    lake: Lake, fill: Callable[..., Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = lake.create_events("requests", COLUMNS, properties={"alluvia.target_file_size": "5 kB"})
    count = 6000
    lines = [_event(number, day=1 + (number > 5500), text="x" * 50) for number in range(count)]
    source = _write(tmp_path / "in.ndjson", [*lines, *lines[::2]])
    monkeypatch.setattr(execute, "SPLIT_BYTES_MIN", 50_000)
    monkeypatch.setattr(source_files, "CUT_BYTES_MIN", 50_000)
    monkeypatch.setattr(plan, "BUCKET_BYTES_MIN", 100_000)
    monkeypatch.setattr(plan, "BUCKET_BYTES_MAX", 200_000)
    report = fill(source)
    by_day: dict[str, int] = {}
    for file in events.snapshot().files:
        day = file.tags["alluvia.partition"]
        by_day[day] = by_day.get(day, 0) + 1
    assert sorted(by_day.values())[0] == 1
    assert sorted(by_day.values())[1] > 3
    assert (report.rows, report.duplicates) == (count, count // 2)
    assert _numbers(events) == list(range(count))


def test_many_days_become_files_of_ranges_of_days(lake: Lake, fill: Callable[..., Report], tmp_path: Path) -> None:
    """More than 100 days gave up `day(ts)`: a query of one day read everything."""
    target = 20_000
    events = lake.create_events("requests", COLUMNS, properties={"alluvia.target_file_size": f"{target}"})
    first = date(2024, 1, 1)
    lines = [
        orjson.dumps(
            {
                "event_id": md5(str(n).encode()).hexdigest(),  # which no encoding makes small
                "ts": f"{first + timedelta(days=n % 400)}T00:00:01Z",
                "event": "e",
                "n": n,
            }
        )
        for n in range(40_000)
    ]
    report = fill(_write(tmp_path / "in.ndjson", lines))
    assert (report.rows, report.duplicates) == (40_000, 0)
    files = sorted(events.snapshot().files, key=lambda file: file.tags["alluvia.partition"])
    days = [orjson.loads(file.tags["alluvia.partition"])["day(ts)"] for file in files]
    assert all(one[1] < other[0] for one, other in pairwise(days))
    assert (days[0][0], days[-1][1]) == ("2024-01-01", "2025-02-03")
    assert all(0.75 * target <= file.size <= 1.25 * target for file in files[:-1]), sorted(file.size for file in files)
    assert len(files) > 12
    moment = datetime(2024, 3, 5, tzinfo=UTC)
    assert len(Scan(events.snapshot(), Comparison(("ts",), "=", moment + timedelta(seconds=1))).files) == 1
    assert _numbers(events) == list(range(40_000))


def test_one_id_in_two_partitions_is_one_row_the_first(
    events: Table, fill: Callable[..., Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        _event(0, day=2, event_id="same"),
        *(_event(number, day=1 + number % 4) for number in range(1, 400)),
        _event(400, day=1, event_id="same"),
        _event(401, day=2, event_id="same"),
        _event(400, day=3, event_id="same", source="other"),
    ]
    monkeypatch.setattr(execute, "SPLIT_BYTES_MIN", 3000)
    monkeypatch.setattr(source_files, "CUT_BYTES_MIN", 3000)
    monkeypatch.setattr(id_files, "RANGE_IDS", 100)
    report = fill(_write(tmp_path / "in.ndjson", lines))
    assert (report.rows, report.duplicates, report.rejects, report.conflicting) == (401, 0, 2, 2)
    assert _numbers(events) == list(range(401))


def test_an_id_with_other_content_is_the_reject_that_ingestion_makes_of_it(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [
        *(_event(number, day=1 + number % 4) for number in range(200)),
        b"",
        _event(7, day=4),  # once more
        b'{"n": 7, "event": "e", "ts": "2026-01-04T00:00:00Z", "event_id": "e7"}',  # once more, written otherwise
        _event(1000, day=4, event_id="e7"),  # other content in the same partition
        _event(1001, day=2, event_id="e7"),
        _event(1001, day=2, event_id="e7"),
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

    report = fill(_write(tmp_path / "in.ndjson", lines))

    assert (report.rows, report.duplicates, report.rejects, report.conflicting) == (202, 2, 4, 3)
    assert (answer.stored, answer.duplicates, answer.rejected, answer.conflicting) == (202, 2, 4, 3)
    received = ("received_at", "ts")
    assert _rows(events, *received) == _rows(posted, *received)
    assert _rejects(lake) == _rejects(other)
    assert len(_rejects(lake)) == 3
    names = [table.scan(["event_id"]).read_all() for table in (lake["requests/_rejects"], other["requests/_rejects"])]
    assert sorted(names[0]["event_id"].to_pylist()) == sorted(names[1]["event_id"].to_pylist())


def test_equal_lines_without_an_id_are_two_events_with_ids_that_never_change(
    spark: SparkSession, tmp_path: Path
) -> None:
    source = _write(tmp_path / "in.ndjson.gz", [b'{"event":"x"}', b'{"event":"x"}'])
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
    source = _write(tmp_path / "in.ndjson", [b'{"event_id":"a"}'])
    backfill.run(lake.uri, "requests", str(source), "job", spark=spark, clock=ManualClock(start_us=1_234_567))
    (row,) = _rows(events)
    assert row["ts"] == row["received_at"]
    assert row["ts"].timestamp() == 1.234567


def test_typed_columns_and_partition_columns(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    columns = {
        "event_id": "string",
        "country": "string",
        "day": "date",
        "at": "timestamp_ntz",
        "price": "decimal(10,2)",
        "raw": "binary",
        "ok": "boolean",
    }
    schema = pa.schema(
        [*lake.create_table("types", columns).snapshot().schema, ("tags", pa.list_(pa.struct([("k", pa.string())])))]
    )
    table = lake.create_table("requests", schema, partition_by=["country", "month(day)"], sort_by=["price"])
    lines = [
        b'{"event_id":"a","country":"de","day":"2026-01-31","at":"2026-01-01T01:02:03","price":1.10,"raw":"AAE=","ok":true}',
        b'{"event_id":"b","country":null,"day":"2026-02-01","price":"0.01","tags":[{"k":"x"},{}]}',
        b'{"event_id":"c","country":"d/e f","price":1.101}',
    ]
    report = backfill.run(lake.uri, "requests", str(_write(tmp_path / "in.ndjson", lines)), spark=spark)
    rows = _rows(table)
    assert (report.rows, report.rejects, report.files) == (2, 1, 2)
    assert (rows[0]["country"], rows[0]["day"], rows[0]["raw"]) == ("de", date(2026, 1, 31), b"\x00\x01")
    assert (rows[1]["country"], rows[1]["tags"], rows[1]["ok"]) == (None, [{"k": "x"}, {"k": None}], None)
    assert [str(row["price"]) for row in rows] == ["1.10", "0.01"]


def test_rows_are_clustered(lake: Lake, spark: SparkSession, tmp_path: Path) -> None:
    schema = {"event_id": "string", "user": "long", "page": "string"}
    properties = {"alluvia.row_group_rows": "100"}
    table = lake.create_table("visits", schema, cluster_by=["user", "page"], properties=properties)
    events = [(f"e{n}", n * 7919 % 2500, f"/pages/{n * 104_729 % 2500:05}") for n in range(2500)]
    lines = [orjson.dumps(dict(zip(schema, event, strict=True))) for event in events]
    backfill.run(lake.uri, "visits", str(_write(tmp_path / "in.ndjson", lines)), spark=spark)
    groups = 0
    overlapping = {"user": 0, "page": 0}
    for file in table.files:
        metadata = pq.read_metadata(str(lake.store.local_path(table.snapshot().key(file))))
        groups += metadata.num_row_groups
        for at in range(metadata.num_row_groups):
            for place, (name, value) in enumerate((("user", 1200), ("page", "/pages/01200")), start=1):
                bounds = metadata.row_group(at).column(place).statistics
                assert bounds is not None
                overlapping[name] += bounds.min <= value <= bounds.max
    assert groups >= 25
    assert all(count <= groups / 3 for count in overlapping.values())


def test_nothing_but_blank_lines_is_a_job_that_is_done(
    events: Table, fill: Callable[..., Report], tmp_path: Path
) -> None:
    source = _write(tmp_path / "in.ndjson", [b"", b"  "])
    report = fill(source)
    assert (report.rows, report.rejects, report.files, report.already_applied) == (0, 0, 0, False)
    assert fill(source).already_applied


def test_a_bad_file_fails_the_job_or_is_a_reject(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    _write(folder / "good.ndjson", [_event(1), b"{broken"])
    bad = folder / "bad.ndjson.gz"
    bad.write_bytes(gzip.compress(b"".join(_event(n) + b"\n" for n in range(2, 20_002)))[:-2000])
    names = [str(folder / name) for name in ("gone.csv", "bad.ndjson.gz", "good.ndjson")]
    source = _write(tmp_path / "list", [name.encode() for name in names])

    advice = "repair the source and start a job with another job_id, or set on_bad_file to reject"
    with pytest.raises(Invalid, match=rf"(bad\.ndjson\.gz cannot be .*damaged.*|gone\.csv is missing): {advice}"):
        fill(source, reading=SourceOptions(is_list=True), attempt=1)
    assert events.snapshot().version == 0
    assert not _rejects(lake)
    with pytest.raises(Invalid, match=f"{advice}.*earlier try of attempt 1: raise attempt to run"):
        backfill.run(lake.uri, "requests", str(source), "job", reading=SourceOptions(is_list=True), attempt=1)

    report = fill(source, reading=SourceOptions(is_list=True, on_bad_file="reject"), attempt=2)
    kept = (report.rows or 0) - 1
    assert 19_000 < kept < 20_000
    assert report.rejects == 3
    rejects = {raw: reason for reason, raw in _rejects(lake)}
    assert rejects.pop(bad.as_uri().encode()).startswith("the file cannot be read further: the gzip data is damaged (")
    assert rejects.pop((folder / "gone.csv").as_uri().encode()) == "the file is missing"
    assert list(rejects) == [b"{broken"]
    assert _numbers(events) == list(range(1, kept + 2))


def test_a_file_that_is_rewritten_before_a_later_run_fails_the_job(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = _write(tmp_path / "a.ndjson", [_event(1)])

    def fail(*_args: Any) -> Any:
        raise Unavailable("no Spark")

    with monkeypatch.context() as patch:
        patch.setattr(backfill, "execute", fail)
        with pytest.raises(Unavailable):
            fill(source)
    _write(source, [_event(2)])
    with pytest.raises(Invalid, match=r"a\.ndjson has changed since the job began: start a job with another job_id"):
        fill(source, reading=SourceOptions(on_bad_file="reject"))
    assert events.snapshot().version == 0


def test_files_of_every_format_and_the_fields_of_their_folders(
    events: Table, fill: Callable[..., Report], tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    every = [{"event_id": f"{name}{n}", "event": "e", "n": n} for n, name in enumerate(FORMS) for _ in range(3)]
    for n, (name, form) in enumerate(FORMS.items()):
        path = folder / f"status={200 + n}" / name
        path.parent.mkdir(parents=True)
        path.write_bytes(form(every[n * 3 : n * 3 + 3]))
    report = fill(f"{folder}/**/*.{{ndjson,json,gz,zst,csv,parquet}}", reading=SourceOptions(hive=True))
    assert (report.rows, report.duplicates, report.rejects) == (len(FORMS), 2 * len(FORMS), 0)
    assert {row["event_id"]: row["status"] for row in _rows(events)} == {
        f"{name}{n}": 200 + n for n, name in enumerate(FORMS)
    }


def test_a_job_that_starts_spark_has_java_compile_little(
    lake: Lake, events: Table, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its optimising compiler took half of the time of a job of 150 MB."""
    asked: list[dict[str, str]] = []

    @contextmanager
    def session(name: str, *, settings: dict[str, str]) -> Iterator[SparkSession]:
        asked.append(settings)
        yield spark

    monkeypatch.setattr(backfill, "session", session)
    report = backfill.run(lake.uri, events.name, str(_write(tmp_path / "in.ndjson", [_event(1)])))
    assert report.rows == 1
    assert asked == [{"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1"}]


def test_a_job_id_stands_for_one_source(events: Table, fill: Callable[..., Report], tmp_path: Path) -> None:
    source = _write(tmp_path / "a.ndjson", [b"{broken"])
    other = _write(tmp_path / "b.ndjson", [_event(1)])
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
        fill(_write(tmp_path / "in.ndjson", [_event(1)]), clock=clock)
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
    assert fill(_write(tmp_path / "in.ndjson", [_event(1)]), clock=clock).rows == 1
    assert len(tries) == 2
    assert events.count() == 1


def test_what_cannot_be_backfilled(lake: Lake, fill: Callable[..., Report], tmp_path: Path) -> None:
    with pytest.raises(TableNotFound):
        fill(tmp_path)
    with pytest.raises(Invalid, match="exists only in this process"):
        backfill.run("memory://a", "requests", str(tmp_path))
    lake.create_table("requests", {"n": "long"})
    with pytest.raises(Invalid, match="event_id"):
        fill(_write(tmp_path / "in.ndjson", [b"{}"]))


def test_ingestion_knows_the_events_of_a_backfill_that_is_too_big_for_its_commit(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path
) -> None:
    count = id_files.IDS_IN_COMMIT_MAX + 5000
    report = fill(_write(tmp_path / "in.ndjson", [_event(n, day=1 + n % 2) for n in range(count)]))
    assert (report.rows, report.duplicates) == (count, 0)
    entry = lake.store.get(f"requests/_delta_log/{report.version:020}.json").splitlines()[0]
    assert len(entry) < 2000
    assert [info.size for info in lake.store.list("requests/_alluvia/window/ids/")] == [
        16 * count + 4 * 533 + 532 * 512
    ]

    other = _event(8, event_id="e7")
    later = alluvia.connect(lake.uri)
    assert _ingest(later, _event(7, day=2), other, _event(count), _event(count - 1, day=2)) == (1, 2, 1)
    events.checkpoint()
    assert _ingest(alluvia.connect(lake.uri), *(_event(n, day=1 + n % 2) for n in range(0, count, 9999))) == (0, 14, 0)
    assert DeltaTable(f"{lake.uri.removeprefix('file://')}/requests").count() == events.count() == count + 1
