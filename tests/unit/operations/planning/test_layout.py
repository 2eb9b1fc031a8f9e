"""How rows lie in files: what an append writes, and what a query or a delete of a part of it then touches."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import pairwise
from zlib import crc32

import duckdb
import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.log.actions import AddFile
from alluvia.delta.skipping.predicate import And, Comparison
from alluvia.delta.skipping.pruning import span_of
from alluvia.errors import Invalid
from alluvia.store import CountingStore

FIRST = datetime(2023, 1, 1, tzinfo=UTC)
SCHEMA = {"id": "long", "ts": "timestamp", "name": "string"}


@cache
def rows_over(days: int, count: int) -> pa.Table:
    """Rows with scattered times, as many on each day."""
    seed = random.Random(7)
    times = [FIRST + timedelta(days=n % days, seconds=seed.randrange(86_400)) for n in range(count)]
    names = [f"{seed.getrandbits(256):064x}" for _ in range(count)]
    return pa.table({"id": range(count), "ts": pa.array(times, pa.timestamp("us", "UTC")), "name": names})


def files_of_day(table: Table, day: int) -> list[AddFile]:
    start = FIRST + timedelta(days=day)
    day_after = start + timedelta(days=1)
    both = And((Comparison(("ts",), ">=", start), Comparison(("ts",), "<", day_after)))
    return Scan(table.snapshot(), both).files


@pytest.fixture
def year(lake: Lake) -> Table:
    table = lake.create_table("t", SCHEMA, partition_by=["day(ts)"], sort_by=["name"])
    table.append(rows_over(400, 60_000))
    return table


def test_many_days_are_cut_into_contiguous_ranges(year: Table) -> None:
    """A write over more than 100 days gave up `day(ts)`: a query of one day read everything."""
    snapshot = year.snapshot()
    spans = [span_of(file, snapshot.partition_spec) for file in snapshot.files]
    known = sorted((span.low, span.high) for span in spans if span is not None)
    assert 10 < len(known) == len(snapshot.files) <= 100
    assert all(high < low for (_, high), (low, _) in pairwise(known))
    assert known[0][0] == ((False, "2023-01-01"),)
    assert known[-1][1] == ((False, "2024-02-04"),)
    total = sum(file.size for file in snapshot.files)
    for day in (0, 17, 250, 399):
        assert sum(file.size for file in files_of_day(year, day)) < total / 8
    assert sorted(year.to_arrow(["id"])["id"].to_pylist()) == list(range(60_000))
    folder = next(iter(sorted(file.path for file in snapshot.files))).partition("/")[0]
    assert folder.startswith("ts_day=2023-01-01..2023-01-")


def test_in_a_range_rows_are_in_the_order_of_their_days(year: Table) -> None:
    for file in list(year.snapshot().files)[:3]:
        span = span_of(file, year.snapshot().partition_spec)
        assert span is not None
        low, high = (datetime.fromisoformat(str(end[0][1])).replace(tzinfo=UTC) for end in (span.low, span.high))
        rows = year.to_arrow(["ts", "name"], where=f"ts >= '{low}' AND ts < '{high + timedelta(days=1)}'")
        order = [(ts.date(), name) for ts, name in zip(*rows.to_pydict().values(), strict=True)]
        assert order == sorted(order)


def test_deleting_a_day_rewrites_only_its_files(year: Table) -> None:
    before = set(year.snapshot().files.keys())
    [touched] = files_of_day(year, 40)
    report = year.delete("ts >= '2023-02-10' AND ts < '2023-02-11'")
    assert report.rows_deleted == 150
    assert before - set(year.snapshot().files.keys()) == {touched.key}


def test_a_few_events_over_many_days_are_one_file(lake: Lake, store: CountingStore) -> None:
    table = lake.create_table("t", SCHEMA, partition_by=["day(ts)"])
    store.reset()
    table.append(rows_over(400, 1000))
    assert store.requests["put"] == 2
    [file] = table.snapshot().files
    assert file.tags == {"alluvia.partition": '{"day(ts)":["2023-01-01","2024-02-04"]}'}
    assert file.path.startswith("ts_day=2023-01-01..2024-02-04/part-")


def test_few_rows_make_a_file_for_each_of_up_to_eight_days_and_one_for_more_days(lake: Lake) -> None:
    table = lake.create_table("t", SCHEMA, partition_by=["day(ts)"])
    table.append(rows_over(8, 300))
    assert len({file.tags["alluvia.partition"] for file in table.snapshot().files}) == 8
    table.append(rows_over(9, 300))
    assert len(table.snapshot().files) == 9


def test_days_that_expire_have_a_file_each(lake: Lake) -> None:
    table = lake.create_table("t", SCHEMA, partition_by=["day(ts)"], properties={"alluvia.ttl": "36500 days"})
    table.append(rows_over(100, 300))
    assert len({file.tags["alluvia.partition"] for file in table.snapshot().files}) == 100


def test_ranges_stay_within_a_value_of_the_identity_columns(lake: Lake) -> None:
    table = lake.create_table("t", {**SCHEMA, "land": "string"}, partition_by=["land", "day(ts)"])
    rows = rows_over(120, 480)
    table.append(rows.append_column("land", pa.array(["a", "b", None, "c"] * 120)))
    found = {(file.partition_values["land"], file.tags["alluvia.partition"]) for file in table.snapshot().files}
    first = [
        f'{{"day(ts)":["2023-01-{day:02}","2023-04-{last}"]}}' for day, last in [(1, 27), (2, 28), (3, 29), (4, 30)]
    ]
    assert found == set(zip(["a", "b", None, "c"], first, strict=True))
    assert table.to_arrow(["id"], where="land = 'b'").num_rows == 120


@pytest.mark.parametrize("days", [1, 3, 400])
def test_files_have_the_size_that_the_table_asks_for(lake: Lake, days: int) -> None:
    target = 75_000
    properties = {"alluvia.target_file_size": f"{target}", "alluvia.row_group_rows": "2000"}
    table = lake.create_table("t", SCHEMA, partition_by=["day(ts)"], sort_by=["name"], properties=properties)
    table.append(rows_over(days, 60_000))
    sizes = [file.size for file in table.snapshot().files]
    assert sum(sizes) > 10 * target
    small = [size for size in sizes if not 0.75 * target <= size <= 1.25 * target]
    assert len(small) <= (1 if days == 400 else 0), sorted(sizes)
    assert sum(file.num_records or 0 for file in table.snapshot().files) == 60_000


@pytest.fixture
def bucketed(lake: Lake) -> Table:
    table = lake.create_table("t", {"user": "string", "n": "long"}, partition_by=["bucket(8, user)", "bucket(4, n)"])
    rows = [{"user": f"u{n % 50}" if n % 51 else None, "n": n % 40} for n in range(1000)]
    for bucket in range(4):  # few rows of more than eight buckets would be one file
        here = [row for row in rows if crc32(str(row["n"]).encode()) % 4 == bucket]
        table.append([row for row in here if row["user"]])
        table.append([row for row in here if not row["user"]])
    assert len(table.files) == 36
    return table


@pytest.mark.parametrize(
    ("where", "share"),
    [
        ("user = 'u7'", 1 / 8),
        ("user IN ('u7', 'u7')", 1 / 8),
        ("user = 'u7' AND n = 7", 1 / 32),
        ("user IS NULL", 1 / 8),
        ("user = 'u7' OR n > 3", 1),
        ("user = 'nobody' AND n > 3", 1 / 8),
        ("user = 'u7' OR n = 3", 3 / 8),
        ("user != 'u7'", 1),
        ("n = 7", 1 / 4),
        ("n = 7.0", 1),
        ("user > 'u7' AND n IN (7, 8)", 1 / 2),
    ],
)
def test_an_equal_value_is_looked_for_in_its_bucket_only(
    bucketed: Table, store: CountingStore, where: str, share: float
) -> None:
    everything = duckdb.from_arrow(bucketed.to_arrow())
    files = len(bucketed.snapshot().files)
    store.reset()
    found = bucketed.to_arrow(where=where)
    expected = everything.filter(where).to_arrow_table()
    assert sorted(found.to_pylist(), key=repr) == sorted(expected.to_pylist(), key=repr)
    read = sum(key.endswith(".parquet") for _, key in store.keys)
    assert read <= files * share * 1.6
    if share == 1:
        assert read > files * 0.7


def test_a_bucket_is_known_only_below_one_value_of_what_comes_before(lake: Lake) -> None:
    table = lake.create_table("t", {"ts": "timestamp", "n": "long"}, partition_by=["day(ts)", "bucket(4, n)"])
    rows = rows_over(400, 2000)
    table.append(pa.table({"ts": rows["ts"], "n": rows["id"]}))
    assert len(table.snapshot().files) == 1
    assert table.to_arrow(where="n = 1999").num_rows == 1


def test_rows_that_move_to_another_bucket_are_found_there(bucketed: Table) -> None:
    before = bucketed.to_arrow(where="user = 'u7'").num_rows
    assert bucketed.update({"user": "'v7'"}, where="user = 'u7'").rows_updated == before > 0
    assert bucketed.to_arrow(where="user = 'v7'").num_rows == before
    assert bucketed.to_arrow(where="user = 'u7'").num_rows == 0
    assert bucketed.upsert([{"user": "w", "n": 7}], on=["n"]).rows_updated > 0
    assert bucketed.to_arrow(where="user = 'w'").num_rows == bucketed.to_arrow(where="n = 7").num_rows > 0


def test_row_groups_without_an_id_are_skipped_by_bloom_filters(disk: Lake) -> None:
    properties = {"alluvia.bloom_filters": '["name", "id"]', "alluvia.row_group_rows": "5000"}
    table = disk.create_table("t", SCHEMA, sort_by=["ts"], properties=properties)
    rows = rows_over(20, 20_000)
    table.append(rows)
    table.delete("id = 0")

    def excluded(column: str, value: object) -> int:
        [file] = table.snapshot().files
        path = disk.store.local_path(table.snapshot().key(file))
        probe = f"SELECT count(*) FILTER (bloom_filter_excludes) FROM parquet_bloom_probe('{path}', '{column}', ?)"
        [[count]] = duckdb.execute(probe, [value]).fetchall()
        return int(count)

    assert excluded("name", rows["name"][777].as_py()) == 3
    assert excluded("name", "f" * 64) == 4
    assert excluded("id", 777) == 3
    assert table.to_arrow(["id"], where=f"name = '{rows['name'][777]}'").to_pylist() == [{"id": 777}]


@pytest.mark.parametrize("named", ['["none"]', '["ts"]', '"id"'])
def test_a_column_that_can_have_no_bloom_filter_is_refused(lake: Lake, named: str) -> None:
    with pytest.raises(Invalid, match=r"property alluvia.bloom_filters: "):
        lake.create_table("t", SCHEMA, properties={"alluvia.bloom_filters": named})
