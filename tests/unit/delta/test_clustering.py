"""The order of clustered rows: a curve whose steps are short, through values of any type."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise, product
from typing import Any

import pyarrow as pa
import pytest

from alluvia.delta.clustering import SAMPLE_ROWS, Curve, cell_of, cluster_tag, part_cell, sampled
from alluvia.delta.log.actions import AddFile


def in_order(rows: pa.Table) -> list[tuple[Any, ...]]:
    """Return rows in the order of a curve through all columns."""
    places = Curve(rows).places(rows.columns).to_pylist()
    tuples = list(zip(*(column.to_pylist() for column in rows.columns), strict=True))
    return [tuples[at] for at in sorted(range(len(tuples)), key=lambda at: places[at])]


@pytest.mark.parametrize(("columns", "values"), [(2, 32), (3, 16), (4, 8)])
def test_each_step_along_the_curve_changes_one_value_by_one(columns: int, values: int) -> None:
    grid = list(product(range(values), repeat=columns))
    random.Random(3).shuffle(grid)
    found = in_order(
        pa.table([list(column) for column in zip(*grid, strict=True)], [f"c{at}" for at in range(columns)])
    )
    assert sorted(found) == sorted(grid)
    for one, other in pairwise(found):
        assert sum(abs(a - b) for a, b in zip(one, other, strict=True)) == 1


TYPES: dict[str, tuple[pa.DataType, Sequence[object]]] = {
    "whole numbers": (pa.int64(), [-(1 << 63), -5, 0, 7, (1 << 63) - 1]),
    "bytes": (pa.int8(), [-128, -1, 0, 127]),
    "texts that begin alike": (pa.string(), ["", "user", *(f"user-0000000000{at}" for at in range(10)), "é", "𝄞"]),
    "floating point": (pa.float64(), [float("-inf"), -1.5, 0.0, 1e300, float("nan")]),
    "half the precision": (pa.float32(), [-1.5, 0.25, 2.0]),
    "decimals": (pa.decimal128(38, 10), [Decimal("-1e27"), Decimal("0.0000000001"), Decimal(5), Decimal("1e27")]),
    "days": (pa.date32(), [date(1, 1, 1), date(1969, 12, 31), date(2024, 2, 29), date(9999, 12, 31)]),
    "times": (pa.timestamp("us", "UTC"), [datetime(1, 1, 1, tzinfo=UTC), datetime(2024, 5, 6, 7, tzinfo=UTC)]),
    "local times": (pa.timestamp("us"), [datetime(1960, 1, 1), datetime(2024, 5, 6) + timedelta(microseconds=1)]),
}


@pytest.mark.parametrize("name", TYPES)
def test_values_of_a_type_keep_their_order_and_null_is_last(name: str) -> None:
    kind, values = TYPES[name]
    expected = [*values, None]
    column = pa.array([expected[(at * 7) % len(expected)] for at in range(5 * 7 * len(expected))], kind)
    places = Curve(pa.table({"c": column, "same": pa.repeat(pa.scalar("x"), len(column))})).places(
        [pa.chunked_array([pa.array(expected, kind)]), pa.chunked_array([pa.array(["x"] * len(expected))])]
    )
    assert all(one < other for one, other in pairwise(places.to_pylist()))


def test_columns_without_two_values_leave_the_order_to_the_others() -> None:
    nothing = {"null": pa.nulls(500, pa.int64()), "same": pa.array([3] * 500)}
    mixed = pa.array([(at * 37) % 500 for at in range(500)])
    assert [row[1] for row in in_order(pa.table({"null": nothing["null"], "n": mixed, "same": nothing["same"]}))] == [
        *range(500)
    ]
    assert len(in_order(pa.table(nothing))) == 500
    assert in_order(pa.table(nothing).slice(0, 0)) == []


def test_few_values_among_nulls_are_told_apart() -> None:
    """Ranks among the values alone would give all nulls one place and half of the curve to them."""
    values: list[int | None] = [None] * 950 + list(range(50))
    rows = pa.table({"v": values, "w": [1] * 1000})
    places = Curve(rows).places(rows.columns)
    assert len(set(places.to_pylist()[950:])) == 50


def test_values_that_no_sample_has_lie_between_those_that_it_has() -> None:
    sample = pa.table({"v": list(range(0, 1000, 10)), "w": [1] * 100})
    asked = [-5, 0, 4, 500, 504, 990, 2000]
    places = Curve(sample).places(pa.table({"v": asked, "w": [1] * len(asked)}).columns).to_pylist()
    assert places == sorted(places)


def test_a_sample_follows_no_period_of_the_rows() -> None:
    rows = pa.table({"n": [at % 64 for at in range(20 * SAMPLE_ROWS)]})
    found = sampled(rows)["n"].to_pylist()
    assert len(found) == SAMPLE_ROWS
    assert all(0.8 < found.count(value) * 64 / SAMPLE_ROWS < 1.25 for value in range(64))


def test_cells_are_parts_of_cells() -> None:
    assert [part_cell("", at, 8) for at in (0, 3, 7)] == ["0", "3", "7"]
    assert [part_cell("5", at, 4) for at in range(4)] == ["50", "52", "54", "56"]
    assert [part_cell("", at, 9) for at in (0, 1, 8)] == ["00", "07", "70"]
    assert part_cell("", 0, 1) == "0"
    assert len({part_cell("", at, 65) for at in range(65)}) == 65


def test_a_cell_counts_for_the_columns_by_which_it_was_made() -> None:
    columns = ["a", 'quoted "b"']
    file = AddFile("f", {}, 1, 1, data_change=True, tags={"alluvia.cluster": cluster_tag(columns, "07")})
    assert cell_of(file, columns) == "07"
    assert cell_of(file, ["a"]) == cell_of(file, []) == ""
    assert cell_of(AddFile("f", {}, 1, 1, data_change=True), columns) == ""
