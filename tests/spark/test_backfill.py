from __future__ import annotations

import gzip
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, timedelta
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
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.skipping.predicate import Comparison
from alluvia.errors import Invalid, TableNotFound, Unavailable
from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import Limits
from alluvia_spark import backfill
from alluvia_spark.backfill_job import execute, plan
from alluvia_spark.backfill_job.job import Report
from alluvia_spark.sources import source as source_files
from alluvia_spark.sources.files import SourceOptions
from tests.cli.event_files import FORMS
from tests.spark.backfills import BROKEN, COLUMNS, NDJSON, event_of, numbers_of, rejects_of, rows_of, write
from tests.spark.backfills import events as events  # noqa: PLC0414 - a fixture
from tests.spark.backfills import fill as fill  # noqa: PLC0414 - a fixture

pytestmark = pytest.mark.slow

ACCESS_LOG = Path(__file__).parents[2] / "events" / "data" / "access_log.ndjson.gz"


def test_the_access_log_becomes_the_table_that_ingestion_makes_of_it(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path
) -> None:
    lines = gzip.decompress(ACCESS_LOG.read_bytes()).splitlines()
    lines[100:100] = BROKEN
    lines += lines[:50]
    source = write(tmp_path / "access_log.ndjson.gz", lines)
    other = alluvia.connect(str(tmp_path / "other"))
    posted = other.create_events("requests", COLUMNS)
    body = split(b"\n".join(lines), content_type=NDJSON, content_encoding=None, limits=Limits())
    answer = ingest_batch(other.catalog, "requests", body.events, body.rejects, arrival_us=1)

    report = fill(source)

    assert (report.rows, report.duplicates, report.rejects) == (9999, 50, 4)
    assert (answer.accepted, answer.duplicates, answer.rejected) == (10049, 50, 4)
    assert rows_of(events, "received_at") == rows_of(posted, "received_at")
    assert rejects_of(lake) == rejects_of(other)
    assert report.version == events.snapshot().version == 2  # the transaction's claim, and its rows
    _every_file_holds_one_day_sorted_with_statistics(lake, events, report)
    theirs = DeltaTable(f"{lake.uri}/requests").to_pyarrow_table()
    key = [("event_id", "ascending")]
    ours = events.scan().read_all().sort_by(key)
    assert theirs.sort_by(key).select(ours.schema.names).cast(ours.schema).equals(ours)


def _every_file_holds_one_day_sorted_with_statistics(lake: Lake, events: Table, report: Report) -> None:
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

    report = fill(write(tmp_path / "in.ndjson", lines))

    assert (report.rows, report.rejects) == (answer.stored, answer.rejected) == (2, 6)
    assert rows_of(tables[0]) == rows_of(tables[1])
    assert rejects_of(lake) == rejects_of(other)


def test_files_directories_and_globs_plain_and_gzip(events: Table, fill: Callable[..., Report], tmp_path: Path) -> None:
    folder = tmp_path / "in"
    write(folder / "a.ndjson", [event_of(1)])
    write(folder / "b.ndjson.gz", [event_of(2)])
    write(folder / "deep" / "c.ndjson.gz", [event_of(3)])
    write(folder / "_SUCCESS", [])
    assert fill(folder / "*.gz", "glob").rows == 1
    assert numbers_of(events) == [2]
    assert fill(folder, "directory").rows == 2
    assert numbers_of(events) == [1, 2, 3]
    report = fill((folder / "a.ndjson").as_uri(), "file")
    assert (report.rows, report.duplicates) == (0, 1)


