from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from alluvia.delta.schema.caller_rows import columns_of_rows, conformed
from alluvia.errors import Invalid

NOON = datetime(2024, 5, 6, 12, tzinfo=UTC)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        ("n", pa.int64()),
        ("small", pa.int8()),
        ("x", pa.float64()),
        ("d", pa.decimal128(6, 2)),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("local", pa.timestamp("us")),
        ("day", pa.date32()),
        ("flag", pa.bool_()),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.field("element", pa.string()))),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("s", pa.struct([("a", pa.int64()), ("b", pa.string())])),
    ]
)


def conform(rows: Any, schema: pa.Schema = SCHEMA) -> pa.Table:
    chunks = list(conformed(rows, schema, 1 << 20))
    assert all(chunk.schema.equals(schema) for chunk in chunks)
    return pa.concat_tables(chunks) if chunks else schema.empty_table()


def column(kind: pa.DataType, values: list[Any]) -> pa.Table:
    return pa.table({"id": ["i"] * len(values), "c": pa.array(values, kind)})


def test_rows_of_every_type_go_in_from_dicts_tables_and_readers() -> None:
    row = {
        "id": "a", "n": 1, "small": -128, "x": 0.5, "d": Decimal("1234.56"), "ts": NOON,
        "local": NOON.replace(tzinfo=None), "day": date(2024, 5, 6), "flag": True, "raw": b"\x00\xff",
        "tags": ["x", None], "map": [("k", 1)], "s": {"a": 1, "b": None},
    }  # fmt: skip
    rows = [row, {"id": "b"}]
    found = conform(rows)
    assert found.to_pylist() == [row, dict.fromkeys(row) | {"id": "b"}]
    for other in (found, found.to_batches()[0], found.to_reader(), found.select(["s", *SCHEMA.names[:-1]])):
        assert conform(other).equals(found)
    assert conform(found.drop_columns(["s", "n"])).to_pylist()[0] == row | {"s": None, "n": None}


def test_rows_come_in_chunks() -> None:
    schema = pa.schema([("id", pa.int64())])
    table = pa.table({"id": range(25)})
    assert [len(chunk) for chunk in conformed(table, schema, 80)] == [13, 12]
    assert [len(chunk) for chunk in conformed(table, schema, 1)] == [1] * 25
    reader = pa.RecordBatchReader.from_batches(table.schema, table.to_batches(max_chunksize=4))
    chunks = list(conformed(reader, schema, 80))
    assert [number for chunk in chunks for number in chunk["id"].to_pylist()] == list(range(25))
    assert [len(chunk) for chunk in chunks] == [12, 12, 1]
    assert list(conformed([], schema, 80)) == []


@pytest.mark.parametrize(
    ("kind", "given", "values", "expected"),
    [
        (pa.int64(), pa.int8(), [1], [1]),
        (pa.int8(), pa.int64(), [127, None], [127, None]),
        (pa.int64(), pa.uint64(), [2**63 - 1], [2**63 - 1]),
        (pa.float64(), pa.int32(), [3], [3.0]),
        (pa.float64(), pa.float32(), [0.5], [0.5]),
        (pa.decimal128(10, 2), pa.int32(), [3], [Decimal("3.00")]),
        (pa.decimal128(10, 2), pa.decimal128(5, 1), [Decimal("3.5")], [Decimal("3.50")]),
        (pa.string(), pa.large_string(), ["é"], ["é"]),
        (pa.string(), pa.dictionary(pa.int8(), pa.string()), ["x", None, "x"], ["x", None, "x"]),
        (pa.binary(), pa.binary(2), [b"ab"], [b"ab"]),
        (pa.timestamp("us", tz="UTC"), pa.timestamp("ms"), [NOON.replace(tzinfo=None)], [NOON]),
        (pa.timestamp("us", tz="UTC"), pa.timestamp("ns", tz="Asia/Tokyo"), [NOON], [NOON]),
        (pa.timestamp("us"), pa.timestamp("s"), [NOON.replace(tzinfo=None)], [NOON.replace(tzinfo=None)]),
        (pa.date32(), pa.date64(), [date(2024, 5, 6)], [date(2024, 5, 6)]),
        (pa.int64(), pa.null(), [None], [None]),
        (pa.timestamp("us", tz="UTC"), pa.date32(), [date(2024, 5, 6)], [datetime(2024, 5, 6, tzinfo=UTC)]),
        (pa.float64(), pa.decimal128(4, 2), [Decimal("1.10"), None], [1.1, None]),
        (pa.int64(), pa.decimal128(38, 0), [Decimal(7)], [7]),
        (pa.list_(pa.field("element", pa.int64())), pa.large_list(pa.int8()), [[1, 2]], [[1, 2]]),
        (pa.struct([("a", pa.int64())]), pa.struct([("a", pa.int8())]), [{"a": 1}], [{"a": 1}]),
    ],
)
def test_a_value_that_fits_keeps_its_meaning(
    kind: pa.DataType, given: pa.DataType, values: list[Any], expected: list[Any]
) -> None:
    schema = pa.schema([("id", pa.string()), ("c", kind)])
    assert conform(column(given, values), schema)["c"].to_pylist() == expected


