from __future__ import annotations

import datetime as dt
from decimal import Decimal

import pyarrow as pa

from alluvia.delta.partitioning.spec import parse_spec
from alluvia_spark.chunks import CHUNK, GROUPS_MAX, Chunk, by_partition, decode, encode

ROWS = pa.table(
    {
        "event_id": ["a", "b", "c", "d"],
        "country": ["de", None, "de", "fr"],
        "ts": pa.array([0, 0, 86_400_000_000, 1], pa.timestamp("us", "UTC")),
        "price": pa.array([Decimal("1.10"), None, Decimal("2.00"), Decimal("0.01")], pa.decimal128(10, 2)),
        "tags": pa.array([["x"], [], None, ["y", None]], pa.list_(pa.string())),
        "day": [dt.date(2026, 1, day) for day in range(1, 5)],
    }
)


def test_a_chunk_keeps_every_type() -> None:
    assert decode(encode(ROWS)).equals(ROWS)


def test_rows_are_sorted_by_partition_and_keep_all_columns() -> None:
    groups, rows = by_partition(ROWS, parse_spec(["country", "day(ts)"], ROWS.schema))
    assert rows.schema.equals(ROWS.schema)
    assert rows["event_id"].to_pylist() == ["a", "c", "b", "d"]
    assert [(group.values, group.key, group.rows) for group in groups] == [
        (("de",), ((False, "1970-01-01"),), 1),
        (("de",), ((False, "1970-01-02"),), 1),
        ((None,), ((False, "1970-01-01"),), 1),
        (("fr",), ((False, "1970-01-01"),), 1),
    ]


def test_very_many_partitions_are_described_together() -> None:
    hours = pa.array([hour * 3_600_000_000 for hour in range(9000)], pa.timestamp("us", "UTC"))
    groups, rows = by_partition(pa.table({"ts": hours}), parse_spec(["hour(ts)"], pa.schema([("ts", hours.type)])))
    assert len(groups) <= 2 * GROUPS_MAX
    assert sum(group.rows for group in groups) == len(rows) == 9000
    assert groups[1].key == ((False, "1970-01-01T04"),)


def test_a_table_without_partitions_is_one() -> None:
    groups, rows = by_partition(ROWS, parse_spec([], ROWS.schema))
    assert [(group.values, group.key, group.rows) for group in groups] == [((), (), 4)]
    assert rows.equals(ROWS)


def test_a_chunk_is_a_row_of_spark() -> None:
    groups, rows = by_partition(ROWS, parse_spec(["country", "day(ts)"], ROWS.schema))
    chunk = Chunk(0, 3, 1, groups, 100, 10, b"ids", encode(rows))
    row = chunk.to_row()
    assert len(row) == len(CHUNK)
    assert Chunk.from_row(row) == chunk
