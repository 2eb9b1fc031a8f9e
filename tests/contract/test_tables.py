"""A table's life in every store: whatever is done to it, other Delta readers see our rows at every version."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

from alluvia.api.lake import Lake, Table
from alluvia.errors import VersionExpired
from alluvia.store import CountingStore
from tests.contract.workers import events
from tests.judges import (
    canonical,
    duckdb_table,
    judge,
    judges_agree,
    on_disk,
    open_deltalake,
    ours,
    storage_options,
    uri_of,
)
from tests.peer_duckdb import PeerError

NOON = datetime(2024, 5, 6, 12, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False), ("place", pa.string()), ("ts", pa.timestamp("us", tz="UTC")),
        ("x", pa.float64()), ("f", pa.float32()), ("n", pa.int16()), ("d", pa.decimal128(12, 3)), ("day", pa.date32()),
        ("ok", pa.bool_()), ("raw", pa.binary()), ("tags", pa.list_(pa.field("element", pa.string()))),
        ("map", pa.map_(pa.string(), pa.int64())), ("st", pa.struct([("a", pa.int64()), ("b", pa.string())])),
    ]
)  # fmt: skip
PLACES = ["a b", "a/b", "100%", "a%20b", "é🌊", "it's", None]


def row(number: int, **more: Any) -> dict[str, Any]:
    full = {
        "id": number, "place": PLACES[number % len(PLACES)], "ts": NOON + timedelta(hours=number, microseconds=1),
        "x": number / 3, "f": number / 3, "n": number, "d": Decimal(number) / 8, "day": date(2024, 1, 1 + number % 28),
        "ok": number % 2 == 0, "raw": bytes([number % 256]), "tags": ["x" * 40, None], "map": [("k", number)],
        "st": {"a": number, "b": None},
    }  # fmt: skip
    sparse = {name: value for name, value in full.items() if name in ("id", "place", "ts")}
    return (sparse if number % 3 == 0 else full) | more


def test_a_tables_life_is_read_by_the_judges_at_every_version(lake: Lake) -> None:
    table = lake.create_table("t", SCHEMA, partition_by=["place", "day(ts)"], sort_by=["id"])
    expected: dict[int, list[int]] = {0: []}
    numbers: list[int] = []

    def done(*new: int) -> None:
        numbers.extend(new)
        expected[table.snapshot().version] = sorted(numbers)

    table.append([row(number) for number in range(8)])
    done(*range(8))
    table.append([row(8), row(9)])
    done(8, 9)
    before = table.snapshot().timestamp_ms
    table.evolve({"extra": "decimal(5,2)", "more": "timestamp"})
    done()
    table.append([row(10, extra=Decimal("1.25"), more=NOON), row(11)])
    done(10, 11)
    while table.snapshot().timestamp_ms < before + 5:
        table.append([row(12)])
        done(12)
    report = table.optimize()
    for version in report.versions:
        expected[version] = sorted(numbers)
    assert report.files_removed > 2
    table.checkpoint()
    table.append([row(20)])
    done(20)
    found = judges_agree(table)
    assert {version: sorted(dict(each)["id"] for each in rows) for version, rows in found.items()} == expected

    moment = datetime.fromtimestamp(before / 1000, UTC)
    for at in (moment, moment.isoformat(), moment.replace(tzinfo=None)):
        assert table.snapshot(timestamp=at).version == 2
    entries = table.history()
    assert [entry.version for entry in entries] == list(range(table.snapshot().version, -1, -1))
    assert (entries[-1].operation, entries[-2].operation, entries[-4].operation) == (
        "CREATE TABLE",
        "WRITE",
        "ADD COLUMNS",
    )
    assert [entry.version for entry in table.history(2)] == [entry.version for entry in entries[:2]]


def test_ingested_rows_are_read_by_the_judges_through_merge_and_vacuum(lake: Lake) -> None:
    table = lake.create_events("t", pa.schema([("status", pa.int64())]))
    schema = table.snapshot().schema
    for batch in (["a", "b"], ["b", "c", "c"], ["d"]):
        table.ingest(events(schema, batch))
    merged = table.optimize()
    table.checkpoint()
    table.ingest(events(schema, ["a", "e"]))
    judges_agree(table)
    report = table.vacuum(timedelta(0))
    assert len(report.data_files) == merged.files_removed == 3
    newest = table.snapshot().version
    assert report.oldest_version == merged.version
    for version in range(report.oldest_version):
        with pytest.raises(VersionExpired, match=f"oldest version that can be read is {report.oldest_version}"):
            table.scan(version=version)
    rows = judges_agree(table, range(report.oldest_version, newest + 1))
    assert sorted(dict(each)["event_id"] for each in rows[newest]) == ["a", "b", "c", "d", "e"]
    reopened = Lake(lake.store, lake.clock).table("t")
    assert reopened.ingest(events(schema, ["a", "b", "c", "d", "e"])).appended == 0


@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("lake", ["directory"], indirect=True)
def test_a_judge_that_skips_files_by_our_statistics_misses_no_row(lake: Lake, *, merged: bool) -> None:
    schema = pa.schema([("x", pa.float64()), ("s", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))])
    table = lake.create_table("t", schema)
    moment = NOON.replace(microsecond=123_456)
    groups: list[list[dict[str, Any]]] = [
        [{"x": 1.0, "s": "a" * 40, "ts": moment}, {"x": math.nan, "s": "a" * 31 + "\U0010ffff" * 5}, {"x": 2.0}],
        [{"x": -math.inf, "s": "", "ts": moment}, {"x": math.inf}],
        [{"x": 7.0, "s": "b", "ts": NOON}, {"x": None, "s": None}],
    ]
    for rows in groups:
        table.append(rows)
    if merged:
        table.optimize()
    conditions = [
        "x > 5", "x >= 7", "x < 2", "x = 'nan'::DOUBLE", "x = 'infinity'::DOUBLE", "x < -5", "x IS NULL",
        f"s = '{'a' * 40}'", f"s > '{'a' * 39}'", f"s >= '{'a' * 31}\U0010ffff'", "s = ''", "s IS NULL",
        f"ts = '{moment.isoformat()}'::TIMESTAMPTZ", f"ts > '{NOON.isoformat()}'::TIMESTAMPTZ", "ts IS NOT NULL",
    ]  # fmt: skip
    whole = table.scan().read_all()
    for condition in conditions:
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("CREATE TABLE plain AS SELECT * FROM whole")
            expected = canonical(connection.execute(f"SELECT * FROM plain WHERE {condition}").to_arrow_table())
        assert expected, condition
        assert canonical(duckdb_table(table, where=condition)) == expected, condition
        assert canonical(table.scan(where=condition).read_all()) == expected, condition
        assert canonical(lake.sql(f"SELECT * FROM t WHERE {condition}")) == expected, condition
    assert len(whole) == 7


def write(table: Table, rows: pa.Table, **options: Any) -> None:
    write_deltalake(
        uri_of(table), rows, mode="append", storage_options=storage_options(table.lake.store) or None, **options
    )


def test_rows_expire_and_a_judge_sees_the_others(lake: Lake) -> None:
    """Whole days go, by one commit and without a data file; what the store still holds is vacuum's to delete."""
    now = datetime.now(UTC)
    table = lake.create_events("events", properties={"alluvia.ttl": "90 days"})
    time = pa.timestamp("us", "UTC")
    times = [now - timedelta(days=days) for days in (200, 91, 1)]
    names = ["e0", "e1", "e2"]
    table.ingest(pa.table({"event_id": names, "ts": pa.array(times, time), "received_at": pa.array([now] * 3, time)}))
    store = lake.store
    assert isinstance(store, CountingStore)
    store.reset()
    assert table.expire().rows == 2
    assert store.requests["put"] == 1
    assert not any(key.endswith(".parquet") for _, key in store.keys)
    assert table.to_arrow(["event_id"])["event_id"].to_pylist() == ["e2"]
    judges_agree(table)
    assert len(table.vacuum(timedelta(0)).data_files) == 2
    assert table.verify().ok


