from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from alluvia.delta.file_schema_adapter import ReadPlan, fit_array
from alluvia.delta.log.actions import AddFile
from alluvia.delta.schema.column_mapping import FIELD_ID, ColumnMapping
from alluvia.errors import Corrupt

ZONED = pa.timestamp("us", tz="UTC")
NAIVE = pa.timestamp("us")
FILE = AddFile("part.parquet", {"col-p": "7"}, 1, 1, data_change=True)


def fitted(array: pa.Array, kind: pa.DataType) -> list[Any]:
    found = fit_array(array, kind, kind, ColumnMapping.NONE)
    found.validate(full=True)
    assert found.type == kind
    values: list[Any] = found.to_pylist()
    return values


@pytest.mark.parametrize(
    ("array", "kind", "values"),
    [
        (pa.array([1, None], pa.int8()), pa.int64(), [1, None]),
        (pa.array([7], pa.int64()), pa.int8(), [7]),
        (pa.array([1], pa.int32()), pa.float64(), [1.0]),
        (pa.array([1.5], pa.float32()), pa.float64(), [1.5]),
        (pa.array([5], pa.int32()), pa.decimal128(10, 2), [Decimal("5.00")]),
        (pa.array([5], pa.int64()), pa.decimal128(38, 20), [Decimal(5)]),
        (pa.array([Decimal("1.25")], pa.decimal128(3, 2)), pa.decimal128(10, 4), [Decimal("1.25")]),
        (pa.array([b"x"], pa.binary()), pa.string(), ["x"]),
        (pa.array([b"xy"], pa.binary(2)), pa.binary(), [b"xy"]),
        (pa.array(["x"], pa.large_string()), pa.string(), ["x"]),
        (pa.array(["x", "x"]).dictionary_encode(), pa.string(), ["x", "x"]),
        (pa.array([date(2020, 1, 2)]), NAIVE, [datetime(2020, 1, 2)]),
        (pa.array([-1], pa.timestamp("ns")), ZONED, [datetime(1970, 1, 1, tzinfo=UTC) - timedelta(microseconds=1)]),
        (pa.array([1], pa.timestamp("ms", tz="Europe/Paris")), NAIVE, [datetime(1970, 1, 1, 0, 0, 0, 1000)]),
        (pa.array([1], NAIVE), ZONED, [datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)]),
        (pa.nulls(2), pa.int8(), [None, None]),
        (pa.array([[1], None], pa.list_(pa.int8(), 1)), pa.list_(pa.int32()), [[1], None]),
        (pa.array([[("k", 1)]], pa.list_(pa.struct({"a": pa.string(), "b": pa.int8()}))),
         pa.map_(pa.string(), pa.int32()), [[("k", 1)]]),
    ],
)  # fmt: skip
def test_a_file_may_store_a_type_in_another_way(array: pa.Array, kind: pa.DataType, values: list[Any]) -> None:
    assert fitted(array, kind) == values


@pytest.mark.parametrize(
    ("array", "kind"),
    [
        (pa.array(["5"]), pa.int64()),
        (pa.array([5]), pa.string()),
        (pa.array([300], pa.int32()), pa.int8()),
        (pa.array([1.5], pa.float64()), pa.float32()),
        (pa.array([1.0], pa.float64()), pa.int64()),
        (pa.array([500], pa.int64()), pa.decimal128(3, 1)),
        (pa.array([Decimal("1.25")], pa.decimal128(3, 2)), pa.decimal128(3, 1)),
        (pa.array([b"\xff"], pa.binary()), pa.string()),
        (pa.array([date(2020, 1, 1)]), ZONED),
        (pa.array([1], pa.int64()), ZONED),
        (pa.array([True]), pa.int8()),
        (pa.array([1]), pa.struct({"a": pa.int64()})),
        (pa.array([1]), pa.list_(pa.int64())),
        (pa.array([1]), pa.map_(pa.int64(), pa.int64())),
        (pa.array([{"a": "x"}]), pa.struct({"a": pa.int64()})),
    ],
)
def test_a_value_that_would_change_its_meaning_is_refused(array: pa.Array, kind: pa.DataType) -> None:
    plan = ReadPlan(pa.schema({"c": kind}), pa.schema({"c": kind}), frozenset())
    with pytest.raises(Corrupt, match=r"data file part.parquet: column c does not fit the table"):
        plan.fit(pa.record_batch({"c": array}), FILE)


