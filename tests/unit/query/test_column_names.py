"""Columns without an alias are called as in DuckDB, also those made of subqueries."""

from __future__ import annotations

import json

import pytest

from alluvia.query.engine import columns, run_rendered
from alluvia.query.formats import NDJSON
from tests.same_in_duckdb import Both, in_both

QUERIES = [
    "SELECT (SELECT max(v) FROM t), count(*) FROM t",
    "SELECT (SELECT count(*) FROM t) + 1",
    "SELECT EXISTS (SELECT 1 FROM t), EXISTS (FROM t AS e WHERE e.id = 1)",
    "SELECT id IN (SELECT id FROM t WHERE v > 1), id NOT IN (FROM u) FROM t ORDER BY id",
    "SELECT id = ANY (SELECT id FROM u), id < ALL (SELECT id + 1 FROM u) FROM t ORDER BY id",
    "SELECT (SELECT max(x.v) FROM t AS x JOIN u y ON x.id = y.id), [1, 2], {'a': 1} FROM u",
    'SELECT (SELECT max("V") FROM "t" WHERE t.id = u.id) FROM u',
    "SELECT (SELECT max(v) FROM main.t), (SELECT max(t.v) FROM main.t AS t) FROM u",
    "SELECT (SELECT sum(a) FROM t AS s(a, b)), (SELECT max(v) FROM (SELECT * FROM t)) FROM u",
    "SELECT * FROM (SELECT (SELECT max(v) FROM t), 1 FROM u)",
    "WITH k AS (SELECT (SELECT count(*) FROM t)) SELECT * FROM k, u",
    "SELECT (SELECT max(v) FROM t) UNION ALL SELECT 1",
    "SELECT CASE WHEN EXISTS (FROM t) THEN (SELECT min(id) FROM t) ELSE 0 END, id::VARCHAR, -id, id + 1 FROM u",
    "SELECT list_cosine_similarity([1, 2], [1, 2]), count(DISTINCT id), id % 2 = 0 FROM t GROUP BY ALL ORDER BY 3",
    "SELECT ARRAY(SELECT id FROM t ORDER BY id), (SELECT id FROM t ORDER BY id LIMIT 1) FROM u",
    "SELECT sum(v) OVER (ORDER BY id), (SELECT sum(v) FILTER (id > 1) FROM t) FROM t ORDER BY id",
]


@pytest.fixture(scope="module")
def both() -> Both:
    return in_both(
        "columns",
        "CREATE TABLE t (id INT, v INT)",
        "CREATE TABLE u (id INT)",
        "INSERT INTO t VALUES (1, 3), (2, 5)",
        "INSERT INTO u VALUES (2)",
    )


@pytest.mark.parametrize("query", QUERIES)
def test_columns_have_duckdbs_names(both: Both, query: str) -> None:
    lake, judge = both
    expected = judge.execute(query).to_arrow_table()
    answer = lake.sql(query)
    assert answer.column_names == expected.column_names
    assert answer.to_pylist() == expected.to_pylist()
    assert columns(lake.catalog, query).names == expected.column_names
    rendered = run_rendered(lake.catalog, query, NDJSON, 10_000).body
    assert [list(json.loads(line)) for line in rendered.splitlines()][:1] == [expected.column_names]


def test_versions_and_functions_are_shown_by_name(both: Both) -> None:
    lake, _ = both
    query = "SELECT (SELECT max(v) FROM t(version => 1)), (SELECT max(version) FROM history('t'))"
    assert lake.sql(query).column_names == [
        "(SELECT max(v) FROM t)",
        "(SELECT max(\"version\") FROM history('t'))",
    ]


def test_descriptions_have_these_names(both: Both) -> None:
    lake, judge = both
    query = "DESCRIBE SELECT (SELECT max(v) FROM t), id FROM u"
    assert lake.sql(query)["column_name"].to_pylist() == [row[0] for row in judge.execute(query).fetchall()]