def test_another_writer_is_refused_by_a_guarded_table(shared_lake: Lake) -> None:
    table = shared_lake.create_table("t", pa.schema([("x", pa.int64())]))
    table.append([{"x": 1}])
    with pytest.raises(DeltaError, match="alluvia"):
        write(table, pa.table({"x": [2]}))
    with pytest.raises(DeltaError, match="alluvia"):
        open_deltalake(table).delete()
    by_duckdb = judge(shared_lake.store)
    by_duckdb.execute(f"ATTACH '{uri_of(table)}' AS guarded (TYPE delta)")
    with pytest.raises(PeerError, match=r"alluvia|read-only"):  # DuckDB writes no Delta table on S3 at all
        by_duckdb.execute("INSERT INTO guarded VALUES (2)")
    by_duckdb.execute("DETACH guarded")
    assert table.snapshot().version == 1
    assert ours(table) == [(("x", 1),)]
    judges_agree(table)


def test_any_writer_and_we_take_turns(shared_lake: Lake) -> None:
    schema = pa.schema([("x", pa.int64()), ("place", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))])
    table = shared_lake.create_table("t", schema, partition_by=["place"], properties={"alluvia.writers": "any"})
    expected = []
    for turn in range(4):
        rows = pa.Table.from_pylist(
            [{"x": turn, "place": place, "ts": NOON + timedelta(microseconds=turn)} for place in ("a b", "100%", None)],
            schema,
        )
        expected += canonical(rows)
        if turn % 2:
            write(table, rows)
        else:
            table.append(rows)
        assert ours(table) == sorted(expected, key=repr)
    open_deltalake(table).create_checkpoint()
    reopened = Lake(shared_lake.store, shared_lake.clock).table("t")
    assert ours(reopened) == ours(table)
    theirs = open_deltalake(table)
    theirs.delete("x = 1")
    expected = [each for each in expected if dict(each)["x"] != 1]
    assert ours(reopened) == sorted(expected, key=repr)
    assert reopened.optimize().files_removed == 9
    reopened.checkpoint()
    write(table, pa.Table.from_pylist([{"x": 9, "place": "a b", "ts": NOON}], schema))
    judges_agree(table)
    before = ours(table)
    report = table.vacuum(timedelta(0))
    assert len(report.data_files) == 9 + 3
    assert ours(table) == before
    judges_agree(table, range(report.oldest_version, table.snapshot().version + 1))
    with pytest.raises(VersionExpired):
        table.scan(version=report.oldest_version - 1)
    theirs = open_deltalake(table)
    theirs.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    assert ours(table) == before