def test_a_big_file_is_read_and_written_by_many_tasks(
    lake: Lake, fill: Callable[..., Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = lake.create_events("requests", COLUMNS, properties={"alluvia.target_file_size": "5 kB"})
    count = 6000
    lines = [event_of(number, day=1 + (number > 5500), text="x" * 50) for number in range(count)]
    source = write(tmp_path / "in.ndjson", [*lines, *lines[::2]])
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
    assert numbers_of(events) == list(range(count))


def test_many_days_become_files_of_ranges_of_days(lake: Lake, fill: Callable[..., Report], tmp_path: Path) -> None:
    """More than 100 days gave up `day(ts)`: a query of one day read everything."""
    target = 20_000
    events = lake.create_events("requests", COLUMNS, properties={"alluvia.target_file_size": f"{target}"})
    first = date(2024, 1, 1)
    lines = [
        orjson.dumps(
            {
                "event_id": md5(str(n).encode()).hexdigest(),  # which no encoding makes small
                "ts": f"{first + timedelta(days=n % 200)}T00:00:01Z",
                "event": "e",
                "n": n,
            }
        )
        for n in range(20_000)
    ]
    report = fill(write(tmp_path / "in.ndjson", lines))
    assert (report.rows, report.duplicates) == (20_000, 0)
    files = sorted(events.snapshot().files, key=lambda file: file.tags["alluvia.partition"])
    days = [orjson.loads(file.tags["alluvia.partition"])["day(ts)"] for file in files]
    assert all(one[1] < other[0] for one, other in pairwise(days))
    assert (days[0][0], days[-1][1]) == ("2024-01-01", "2024-07-18")
    assert all(0.75 * target <= file.size <= 1.25 * target for file in files[:-1]), sorted(file.size for file in files)
    assert len(files) > 6
    moment = datetime(2024, 3, 5, tzinfo=UTC)
    assert len(Scan(events.snapshot(), Comparison(("ts",), "=", moment + timedelta(seconds=1))).files) == 1
    assert numbers_of(events) == list(range(20_000))


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
    lake.create_schema("bronze")
    table = lake.create_table("bronze.requests", schema, partition_by=["country", "month(day)"], sort_by=["price"])
    lines = [
        b'{"event_id":"a","country":"de","day":"2026-01-31","at":"2026-01-01T01:02:03","price":1.10,"raw":"AAE=","ok":true}',
        b'{"event_id":"b","country":null,"day":"2026-02-01","price":"0.01","tags":[{"k":"x"},{}]}',
        b'{"event_id":"c","country":"d/e f","price":1.101}',
    ]
    source = str(write(tmp_path / "in.ndjson", lines))
    with pytest.raises(Invalid, match="events go to a table, not to its rejects"):
        backfill.run(lake.uri, "bronze.requests._rejects", source, spark=spark)
    report = backfill.run(lake.uri, "memory.bronze.requests", source, spark=spark)
    assert report.table == "bronze.requests"
    rows = rows_of(table)
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
    backfill.run(lake.uri, "visits", str(write(tmp_path / "in.ndjson", lines)), spark=spark)
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
    source = write(tmp_path / "in.ndjson", [b"", b"  "])
    report = fill(source)
    assert (report.rows, report.rejects, report.files, report.already_applied) == (0, 0, 0, False)
    assert fill(source).already_applied


def test_a_bad_file_fails_the_job_or_is_a_reject(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path
) -> None:
    folder = tmp_path / "in"
    write(folder / "good.ndjson", [event_of(1), b"{broken"])
    bad = folder / "bad.ndjson.gz"
    bad.write_bytes(gzip.compress(b"".join(event_of(n) + b"\n" for n in range(2, 20_002)))[:-2000])
    names = [str(folder / name) for name in ("gone.csv", "bad.ndjson.gz", "good.ndjson")]
    source = write(tmp_path / "list", [name.encode() for name in names])

    advice = "repair the source and start a job with another job_id, or set on_bad_file to reject"
    with pytest.raises(Invalid, match=rf"(bad\.ndjson\.gz cannot be .*damaged.*|gone\.csv is missing): {advice}"):
        fill(source, reading=SourceOptions(is_list=True), attempt=1)
    assert events.snapshot().version == 0
    assert not rejects_of(lake)
    with pytest.raises(Invalid, match=f"{advice}.*earlier try of attempt 1: raise attempt to run"):
        backfill.run(lake.uri, "requests", str(source), "job", reading=SourceOptions(is_list=True), attempt=1)

    report = fill(source, reading=SourceOptions(is_list=True, on_bad_file="reject"), attempt=2)
    kept = (report.rows or 0) - 1
    assert 19_000 < kept < 20_000
    assert report.rejects == 3
    rejects = {raw: reason for reason, raw in rejects_of(lake)}
    assert rejects.pop(bad.as_uri().encode()).startswith("the file cannot be read further: the gzip data is damaged (")
    assert rejects.pop((folder / "gone.csv").as_uri().encode()) == "the file is missing"
    assert list(rejects) == [b"{broken"]
    assert numbers_of(events) == list(range(1, kept + 2))


def test_a_file_that_is_rewritten_before_a_later_run_fails_the_job(
    lake: Lake, events: Table, fill: Callable[..., Report], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = write(tmp_path / "a.ndjson", [event_of(1)])

    def fail(*_args: Any) -> Any:
        raise Unavailable("no Spark")

    with monkeypatch.context() as patch:
        patch.setattr(backfill, "execute", fail)
        with pytest.raises(Unavailable):
            fill(source)
    write(source, [event_of(2)])
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
    assert {row["event_id"]: row["status"] for row in rows_of(events)} == {
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
    report = backfill.run(lake.uri, events.name, str(write(tmp_path / "in.ndjson", [event_of(1)])))
    assert report.rows == 1
    assert asked == [{"spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1"}]


def test_what_cannot_be_backfilled(lake: Lake, fill: Callable[..., Report], tmp_path: Path) -> None:
    with pytest.raises(TableNotFound):
        fill(tmp_path)
    with pytest.raises(Invalid, match="exists only in this process"):
        backfill.run("memory://a", "requests", str(tmp_path))
    lake.create_table("requests", {"n": "long"})
    with pytest.raises(Invalid, match="event_id"):
        fill(write(tmp_path / "in.ndjson", [b"{}"]))
