"""Values for parameters: by place or by name, plain, and no more than fit."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from alluvia.errors import Invalid
from alluvia.flight.prepared import SETS_MAX, VALUES_MAX, Prepared, fitted

TEXT = "SELECT $b, $a"


def bound(text: str, rows: pa.Table | None) -> list[dict[str, Any] | None]:
    prepared = Prepared(text, b"", is_query=True, columns=pa.schema([]), rows=fitted(text, rows))
    found = prepared.sets()
    assert prepared.runs == len(found)
    return found


@pytest.mark.parametrize(
    ("text", "names", "expected"),
    [
        ("SELECT ?, ?", ["0", "1"], {"1": 1, "2": 2}),
        ("SELECT ?, ?", ["same", "same"], {"1": 1, "2": 2}),
        (TEXT, ["a", "b"], {"a": 1, "b": 2}),
        (TEXT, ["$a", "$b"], {"a": 1, "b": 2}),
        (TEXT, ["x", "y"], {"b": 1, "a": 2}),
    ],
)
def test_by_name_else_by_place(text: str, names: list[str], expected: dict[str, Any]) -> None:
    rows = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names)
    assert bound(text, rows) == [expected]


def test_nothing_bound() -> None:
    assert bound("SELECT 1", None) == [None]
    assert bound("SELECT 1", pa.table({})) == [None]
    assert bound("SELECT ?", pa.table({"1": pa.array([], pa.int64())})) == []


def test_moments() -> None:
    whole, finer = (pa.array([value], pa.timestamp("ns", "UTC")) for value in (1_000, 1))
    assert bound("SELECT ?", pa.table({"1": whole})) == [{"1": datetime(1970, 1, 1, 0, 0, 0, 1, UTC)}]
    with pytest.raises(Invalid, match="parameter 1"):
        bound("SELECT ?", pa.table({"1": finer}))


ENDLESS = pa.ListArray.from_arrays(pa.array([0, VALUES_MAX], pa.int32()), pa.nulls(VALUES_MAX))


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (pa.nulls(SETS_MAX + 1), "more than the limit of 100000"),
        (ENDLESS, "more than 1000000 values"),
        (pa.array([1 << 60], pa.timestamp("s")), "parameter 1 has a value"),
        (pa.array(["x"]).dictionary_encode(), "dictionary"),
        (pa.RunEndEncodedArray.from_arrays([1], ["x"]), "run_end_encoded"),
        (pa.array(["x"], pa.string_view()), "string_view"),
        (pa.array([["x"]], pa.list_(pa.dictionary(pa.int8(), pa.string()))), "dictionary"),
        (pa.array([1], pa.duration("s")), "duration"),
    ],
)
def test_values_that_would_take_more_than_they_seem_to(column: pa.Array, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        bound("SELECT ?", pa.table({"1": column}))


def test_the_number_of_values_must_fit() -> None:
    with pytest.raises(Invalid, match="2 parameters, and 1 values"):
        bound(TEXT, pa.table({"a": [1]}))


def test_values_are_counted_in_all_columns() -> None:
    columns = {str(number): pa.nulls(SETS_MAX) for number in range(1, VALUES_MAX // SETS_MAX + 2)}
    with pytest.raises(Invalid, match="more than 1000000 values"):
        fitted(f"SELECT {', '.join('?' * len(columns))}", pa.table(columns))


def test_columns_of_the_same_bytes() -> None:
    column = pa.array([b"x" * (8 << 20)])
    with pytest.raises(Invalid, match="more than 20971520 bytes"):
        fitted("SELECT ?, ?, ?", pa.table(dict.fromkeys("abc", column)))
