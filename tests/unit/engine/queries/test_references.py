from __future__ import annotations

import hashlib

import duckdb
import pytest

from alluvia.engine.duck.database import connect
from alluvia.engine.queries.functions import FOLDABLE, REFUSED_FUNCTIONS, TABLE_FUNCTIONS
from alluvia.engine.queries.parse import parse
from alluvia.engine.queries.references import find_references
from alluvia.errors import Invalid


def tables(text: str) -> list[str | None]:
    return [one.table for one in find_references(parse(text).root).tables]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT 1", []),
        ("FROM events", ["events"]),
        ('SELECT * FROM "Events" e', ["events"]),
        ("FROM events._rejects", ["events/_rejects"]),
        ("FROM events('2024-01-01')", ["events"]),
        ("FROM events._rejects(version => 3)", ["events/_rejects"]),
        ("FROM a JOIN b USING (x), c LEFT JOIN d ON true", ["a", "b", "c", "d"]),
        ("SELECT (SELECT max(x) FROM a), EXISTS (FROM b) FROM c WHERE y IN (SELECT z FROM d)", ["a", "b", "c", "d"]),
        ("FROM a UNION ALL FROM b EXCEPT FROM c", ["a", "b", "c"]),
        ("SELECT * FROM (SELECT * FROM a) x, LATERAL (SELECT * FROM b WHERE b.n = x.n)", ["a", "b"]),
        ("DESCRIBE a", ["a"]),
        ("SELECT sum(n) OVER (ORDER BY (SELECT max(n) FROM b)) FROM a", ["b", "a"]),
        ("SELECT n FROM a ORDER BY (SELECT 1 FROM b) LIMIT (SELECT 2 FROM c)", ["a", "b", "c"]),
        ("FROM range(3), unnest([1]), generate_series(1, 2)", []),
        # common table expressions hide tables where they are in sight, and nowhere else
        ("WITH a AS (SELECT 1) FROM a", []),
        ("WITH A AS (SELECT 1) FROM a", []),
        ("WITH a AS (FROM a) FROM a", ["a"]),
        ("WITH x AS (FROM a), a AS (SELECT 1) FROM x", ["a"]),
        ("WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r WHERE n < 3) FROM r", []),
        ("WITH RECURSIVE a AS (FROM a) FROM a", ["a"]),
        ("FROM (WITH a AS (SELECT 1) FROM a) x, a", ["a"]),
        ("WITH a AS (SELECT 1) SELECT (SELECT max(n) FROM a) FROM (SELECT * FROM a)", []),
        ("WITH a AS (SELECT 1) FROM a AT (VERSION => 1)", ["a"]),
        ("WITH a AS (SELECT 1) FROM main.a", ["a"]),
        ("FROM memory.main.a, main.main", ["a", "main"]),
        ("FROM main._rejects, main.a._rejects", ["main/_rejects", "a/_rejects"]),
        # names are folded as DuckDB folds them: the Kelvin sign is no K
        ('WITH "\u212a" AS (SELECT 1) FROM k', ["k"]),
        ('WITH "\u212a.parquet" AS (SELECT 1) FROM "k.parquet"', [None]),
        ('WITH "\u0130" AS (SELECT 1) FROM "\u0130", i', ["i"]),
        ('FROM "\u212a"', [None]),
        # what cannot be a table of a lake
        ("FROM 'x.parquet'", [None]),
        ("FROM 's3://bucket/x.parquet'", [None]),
        ("FROM other.schema.events", ["other:schema.events"]),
        ("FROM bronze.events, memory.bronze.a", ["bronze.events", "bronze.a"]),
        ("FROM bronze.events._rejects, Bronze.Events", ["bronze.events/_rejects", "bronze.events"]),
        ("WITH events AS (SELECT 1) FROM bronze.events, events", ["bronze.events"]),
        ('FROM "bronze.events"', [None]),
        ("FROM information_schema.tables", [None]),
        ('FROM "../x"', [None]),
    ],
)
def test_tables_that_a_query_names(text: str, expected: list[str | None]) -> None:
    assert tables(text) == expected


