from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alluvia.delta.partitioning.partition import partition_text, split
from alluvia.delta.partitioning.spec import PartitionField, PartitionSpec, parse_spec
from alluvia.delta.partitioning.transforms import PARTITION_TAG
from alluvia.delta.partitioning.values import parse_partition_text
from alluvia.errors import Invalid

ZONED, LOCAL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
SCHEMA = pa.schema([("ts", ZONED), ("local", LOCAL), ("day", pa.date32()), ("c", pa.string()), ("n", pa.int64()),
                    ("x", pa.float64()), ("raw", pa.binary()), ("l", pa.list_(pa.int64()))])  # fmt: skip


def moment(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def parts(table: pa.Table, *fields: str) -> dict[str, list[Any]]:
    """Return folders with the values of n in each."""
    spec = parse_spec(fields, table.schema)
    return {partition.folder: rows["n"].to_pylist() for partition, rows in split(table, spec)}


def test_fields_are_columns_or_transforms_of_times() -> None:
    spec = parse_spec(["c", " Day( ts ) ", "hour(local)", "year(day)"], SCHEMA)
    assert spec.fields == (
        PartitionField("c"),
        PartitionField("ts", "day"),
        PartitionField("local", "hour"),
        PartitionField("day", "year"),
    )
    assert [str(field) for field in spec.fields] == ["c", "day(ts)", "hour(local)", "year(day)"]
    assert spec.identity_columns == ("c",)
    assert parse_spec([], SCHEMA) == PartitionSpec()


def test_buckets_and_truncations_have_one_text() -> None:
    spec = parse_spec(["bucket(16, c)", "Truncate( c , 2)", "bucket(n,4)", "truncate(10, n)"], SCHEMA)
    assert [str(field) for field in spec.fields] == [
        "bucket(16, c)",
        "truncate(c, 2)",
        "bucket(4, n)",
        "truncate(n, 10)",
    ]
    assert parse_spec([str(field) for field in spec.fields], SCHEMA) == spec
    numbers = pa.schema([("4", pa.int64()), ("8", pa.int64())])
    fields = parse_spec(["bucket(4, 8)", "truncate(4, 8)"], numbers).fields
    assert [(field.column, field.width) for field in fields] == [("8", 4), ("4", 8)]


def test_a_bucket_follows_from_the_text_alone() -> None:
    """CRC-32 of `123456789` is 0xCBF43926: its published check value."""
    table = pa.table({"c": ["123456789", None], "n": [123456789, 5]})
    for column in ("c", "n"):
        [(partition, _), *_] = split(table.slice(0, 1), parse_spec([f"bucket(1000, {column})"], table.schema))
        assert partition.tags == {PARTITION_TAG: f'{{"bucket(1000, {column})":{0xCBF43926 % 1000}}}'}
        assert partition.folder == f"{column}_bucket={0xCBF43926 % 1000}/"
    assert parts(table, "bucket(16, c)") == {"c_bucket=6/": [123456789], "c_bucket=__HIVE_DEFAULT_PARTITION__/": [5]}


def test_a_truncation_cuts_text_and_rounds_numbers_down() -> None:
    table = pa.table({"c": ["üben", "übrig", "", None], "n": [-1, 9, -(2**63), 10]})
    assert parts(table, "truncate(c, 2)") == {
        "c_truncate=/": [-(2**63)],
        "c_truncate=%C3%BCb/": [-1, 9],
        "c_truncate=__HIVE_DEFAULT_PARTITION__/": [10],
    }
    assert parts(table, "truncate(n, 10)") == {
        f"n_truncate={-(2**63)}/": [-(2**63)],
        "n_truncate=-10/": [-1],
        "n_truncate=0/": [9],
        "n_truncate=10/": [10],
    }


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (["none"], "is not a column"),
        (["day(none)"], "is not a column"),
        (["week(ts)"], "an unknown transform"),
        (["bucket(c)"], "a whole number from 1 to"),
        (["bucket(0, c)"], "a whole number from 1 to"),
        (["truncate(c, x)"], "a whole number from 1 to"),
        (["bucket(4, x)"], "needs a column of text or whole numbers, x is double"),
        (["truncate(ts, 2)"], "needs a column of text or whole numbers"),
        (["day(c)"], "needs a timestamp or date"),
        (["hour(day)"], "needs a timestamp or date"),
        (["x"], "needs a column of text"),
        (["raw"], "needs a column of text"),
        (["l"], "needs a column of text"),
        (["c", "c"], "repeated"),
        (["day(ts)", "day( ts)"], "repeated"),
        ([""], "is not a column"),
    ],
)
def test_a_field_that_cannot_be_is_named(fields: list[str], reason: str) -> None:
    with pytest.raises(Invalid, match=f"partition_by: .*{reason}"):
        parse_spec(fields, SCHEMA)