OLD = pa.struct({"a": pa.int32(), "gone": pa.string()})
NEW = pa.struct({"b": pa.string(), "a": pa.int64()})
NESTED = [
    (
        pa.array([{"a": 1, "gone": "x"}, None, {"a": None}], OLD),
        NEW,
        [{"b": None, "a": 1}, None, {"b": None, "a": None}],
    ),
    (
        pa.array([[{"a": 1}], None, [], [None, {"a": 2}]], pa.list_(OLD)),
        pa.list_(pa.field("element", NEW)),
        [[{"b": None, "a": 1}], None, [], [None, {"b": None, "a": 2}]],
    ),
    (
        pa.array([[("k", {"a": 1})], None, [], [("l", None)]], pa.map_(pa.string(), OLD)),
        pa.map_(pa.string(), NEW),
        [[("k", {"b": None, "a": 1})], None, [], [("l", None)]],
    ),
]


@pytest.mark.parametrize(("array", "kind", "values"), NESTED)
def test_fields_come_and_go_within_nested_types(array: pa.Array, kind: pa.DataType, values: list[Any]) -> None:
    assert fitted(array, kind) == values
    for start in range(len(values)):
        assert fitted(array.slice(start, 2), kind) == values[start : start + 2]


def with_id(name: str, kind: pa.DataType, identity: int) -> pa.Field:
    return pa.field(name, kind, metadata={FIELD_ID: str(identity).encode()})


LOGICAL = pa.schema({"id": pa.int64(), "s": pa.struct({"x": pa.int64()}), "p": pa.int32(), "new": pa.string()})
PHYSICAL = pa.schema(
    [
        with_id("col-1", pa.int64(), 1),
        with_id("col-2", pa.struct([with_id("col-3", pa.int64(), 3)]), 2),
        with_id("col-p", pa.int32(), 4),
        with_id("col-5", pa.string(), 5),
    ]
)


def test_columns_are_found_by_their_physical_names() -> None:
    plan = ReadPlan(LOGICAL, PHYSICAL, frozenset({"p"}), ColumnMapping.NAME)
    stored = pa.schema({"id": pa.string(), "COL-2": pa.struct({"col-3": pa.int64()}), "col-1": pa.int64()})
    assert plan.stored_names(stored, FILE) == ["col-1", "COL-2"]
    batch = pa.record_batch([pa.array([1]), pa.array([{"col-3": 2}])], names=["col-1", "COL-2"])
    assert plan.fit(batch, FILE).to_pylist() == [{"id": 1, "s": {"x": 2}, "p": 7, "new": None}]


def test_columns_are_found_by_their_ids_whatever_their_names() -> None:
    plan = ReadPlan(LOGICAL, PHYSICAL, frozenset({"p"}), ColumnMapping.ID)
    stored = pa.schema(
        [
            with_id("col-1", pa.string(), 9),
            with_id("q", pa.struct([with_id("z", pa.int64(), 3)]), 2),
            with_id("r", pa.int64(), 1),
        ]
    )
    assert plan.stored_names(stored, FILE) == ["r", "q"]
    batch = pa.record_batch([pa.array(["?"]), pa.array([{"z": 2}], stored.field(1).type), pa.array([1])], schema=stored)
    assert plan.fit(batch, FILE).to_pylist() == [{"id": 1, "s": {"x": 2}, "p": 7, "new": None}]


def test_a_file_without_ids_is_refused_where_ids_count() -> None:
    plan = ReadPlan(LOGICAL, PHYSICAL, frozenset({"p"}), ColumnMapping.ID)
    with pytest.raises(Corrupt, match="no field ids"):
        plan.stored_names(pa.schema({"col-1": pa.int64()}), FILE)


def test_a_name_that_could_be_two_columns_is_refused() -> None:
    plan = ReadPlan(pa.schema({"a": pa.int64()}), pa.schema({"a": pa.int64()}), frozenset())
    assert plan.stored_names(pa.schema([("A", pa.int64()), ("a", pa.int64())]), FILE) == ["a"]
    with pytest.raises(Corrupt, match="has the column a 2 times"):
        plan.stored_names(pa.schema([("a", pa.int64()), ("a", pa.int64())]), FILE)