@pytest.mark.parametrize(
    ("kind", "given", "values"),
    [
        (pa.int64(), pa.string(), ["5"]),
        (pa.string(), pa.int64(), [5]),
        (pa.int8(), pa.int64(), [128]),
        (pa.int64(), pa.uint64(), [2**63]),
        (pa.int64(), pa.float64(), [1.0]),
        (pa.int64(), pa.bool_(), [True]),
        (pa.bool_(), pa.int64(), [1]),
        (pa.float64(), pa.int64(), [2**53 + 1]),
        (pa.decimal128(4, 2), pa.int32(), [1000]),
        (pa.decimal128(4, 2), pa.decimal128(6, 4), [Decimal("1.2345")]),
        (pa.decimal128(4, 2), pa.float64(), [1.5]),
        (pa.string(), pa.binary(), [b"x"]),
        (pa.binary(), pa.string(), ["x"]),
        (pa.date32(), pa.timestamp("us"), [datetime(2024, 1, 1)]),
        (pa.timestamp("us", tz="UTC"), pa.int64(), [1]),
        (pa.timestamp("us"), pa.timestamp("us", tz="UTC"), [NOON]),
        (pa.list_(pa.int64()), pa.int64(), [1]),
        (pa.list_(pa.int64()), pa.list_(pa.string()), [["x"]]),
        (pa.struct([("a", pa.int64())]), pa.struct([("a", pa.string())]), [{"a": "x"}]),
        (pa.struct([("a", pa.int64())]), pa.struct([("z", pa.int64())]), [{"z": 1}]),
        (pa.map_(pa.string(), pa.int64()), pa.struct([("k", pa.int64())]), [{"k": 1}]),
    ],
)
def test_a_value_that_does_not_fit_is_refused_by_column(kind: pa.DataType, given: pa.DataType, values: Any) -> None:
    schema = pa.schema([("id", pa.string()), ("c", kind)])
    with pytest.raises(Invalid, match="column c"):
        conform(column(given, values), schema)


def test_a_timestamp_finer_than_microseconds_is_not_rounded_silently() -> None:
    schema = pa.schema([("id", pa.string()), ("c", pa.timestamp("us", tz="UTC"))])
    with pytest.raises(Invalid, match="column c"):
        conform(column(pa.timestamp("ns", tz="UTC"), [1]), schema)


@pytest.mark.parametrize(
    "row",
    [
        {"n": "5"}, {"n": 1.5}, {"n": 2**63}, {"small": 200}, {"x": "1.5"}, {"d": Decimal("1.234")},
        {"d": Decimal(10000)}, {"flag": "true"}, {"raw": "text"}, {"ts": "2024-01-01"}, {"day": "2024-01-01"},
        {"n": True}, {"n": Decimal("1.5")}, {"n": float("nan")}, {"x": True}, {"flag": 1},
        {"ts": 5}, {"day": 5}, {"day": NOON}, {"local": NOON}, {"id": b"x"},
        {"tags": "abc"}, {"tags": [1]}, {"tags": {"a": 1}}, {"tags": 5}, {"map": {"k": "v"}}, {"map": "ab"},
        {"map": [1]}, {"s": 1}, {"s": {"a": "x"}}, {"s": {"a": 1, "unknown": 2}}, {"s": {"a": 1.5}},
    ],
)  # fmt: skip
def test_a_wrong_value_in_a_dict_is_refused_by_column(row: dict[str, Any]) -> None:
    (name,) = row
    with pytest.raises(Invalid, match=f"column {name}"):
        conform([{"id": "a", **row}])


@pytest.mark.parametrize("value", [1e300, -1e300, 3.5e38])
def test_a_number_too_big_for_a_float_is_refused(value: float) -> None:
    schema = pa.schema([("id", pa.string()), ("c", pa.float32())])
    for rows in ([{"c": value}], column(pa.float64(), [value])):
        with pytest.raises(Invalid, match="column c"):
            conform(rows, schema)
    fine = [math.inf, -math.inf, 0.1, 3.4028234e38, None]
    assert conform(column(pa.float64(), fine), schema).equals(conform([{"id": "i", "c": x} for x in fine], schema))


def test_an_aware_time_is_brought_to_utc_and_a_naive_one_taken_for_utc() -> None:
    elsewhere = NOON.astimezone(timezone(timedelta(hours=5, minutes=30)))
    found = conform([{"id": "a", "ts": elsewhere}, {"id": "b", "ts": NOON.replace(tzinfo=None)}])
    assert found["ts"].to_pylist() == [NOON, NOON]


def test_an_unknown_column_is_named() -> None:
    for rows in ([{"id": "a", "other": 1}], pa.table({"id": ["a"], "other": [1]})):
        with pytest.raises(Invalid, match="column other is not in the table"):
            conform(rows)


def test_a_null_where_there_may_be_none_is_named() -> None:
    for rows in ([{"n": 1}, {"id": "a"}], pa.table({"id": [None, "a"]}), pa.table({"n": [1]})):
        with pytest.raises(Invalid, match=r"column id must not be null, but 1 of \d rows"):
            conform(rows)
    only = pa.schema([SCHEMA.field("id")])
    with pytest.raises(Invalid, match="column id"):
        conform(pa.table([pa.array([None], pa.string())], schema=only), only)


@pytest.mark.parametrize("rows", [None, 5, "text", {"id": "a"}, [["a"]], [{"id": "a"}, 5], iter([{"id": "a"}])])
def test_what_is_no_rows_is_refused(rows: object) -> None:
    with pytest.raises(Invalid, match="rows: expected"):
        conform(rows)


def test_the_columns_of_rows() -> None:
    table = pa.table({"a": [1], "b": [2]})
    several: list[Mapping[str, int]] = [{"a": 1}, {"b": 2}]
    for rows in (table, table.to_batches()[0], table.to_reader(), several):
        assert columns_of_rows(rows) == {"a", "b"}
    assert columns_of_rows([]) == columns_of_rows(5) == set()
