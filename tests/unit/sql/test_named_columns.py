"""Names of columns in front of AS, in CREATE TABLE and CREATE VIEW, mean what they mean in DuckDB."""

from __future__ import annotations

import duckdb
import pytest

from alluvia.errors import AlluviaError
from tests.same_in_duckdb import in_both

QUERIES = (
    "SELECT 1 AS x, 'y' AS y",
    "VALUES (1, 2), (3, 4)",
    "WITH k AS (SELECT 1 AS x) SELECT x, 2 AS y FROM k -- end",
)


@pytest.mark.parametrize("kind", ["TABLE", "VIEW"])
@pytest.mark.parametrize("names", ["(a, b)", "(a)", '("A", "select")'])
@pytest.mark.parametrize("query", QUERIES)
def test_names_are_given_in_order(kind: str, names: str, query: str) -> None:
    lake, judge = in_both(f"{kind}{names}{query}", f"CREATE {kind} made{names} AS {query}")
    expected = judge.execute("FROM made ORDER BY ALL").to_arrow_table()
    answer = lake.sql("FROM made ORDER BY ALL")
    assert (answer.column_names, answer.to_pydict()) == (expected.column_names, expected.to_pydict())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("CREATE TABLE made(a, b, c) AS SELECT 1, 2", "names 3 columns (a, b, c), but the SELECT has 2"),
        ("CREATE TABLE made(a, A) AS SELECT 1, 2", "has two columns a: name them apart"),
        ("CREATE TABLE made(y) AS SELECT 1 AS x, 2 AS y", "has two columns y: name them apart"),
        ("CREATE VIEW made(a, b, c) AS SELECT 1, 2", "2 columns available but 3 columns specified"),
    ],
)
def test_names_must_fit_the_query(text: str, message: str) -> None:
    lake, judge = in_both(text)
    with pytest.raises(duckdb.Error):
        judge.execute(text)
    with pytest.raises(AlluviaError) as raised:
        lake.sql(text)
    assert message in str(raised.value)
    assert lake.tables() == []