def test_a_column_must_be_left_for_the_files() -> None:
    with pytest.raises(Invalid, match="no column is left"):
        parse_spec(["c"], pa.schema([("c", pa.string())]))


@pytest.mark.parametrize(
    ("transform", "folders"),
    [
        ("year", ["1969", "1970", "2024"]),
        ("month", ["1969-12", "1970-01", "2024-02"]),
        ("day", ["1969-12-31", "1970-01-01", "2024-02-29"]),
        ("hour", ["1969-12-31T23", "1970-01-01T00", "2024-02-29T23"]),
    ],
)
@pytest.mark.parametrize("column", ["ts", "local", "day"])
def test_a_transform_puts_times_together(transform: str, folders: list[str], column: str) -> None:
    times = ["1969-12-31T23:59:59.999999", "1970-01-01T00:00:00", "2024-02-29T23:59:59", "2024-02-29T23:00:00"]
    if column == "day" and transform == "hour":
        return
    values = [moment(text) for text in times]
    kind = SCHEMA.field(column).type
    given = [value.date() if column == "day" else value if column == "ts" else value.replace(tzinfo=None)
             for value in values]  # fmt: skip
    table = pa.table({column: pa.array([*given, None], kind), "n": range(5)})
    field = f"{transform}({column})"
    groups = list(split(table, parse_spec([field], table.schema)))
    name = f"{column}_{transform}"
    quoted = [folder.replace(":", "%3A") for folder in folders]
    assert {partition.folder: rows["n"].to_pylist() for partition, rows in groups} == {
        f"{name}={quoted[0]}/": [0],
        f"{name}={quoted[1]}/": [1],
        f"{name}={quoted[2]}/": [2, 3],
        f"{name}=__HIVE_DEFAULT_PARTITION__/": [4],
    }
    assert all(rows.schema.equals(table.schema) and not partition.values for partition, rows in groups)
    first = groups[0][0]
    assert first.tags == {PARTITION_TAG: f'{{"{field}":"{folders[0]}"}}'}


def test_identity_columns_leave_the_rows_and_stand_in_the_values() -> None:
    table = pa.table({"c": ["b", "a", None, "b"], "n": [1, 2, 3, 4], "ts": pa.array([moment("2024-01-01")] * 4, ZONED)})
    found = list(split(table, parse_spec(["c", "day(ts)"], table.schema)))
    assert [(dict(partition.values), rows.column_names) for partition, rows in found] == [
        ({"c": "b"}, ["n", "ts"]),
        ({"c": "a"}, ["n", "ts"]),
        ({"c": None}, ["n", "ts"]),
    ]
    assert [rows["n"].to_pylist() for _, rows in found] == [[1, 4], [2], [3]]
    assert found[0][0].folder == "c=b/ts_day=2024-01-01/"
    assert found[2][0].folder == "c=__HIVE_DEFAULT_PARTITION__/ts_day=2024-01-01/"


def test_years_below_1000_have_four_digits() -> None:
    table = pa.table({"ts": pa.array([moment("0999-01-02")], ZONED), "n": [1]})
    for transform, value in [("year", "0999"), ("month", "0999-01"), ("day", "0999-01-02"), ("hour", "0999-01-02T00")]:
        [(partition, _)] = split(table, parse_spec([f"{transform}(ts)"], table.schema))
        assert partition.tags == {PARTITION_TAG: f'{{"{transform}(ts)":"{value}"}}'}


@pytest.mark.parametrize("odd", ["a/b", "a b", "100%", "a%20b", "..", "é🌊", "a=b", "#?&+", "'\"", "\n", "*[]", "\\"])
def test_odd_values_make_one_safe_folder(odd: str) -> None:
    (folder,) = parts(pa.table({"c": [odd], "n": [1]}), "c")
    assert folder.count("/") == 1
    assert folder.isascii()
    assert folder.startswith("c=")
    assert not set(folder) & set(" #?*[]'\"\\\n")
    (partition, _), = split(pa.table({"c": [odd], "n": [1]}), parse_spec(["c"], SCHEMA))  # fmt: skip
    assert partition.values == {"c": odd}


