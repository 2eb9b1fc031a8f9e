"""The columns of a query without a run: the same as its answer's, and no data file is opened."""

from __future__ import annotations

import pytest

from alluvia.access.rights import Grant, Rights
from alluvia.api.lake import Lake
from alluvia.clock import SystemClock
from alluvia.errors import Forbidden, Invalid, TableNotFound
from alluvia.query.engine import columns, run
from alluvia.query.limits import QueryLimits
from alluvia.query.permitted import permitted
from alluvia.store import CountingStore, MemoryStore


@pytest.fixture(scope="module")
def store() -> CountingStore:
    return CountingStore(MemoryStore("columns", SystemClock()))


@pytest.fixture(scope="module")
def tables(store: CountingStore) -> Lake:
    lake = Lake(store, SystemClock())
    lake.create_table("t", {"id": "long", "name": "string", "day": "date"}).append([{"id": 1, "name": "a"}])
    lake.sql("CREATE VIEW v AS SELECT id, id AS twice FROM t")
    return lake


@pytest.mark.parametrize(
    "query",
    [
        *("SELECT * FROM t", "SELECT a.*, b.id FROM t a, t b", "FROM v", "TABLE t", "VALUES (1, 'x')"),
        *("SELECT 1 AS a, 2 AS a", "SELECT {'x': [1]} AS s, uuid(), 1::HUGEINT, NULL", "(SELECT 1) UNION ALL SELECT 2"),
        *("SHOW TABLES", "DESCRIBE t", "SUMMARIZE t", "EXPLAIN SELECT * FROM t", "-- so\nSELECT id FROM t; -- it is"),
    ],
)
def test_they_are_those_of_the_answer(tables: Lake, query: str) -> None:
    with run(tables.catalog, query) as result:
        expected = result.schema
    assert columns(tables.catalog, query) == expected


def test_parameters_need_no_values(tables: Lake) -> None:
    found = columns(
        tables.catalog, "SELECT id, name || ? AS text FROM t WHERE id = ? LIMIT ?", None, dict.fromkeys("123")
    )
    assert found.names == ["id", "text"]
    assert columns(tables.catalog, "SELECT ? AS x", None, [1.5]) == columns(tables.catalog, "SELECT 1.5::DOUBLE AS x")


def test_no_data_file_is_opened(tables: Lake, store: CountingStore) -> None:
    columns(tables.catalog, "SELECT * FROM t")
    store.reset()
    columns(tables.catalog, "SELECT * FROM t WHERE id = 1")
    assert [key for _, key in store.keys if key.endswith(".parquet")] == []
    run(tables.catalog, "SELECT * FROM t WHERE id = 1").read_all()
    assert [key for _, key in store.keys if key.endswith(".parquet")]


@pytest.mark.parametrize(
    "query",
    [
        *("FROM t", "SELECT name, count(*) AS n FROM t GROUP BY ALL ORDER BY n", "FROM v", "WITH w AS (FROM t) FROM w"),
        *("SELECT id FROM t UNION ALL SELECT twice FROM v", "SELECT a.day FROM t a JOIN v b USING (id)"),
    ],
)
def test_a_query_for_no_rows_opens_no_data_file(tables: Lake, store: CountingStore, query: str) -> None:
    whole = columns(tables.catalog, query)
    store.reset()
    for text in (f"{query} LIMIT 0", f"SELECT * FROM ({query}) LIMIT 0 OFFSET 2"):
        found = run(tables.catalog, text).read_all()
        assert (found.schema, found.num_rows) == (whole, 0)
    assert run(tables.catalog, f"DESCRIBE {query}").read_all()["column_name"].to_pylist() == whole.names
    assert [key for _, key in store.keys if key.endswith(".parquet")] == []


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT id FROM t UNION ALL (SELECT id FROM t LIMIT 0)", [{"id": 1}]),
        ("SELECT count(n.id) AS n, max(t.id) AS id FROM t LEFT JOIN (FROM t LIMIT 0) n ON true", [{"n": 0, "id": 1}]),
        ("SELECT id FROM t LIMIT 0 + 1", [{"id": 1}]),
        ("SELECT id FROM t LIMIT 100%", [{"id": 1}]),
        ("SELECT id FROM t LIMIT 1 OFFSET 0", [{"id": 1}]),
        ("SELECT (SELECT count(*) FROM (DESCRIBE t)) AS columns, count(*) AS rows FROM t", [{"columns": 3, "rows": 1}]),
        ("SUMMARIZE SELECT id FROM t", [{"count": 1}]),
    ],
)
def test_a_limit_within_a_query_leaves_the_rest_of_it_its_rows(tables: Lake, query: str, rows: object) -> None:
    found = run(tables.catalog, query).read_all()
    assert found.select(["count"] if "SUMMARIZE" in query else found.column_names).to_pylist() == rows


@pytest.mark.parametrize(
    ("query", "error", "reason"),
    [
        ("SELECT id,\n  nope FROM t", Invalid, r"LINE 2:   nope FROM t\n {10}\^"),
        ("SELECT * FROM missing", TableNotFound, "missing"),
        ("SELECT * FROM read_csv('x')", Invalid, "read_csv"),
        ("DELETE FROM t", Invalid, "only a SELECT"),
        ("SELECT ?", Invalid, "that has no value"),
    ],
)
def test_errors_are_those_of_a_run(tables: Lake, query: str, error: type[Exception], reason: str) -> None:
    for ask in (columns, run):
        with pytest.raises(error, match=reason):
            ask(tables.catalog, query)


def test_rights_hold(tables: Lake) -> None:
    rights = Rights((Grant(frozenset({"read"}), ("t",), "id > 5", frozenset({"name"})),))
    assert columns(permitted(tables.catalog, rights), "SELECT * FROM t").names == ["id", "day"]
    with pytest.raises(Forbidden, match="read:u"):
        columns(permitted(tables.catalog, rights), "SELECT * FROM u")


def test_a_query_ends_when_nobody_waits_for_it(tables: Lake) -> None:
    asked: list[int] = []
    limits = QueryLimits(cancelled=lambda: len(asked.append(1) or asked) > 20)  # type: ignore[func-returns-value]
    with pytest.raises(Invalid, match="the query was cancelled"):
        run(tables.catalog, "SELECT max(hash(range)) FROM range(100000000000)", limits).read_all()
