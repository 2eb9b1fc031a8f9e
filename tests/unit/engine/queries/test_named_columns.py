"""The columns that a query can mean: DuckDB must give the same answer if the tables have no others."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from alluvia.engine.queries.named_columns import named_columns, result_columns
from alluvia.engine.queries.parse import parse
from alluvia.engine.queries.references import find_references

T = pa.table({"a": [1, 2, 2], "b": [3, 4, 5], "s": [{"x": 1, "b": 2}] * 3, "l": [[1], [2], []], "Größe": [1, 2, 3]})
U = pa.table({"a": [2, 3], "c": [7, 8], "d": [1, 2]})
TABLES = {"t": T, "u": U}

NARROW = {
    "SELECT count(*) FROM t": set(),
    "SELECT a FROM t WHERE current_date > DATE '2020-01-01' ORDER BY a": {"a"},
    "SELECT sum(b) FROM t WHERE a = 2": {"a", "b"},
    "SELECT x.b FROM t x JOIN u y USING (a) ORDER BY y.c": {"a", "b", "c"},
    "SELECT t.s.x, GRößE FROM t ORDER BY 1, 2": {"s", "größe"},
    "SELECT s.b FROM t ORDER BY 1": {"s", "b"},
    "SELECT list_transform(l, lambda b: b + 1) AS m FROM t ORDER BY m": {"l", "b"},
    "SELECT [z + 1 FOR z IN l] AS m FROM t ORDER BY m": {"l"},
    "WITH v(k) AS (SELECT a FROM t) SELECT k, count(*) AS n FROM v GROUP BY k HAVING n > 0 ORDER BY k": {"a"},
    "SELECT sum(a) OVER w FROM t WINDOW w AS (ORDER BY b)": {"a", "b"},
    "SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE u.a = t.a)": {"a"},
    "SELECT main.t.a FROM main.t ORDER BY 1": {"a"},
    "WITH v(k) AS (SELECT a FROM t) SELECT v.k FROM v ORDER BY 1": {"a"},
    "WITH v AS (SELECT a AS k, b FROM t) SELECT v FROM v ORDER BY k": {"a", "b"},
    "SELECT a, count(*) AS n FROM t GROUP BY ALL ORDER BY 1": {"a"},
    "SELECT t.a, d FROM t POSITIONAL JOIN u ORDER BY 1, 2": {"a", "d"},
    "SELECT a AS k, k + 1 AS next FROM t ORDER BY next": {"a"},
    "SELECT max(a) FROM t QUALIFY row_number() OVER () = 1": {"a"},
    "SELECT a FROM t UNION ALL BY NAME SELECT c FROM u ORDER BY 1": {"a", "c"},
    "SELECT unnest(l) AS e FROM t ORDER BY e": {"l"},
    "SELECT x FROM t, unnest(l) AS g(x) ORDER BY x": {"l"},
}
ANY = (
    "FROM t",
    "SELECT t.* EXCLUDE (a) FROM t",
    "SELECT COLUMNS('a|b') FROM t",
    "SELECT t FROM t",
    "SELECT x FROM t x",
    "SELECT row_to_json(t) FROM t",
    "SELECT count(DISTINCT t) FROM t",
    "SELECT main.t AS t FROM main.t",
    "SELECT s.t FROM t",
    "SELECT j FROM (t JOIN u ON true) AS j",
    "SELECT p, b FROM t(version => 1) AS x(p)",
    "SELECT count(*) FROM (TABLE t)",
    "SELECT unnest(t) FROM t",
    "SELECT t::VARCHAR FROM t",
    "FROM t UNPIVOT (v FOR k IN (a, b))",
    "SUMMARIZE t",
    "SELECT count(COLUMNS(*)) FROM t",
    "SELECT rowid FROM t",
    "SELECT (SELECT t FROM u LIMIT 1) FROM t",
    "SELECT list(x) FROM t AS x",
    "SELECT a FROM t NATURAL JOIN u",
    "SELECT #2 FROM t",
    "SELECT q FROM t AS x(p, q)",
    "FROM t PIVOT (sum(b) FOR a IN (1, 2))",
    "DESCRIBE t",
    "SELECT e FROM t",
    "SELECT t.c FROM t JOIN u ON true",
    "SELECT a FROM t WHERE nope.x = 1",
)


def meant(text: str) -> frozenset[str] | None:
    root = parse(text).root
    references = find_references(root).tables
    return named_columns(root, {each: TABLES[str(each.table)].schema for each in references})


def answer(text: str, names: frozenset[str] | None) -> list[tuple[object, ...]]:
    with duckdb.connect(":memory:") as connection:
        for name, table in TABLES.items():
            kept = [one for one in table.column_names if names is None or one.lower() in names]
            connection.register(name, table.select(kept or table.column_names[:1]))
        return connection.execute(text).fetchall()


@pytest.mark.parametrize("text", NARROW)
def test_a_query_needs_only_the_columns_that_it_names(text: str) -> None:
    names = meant(text)
    assert names is not None
    columns = {one.lower() for table in TABLES.values() for one in table.column_names}
    assert names & columns == NARROW[text]
    assert answer(text, names) == answer(text, None)


@pytest.mark.parametrize("text", ANY)
def test_a_query_that_can_mean_any_column_keeps_all_columns(text: str) -> None:
    assert meant(text) is None


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT sum(b), max(c) FROM t JOIN u USING (a) WHERE d > 1", {"b", "c"}),
        ("SELECT a, b AS k, c FROM t, u WHERE k > 1", {"a", "c"}),  # b is k
        ("SELECT b, sum(a) AS n FROM t GROUP BY b ORDER BY n LIMIT 1", {"b"}),
        ("SELECT b, sum(a) FROM t GROUP BY b HAVING sum(a) > 1", {"b"}),
        ("SELECT a, b FROM t ORDER BY 1 LIMIT 1", None),
        ("SELECT a, x FROM (SELECT a, b AS x FROM t) WHERE x > 1", None),
        ("WITH v AS (SELECT a AS k, b FROM t) SELECT b FROM v WHERE k > 1", None),
        ("SELECT a FROM t UNION ALL SELECT a FROM u", None),
        ("SELECT a, (SELECT max(c) FROM u WHERE u.a = t.a) FROM t", None),
    ],
)
def test_columns_of_which_only_the_result_is_made(query: str, expected: set[str] | None) -> None:
    found = result_columns(parse(query).root)
    assert (None if found is None else set(found)) == expected