def test_a_table_that_another_writer_made_is_read_and_written(shared_lake: Lake) -> None:
    table = shared_lake.table("t")
    schema = pa.schema([("x", pa.int64()), ("place", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))])
    rows = pa.Table.from_pylist([{"x": 1, "place": "a/b", "ts": NOON}, {"x": 2}], schema)
    write(table, rows, partition_by=["place"])
    assert ours(table) == canonical(rows)
    table.append([{"x": 3, "place": "a/b"}])
    table.evolve({"y": "string"})
    table.append([{"x": 4, "y": "new"}])
    table.optimize()
    judges_agree(table)
    assert isinstance(open_deltalake(table), DeltaTable)


def test_timestamps_without_a_zone_are_read_by_the_judges(lake: Lake) -> None:
    schema = pa.schema([("x", pa.int64()), ("local", pa.timestamp("us")), ("p", pa.timestamp("us"))])
    table = lake.create_table("t", schema, partition_by=["p"])
    moment = NOON.replace(tzinfo=None)
    for number in range(2):
        table.append([{"x": number, "local": moment, "p": moment.replace(microsecond=5)}, {"x": 9}])
    table.optimize()
    with on_disk(table) as there:
        for version in range(table.snapshot().version + 1):
            assert canonical(open_deltalake(there, version).to_pyarrow_table()) == ours(table, version)