def test_versions_are_read_in_every_form() -> None:
    text = "FROM a(version => 3), b(version := 4), c AT (VERSION => 5), d('2024-01-01'), e(now()), f()"
    at = [one.at for one in find_references(parse(text).root).tables]
    assert [one.version for one in at] == [3, 4, 5, None, None, None]
    assert [one.moment is not None for one in at] == [False, False, False, True, True, False]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("FROM a(3)", r"a\(\) is not allowed here; if it is a table"),
        ("FROM a('x', 'y')", r"a\(\) is not allowed here"),
        ("FROM read_csv('x', header = true)", r"read_csv\(\) is not allowed here"),
        ("FROM a(version => 'x')", "whole number"),
        ("FROM a(version => -1)", "whole number"),
        ("FROM a(version => 1.5)", "whole number"),
        ("SELECT ?", "parameter"),
        ("SELECT $name", "parameter"),
        ("SHOW ALL TABLES", "only SHOW TABLES"),
        ("SHOW DATABASES", "only SHOW TABLES"),
        ("WITH pg_views AS (SELECT 1) FROM pg_views", "another name"),
        ("WITH duckdb_views AS (SELECT 1) FROM duckdb_views", "another name"),
        ("WITH sqlite_master AS (SELECT 1) FROM sqlite_master", "another name"),
    ],
)
def test_what_is_not_possible_is_refused(text: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        find_references(parse(text).root)


@pytest.mark.parametrize("name", sorted(REFUSED_FUNCTIONS))
@pytest.mark.parametrize(
    "text",
    [
        "SELECT {}(1)",
        "SELECT main.{}(1)",
        "SELECT ('x').{}()",
        "FROM events WHERE {}(n) = 1",
        "SELECT list_transform([1], lambda x: {}(x))",
        "FROM events ORDER BY {}(n)",
        "SELECT sum(n) FILTER (WHERE {}(n)) FROM events",
        "FROM range({}(1))",
        "SELECT * REPLACE ({}(n) AS n) FROM events",
        "SELECT CASE WHEN {}(1) THEN 1 END",
    ],
)
def test_refused_functions_are_found_wherever_they_stand(name: str, text: str) -> None:
    with pytest.raises(Invalid, match=f"function {name}"):
        find_references(parse(text.format(f'"{name.upper()}"')).root)


def duckdb_names(where: str) -> list[str]:
    connection = connect({})
    found = connection.execute(f"SELECT DISTINCT function_name FROM duckdb_functions() WHERE {where} ORDER BY ALL")
    return [name for (name,) in found.fetchall()]


def test_no_function_has_come_that_nobody_has_looked_at() -> None:
    """A new DuckDB that brings functions fails here: sort them into `functions`, then add or renew its digest."""
    kinds = "('scalar', 'aggregate', 'macro', 'window')"
    names = duckdb_names(f"function_type IN {kinds} AND function_name NOT SIMILAR TO '(icu_)?collate_.*'")
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
    assert digest == {"1.5.6": "e97ab11e68eb4f76", "2.0.1": "6be1606a8329a21b"}[duckdb.__version__]


def test_the_lists_name_functions_that_there_are() -> None:
    tables = set(duckdb_names("function_type IN ('table', 'table_macro')"))
    others = set(duckdb_names("function_type NOT IN ('table', 'table_macro', 'pragma')"))
    assert tables >= TABLE_FUNCTIONS
    assert others >= FOLDABLE
    elsewhere = {"getenv", "json_execute_serialized_sql"}  # the shell's, and a table function
    since_2 = {"combine_aggr", "index_key", "setval", "to_aggregate_state"}
    assert others >= REFUSED_FUNCTIONS - elsewhere - since_2


def test_duckdbs_own_views_are_all_out_of_reach_of_a_common_table_expression() -> None:
    """A view that an unqualified name finds, under a name that a WITH clause may not take."""
    connection = connect({})
    found = connection.execute(
        "SELECT view_name FROM duckdb_views() WHERE internal AND schema_name <> 'information_schema'"
    ).fetchall()
    assert ("duckdb_tables",) in found
    for (name,) in found:
        with pytest.raises(Invalid, match="another name"):
            find_references(parse(f'WITH "{name}" AS (SELECT 1) FROM "{name}"').root)