def test_rows_without_partitions_are_one_part_and_no_rows_none() -> None:
    table = pa.table({"n": [1, 2]})
    assert parts(table) == {"": [1, 2]}
    assert parts(table.slice(0, 0)) == {}
    assert parts(pa.table({"c": pa.array([], pa.string()), "n": pa.array([], pa.int64())}), "c") == {}


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        ("a b", pa.string(), "a b"),
        (-5, pa.int64(), "-5"),
        (True, pa.bool_(), "true"),
        (False, pa.bool_(), "false"),
        (date(999, 1, 2), pa.date32(), "0999-01-02"),
        (moment("2024-01-02T03:04:05"), ZONED, "2024-01-02 03:04:05"),
        (moment("2024-01-02T03:04:05.000600"), ZONED, "2024-01-02 03:04:05.000600"),
        (datetime(999, 1, 2, 3), LOCAL, "0999-01-02 03:00:00"),
        (Decimal("0.00000001"), pa.decimal128(10, 8), "0.00000001"),
        (Decimal("100"), pa.decimal128(10, 0), "100"),
        (None, pa.string(), None),
    ],
)
def test_a_partition_value_goes_to_text_and_back(value: Any, kind: pa.DataType, text: str | None) -> None:
    stored = pa.scalar(value, kind).as_py()
    assert partition_text(stored, "c") == text
    assert parse_partition_text(text, kind) == value
    assert parse_partition_text("", kind) is None


@pytest.mark.parametrize("text", ["2021-01-01T00:00:00Z", "2021-01-01 00:00:00", "2021-01-01T02:00:00.000000+02:00"])
def test_other_writers_timestamps_are_read(text: str) -> None:
    assert parse_partition_text(text, ZONED) == moment("2021-01-01")


def test_the_empty_text_is_no_partition_value() -> None:
    with pytest.raises(Invalid, match="column c: the empty string"):
        parts(pa.table({"c": ["a", ""], "n": [1, 2]}), "c")


def test_a_time_that_no_calendar_here_holds_has_no_partition() -> None:
    table = pa.table({"ts": pa.array([300_000_000_000_000_000], ZONED), "n": [1]})
    with pytest.raises(Invalid, match=r"column ts: .*years 1 to 9999"):
        parts(table, "day(ts)")


@given(st.lists(st.tuples(st.integers(0, 2), st.sampled_from(["a", "b", None]), st.integers(0, 2)), max_size=6))
def test_rows_are_sorted_by_partition_and_then_by_columns(rows: list[tuple[int, str | None, int]]) -> None:
    def key(row: tuple[int, str | None, int]) -> tuple[bool, str, int]:
        return row[1] is None, row[1] or "", row[2]

    days = [datetime(2026, 1, 1 + day, tzinfo=UTC) for day, _, _ in rows]
    names, numbers = [name for _, name, _ in rows], [number for _, _, number in rows]
    types = {"ts": pa.timestamp("us", "UTC"), "name": pa.string(), "n": pa.int64()}
    table = pa.table({"ts": days, "name": names, "n": numbers}, pa.schema(list(types.items())))
    found = [part for _, part in split(table, parse_spec(["day(ts)"], table.schema), [table["name"], table["n"]])]
    expected = [sorted((row for row in rows if row[0] == day), key=key) for day in sorted({row[0] for row in rows})]
    assert [list(zip(part["name"].to_pylist(), part["n"].to_pylist(), strict=True)) for part in found] == [
        [row[1:] for row in part] for part in expected
    ]


def days_of(number: int, rows: int) -> pa.Table:
    """Rows of as many days each, of 16 bytes."""
    days = [datetime(2026, 1, 1, tzinfo=UTC) + timedelta(days=day) for day in range(number) for _ in range(rows)]
    return pa.table({"ts": pa.array(days, ZONED), "n": pa.array(range(number * rows), pa.int64())})


@pytest.mark.parametrize(
    ("days", "rows", "file_rows", "files"),
    [
        (8, 10, None, 8),  # few values have a file each
        (9, 10, None, 1),  # more values are one file, if they are few bytes
        (100, 5000, None, 25),  # or 256 kB each
        (100, 16_385, None, 100),  # or a file each
        (101, 10, None, 1),
        (128, 5000, None, 32),  # or a thirty-second of the rows each
        (128, 5000, 640_000, 32),  # even if it is just a file
        (128, 5000, 630_000, 8),  # more than a file: an eighth each
        (32, 10, 100, 4),  # ten days of a tenth of a file each
        (93, 1000, 3700, 24),  # four days of 0.27 of a file each
        (93, 1000, 1500, 93),  # two days of 0.67 of a file each would be too much for one
        (10, 5000, 5000, 10),
    ],
)
def test_a_write_makes_about_as_many_files_as_its_rows_fill(
    days: int, rows: int, file_rows: int | None, files: int
) -> None:
    table = days_of(days, rows)
    spec = parse_spec(["day(ts)"], table.schema)
    found = list(split(table, spec, file_bytes=None if file_rows is None else 16 * file_rows))
    assert len(found) == files
    assert pa.concat_tables([part for _, part in found]).equals(table)
