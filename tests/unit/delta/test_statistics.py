from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from alluvia.delta.statistics.written import cut_upwards, file_statistics

LAST = "\U0010ffff"


def statistics(table: pa.Table, indexed: int = 32) -> Any:
    return json.loads(file_statistics(table, indexed))


def bounds(kind: pa.DataType, values: list[Any]) -> tuple[Any, Any] | None:
    found = statistics(pa.table({"c": pa.array(values, kind)}))
    assert found["numRecords"] == len(values)
    assert found["nullCount"] == {"c": values.count(None)}
    assert found["minValues"].keys() == found["maxValues"].keys()
    return (found["minValues"]["c"], found["maxValues"]["c"]) if found["minValues"] else None


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        (pa.int64(), [2, None, -(2**63), 2**63 - 1], (-(2**63), 2**63 - 1)),
        (pa.int8(), [5], (5, 5)),
        (pa.float64(), [1.5, -0.25, None], (-0.25, 1.5)),
        (pa.float32(), [0.1], (0.10000000149011612, 0.10000000149011612)),
        (pa.string(), ["b", "a", None, "é"], ("a", "é")),
        (pa.string(), [""], ("", "")),
        (pa.date32(), [date(999, 1, 2), date(2024, 2, 29)], ("0999-01-02", "2024-02-29")),
        (pa.decimal128(10, 2), [Decimal("-1.50"), Decimal("20.00")], (-1.5, 20.0)),
        (pa.bool_(), [True, False], None),
        (pa.binary(), [b"a"], None),
        (pa.list_(pa.int64()), [[1]], None),
        (pa.map_(pa.string(), pa.int64()), [[("a", 1)]], None),
        (pa.int64(), [None, None], None),
        (pa.string(), [], None),
    ],
)
def test_bounds_and_nulls_of_every_type(kind: pa.DataType, values: list[Any], expected: Any) -> None:
    assert bounds(kind, values) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([math.nan, 1.0, 2.0], None),
        ([None, 1.0, 2.0], (1.0, 2.0)),
        ([math.nan], None),
        ([math.nan, None], None),
        ([math.inf, 1.0], None),
        ([-math.inf, 1.0], None),
        ([math.inf, math.nan], None),
        ([0.0, -0.0], (0.0, 0.0)),
    ],
)
@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_nan_and_infinity_leave_no_bounds(kind: pa.DataType, values: list[Any], expected: Any) -> None:
    assert bounds(kind, values) == expected


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [
        ("x" * 32, "x" * 32, "x" * 32),
        ("x" * 33, "x" * 32, "x" * 32 + LAST),
        ("x" * 40, "x" * 32, "x" * 32 + LAST),
        ("x" * 32 + LAST, "x" * 32, "x" * 32 + LAST),
        ("x" * 32 + LAST + "y", "x" * 32, "x" * 32 + LAST + LAST),
        ("x" * 32 + LAST * 3, "x" * 32, "x" * 32 + LAST * 3),
        ("x" * 31 + LAST + "y", "x" * 31 + LAST, "x" * 31 + LAST + LAST),
        ("🌊" * 33, "🌊" * 32, "🌊" * 32 + LAST),
        ("x" * 32 + "\ud7ff", "x" * 32, "x" * 32 + LAST),
        ("x" * 32 + "\ue000", "x" * 32, "x" * 32 + LAST),
        ("x" * 32 + "\uffff", "x" * 32, "x" * 32 + LAST),
    ],
)
def test_long_text_is_cut_down_for_the_minimum_and_up_for_the_maximum(text: str, low: str, high: str) -> None:
    assert bounds(pa.string(), [text]) == (low, high)
    assert low <= text <= high
    assert low.encode() <= text.encode() <= high.encode()
    assert cut_upwards(text) == high


MOMENT = datetime(2024, 5, 6, 7, 8, 9)


@pytest.mark.parametrize(
    ("low_us", "high_us", "low", "high"),
    [
        (0, 0, "09.000", "09.000"),
        (1, 1, "09.000", "09.001"),
        (1999, 1000, "09.001", "09.002"),
        (999, 999_001, "09.000", "10.000"),
        (-1, -1, "08.999", "09.000"),
    ],
)
@pytest.mark.parametrize("zone", [None, "UTC"])
def test_times_are_cut_down_for_the_minimum_and_up_for_the_maximum(
    low_us: int, high_us: int, low: str, high: str, zone: str | None
) -> None:
    values = [MOMENT + timedelta(microseconds=us) for us in (low_us, high_us)]
    if zone:
        values = [value.replace(tzinfo=UTC) for value in values]
    found = bounds(pa.timestamp("us", tz=zone), values)
    suffix = "Z" if zone else ""
    assert found == (f"2024-05-06T07:08:{low}{suffix}", f"2024-05-06T07:08:{high}{suffix}")


def test_times_before_1970_and_at_the_ends_of_time() -> None:
    zone = pa.timestamp("us", tz="UTC")
    assert bounds(zone, [-1]) == ("1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.000Z")
    last = datetime.max.replace(tzinfo=UTC)
    assert bounds(zone, [datetime.min.replace(tzinfo=UTC), last]) == (
        "0001-01-01T00:00:00.000Z",
        "9999-12-31T23:59:59.999Z",
    )
    for beyond in (300_000_000_000_000_000, -300_000_000_000_000_000):
        assert bounds(zone, [beyond]) is None
    assert bounds(pa.date32(), [10_000_000]) is None


def test_nested_fields_have_their_own_bounds_and_count_the_nulls_of_their_parents() -> None:
    rows: list[dict[str, Any]] = [
        {"s": {"a": 1, "t": {"b": "x"}}, "l": [1]},
        {"s": {"a": None, "t": None}, "l": None},
        {"s": None},
    ]
    kind = pa.struct([("a", pa.int64()), ("t", pa.struct([("b", pa.string())]))])
    found = statistics(pa.Table.from_pylist(rows, pa.schema([("s", kind), ("l", pa.list_(pa.int64()))])))
    assert found["minValues"] == found["maxValues"] == {"s": {"a": 1, "t": {"b": "x"}}}
    assert found["nullCount"] == {"s": {"a": 2, "t": {"b": 2}}, "l": 2}


def test_only_the_first_leaves_are_covered() -> None:
    table = pa.table({"a": [1], "s": [{"x": 1, "y": 2}], "b": [3]})
    assert statistics(table, 2)["nullCount"] == {"a": 0, "s": {"x": 0}}
    assert statistics(table, 0) == {"numRecords": 1, "minValues": {}, "maxValues": {}, "nullCount": {}}
    assert statistics(table, 100)["nullCount"] == {"a": 0, "s": {"x": 0, "y": 0}, "b": 0}


def test_a_column_may_be_in_several_chunks() -> None:
    table = pa.concat_tables([pa.table({"c": ["b", "z"]}), pa.table({"c": ["a"]})])
    assert statistics(table)["minValues"] == {"c": "a"}
    assert statistics(table)["maxValues"] == {"c": "z"}
