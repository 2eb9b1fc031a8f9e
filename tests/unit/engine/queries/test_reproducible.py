"""Which aggregates give the same rows the same value, in whatever order they come: asked of DuckDB itself."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations

import duckdb
import pytest

from alluvia.engine.queries.parse import parse
from alluvia.engine.queries.reproducible import expressions

ROWS = ["(3, 1, 'b')", "(1, 1, 'a')", "(2, 1, 'c')", "(3, 0, 'B')", "(1, 0, 'x')"]
ORDERS = [f"(VALUES {', '.join(each)}) t(x, y, s)" for each in list(permutations(ROWS))[::9]]
ROUGH = {"corr", "covar", "kurtosis", "regr", "sem", "skewness", "stddev", "var"}
"""Of numbers that are rounded, and differ in the last digits."""


@pytest.fixture(scope="module")
def plain() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        yield connection


def values(plain: duckdb.DuckDBPyConnection, call: str) -> set[str]:
    return {str(plain.execute(f"SELECT {call} FROM {rows}").fetchall()) for rows in ORDERS}


def reasons(call: str) -> list[str]:
    return [why for _, why in expressions(parse(f"SELECT {call} FROM t").root)]


def test_an_aggregate_whose_value_depends_on_the_order_is_known(plain: duckdb.DuckDBPyConnection) -> None:
    names = plain.execute(
        "SELECT DISTINCT function_name FROM duckdb_functions() WHERE function_type = 'aggregate' "
        "OR function_name LIKE 'json_group%' ORDER BY 1"
    ).fetchall()
    found = set()
    for (name,) in names:
        for arguments in ("x", "s", "s, y", "x, 2"):
            call = f"{name}({arguments})"
            try:
                varies = len(values(plain, call)) > 1
            except duckdb.Error:  # it does not take these
                continue
            if varies and name.partition("_")[0] not in ROUGH and name != "variance":
                found.add(name)
                assert reasons(call), call
    assert {"any_value", "approx_top_k", "arg_min", "first", "json_group_array", "list", "mode", "string_agg"} <= found


@pytest.mark.parametrize(
    "call",
    [
        "list(s ORDER BY s)",
        "list(s ORDER BY y, s)",
        "list(lower(s) ORDER BY y, s)",
        "array_agg({'s': s, 'y': y} ORDER BY x, s, y)",
        "string_agg(s, ',' ORDER BY s DESC)",
        "arg_max(s, y ORDER BY s)",
        "arg_min(s, (y, s))",
        "max_by(s, y, 2 ORDER BY s)",
        "mode(x ORDER BY x)",
        "first(upper(s) ORDER BY y, upper(s))",
        "approx_top_k(s, 3 ORDER BY s)",
        "max(x)",
        "histogram(s)",
        "count(DISTINCT x)",
    ],
)
def test_an_order_of_what_an_aggregate_takes_makes_it_reproducible(plain: duckdb.DuckDBPyConnection, call: str) -> None:
    assert reasons(call) == []
    assert len(values(plain, call)) == 1


@pytest.mark.parametrize("call", ["list(s ORDER BY y)", "arg_max(s, y ORDER BY y)", "list(s ORDER BY x > 1)"])
def test_an_order_in_which_rows_tie_does_not(plain: duckdb.DuckDBPyConnection, call: str) -> None:
    assert reasons(call) == ["ties"]
    assert len(values(plain, call)) > 1
