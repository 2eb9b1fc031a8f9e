from __future__ import annotations

import pytest

from alluvia.engine.duck.failures import QueryTooCostly
from alluvia.engine.queries.parse import Analysis, parse
from alluvia.engine.queries.references import find_references
from alluvia.engine.queries.rewrite import check_tables, rewrite
from alluvia.engine.queries.shown_names import VIEW_SCHEMA
from alluvia.errors import Invalid


def rewritten(text: str) -> str:
    statement = parse(text)
    tables = find_references(statement.root).tables
    return rewrite(statement, {one: f"v{number}" for number, one in enumerate(tables)}).text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("SELECT * FROM events", 'SELECT * FROM alluvia.v0 AS "events"'),
        ("FROM events e", "FROM alluvia.v0 e"),
        ("FROM events AS e(a, b)", "FROM alluvia.v0 AS e(a, b)"),
        ('FROM "Events"', 'FROM alluvia.v0 AS "Events"'),
        ("FROM events._rejects", 'FROM alluvia.v0 AS "_rejects"'),
        ("FROM events . /* c */ _rejects r", "FROM alluvia.v0 r"),
        ("FROM events('2024-01-01)(')", 'FROM alluvia.v0 AS "events"'),
        ("FROM events(version => 3) x", "FROM alluvia.v0 x"),
        ('FROM events._rejects("timestamp" => now() - interval (1) day)', 'FROM alluvia.v0 AS "_rejects"'),
        ("FROM events AT (VERSION => 3)", 'FROM alluvia.v0 AS "events"  '),
        (
            "FROM events AS e (a) AT (TIMESTAMP => '2024') JOIN b ON true",
            'FROM alluvia.v0 AS e (a)   JOIN alluvia.v1 AS "b" ON true',
        ),
        ("FROM a, b x, a", 'FROM alluvia.v0 AS "a", alluvia.v1 x, alluvia.v2 AS "a"'),
        ("FROM events TABLESAMPLE 10%", 'FROM alluvia.v0 AS "events" TABLESAMPLE 10%'),
        ("DESCRIBE events", "DESCRIBE alluvia.v0"),
        ("SUMMARIZE events", "SUMMARIZE alluvia.v0"),
        ("SELECT * FROM (TABLE events)", "SELECT * FROM (TABLE alluvia.v0)"),
        ("EXPLAIN FROM events", 'EXPLAIN FROM alluvia.v0 AS "events"'),
        ("PIVOT events ON n IN (1)", 'PIVOT alluvia.v0 AS "events" ON n IN (1)'),
        ("WITH events AS (FROM events) FROM events", 'WITH events AS (FROM alluvia.v0 AS "events") FROM events'),
        ("SELECT 'é', \"ü\" FROM/**/events--", 'SELECT \'é\', "ü" FROM/**/alluvia.v0 AS "events"--'),
        ("SELECT 1", "SELECT 1"),
    ],
)
def test_views_take_the_place_of_tables_and_nothing_else_changes(text: str, expected: str) -> None:
    assert rewritten(text) == expected


def test_what_stops_the_second_reading_is_said_as_it_is() -> None:
    def out_of_time(_: str) -> Analysis:
        raise QueryTooCostly("the query takes longer than the 2 seconds allowed")

    statement = parse("FROM events")
    views = dict.fromkeys(find_references(statement.root).tables, "v0")
    with pytest.raises(QueryTooCostly, match="2 seconds"):
        rewrite(statement, views, out_of_time)


def test_positions_lead_back_to_the_users_text() -> None:
    text = "SELECT bad FROM events, users(version => 3) u WHERE worse"
    statement = parse(text)
    tables = find_references(statement.root).tables
    changed = rewrite(statement, {one: f"a_view_with_a_long_name_{number}" for number, one in enumerate(tables)})
    for word in ("bad", "worse", "WHERE", "u "):
        assert changed.position(changed.text.index(word)) == text.index(word)
    assert changed.position(changed.text.index("alluvia.a_view")) == text.index("events")


def test_a_form_that_cannot_be_spliced_is_refused() -> None:
    with pytest.raises(Invalid, match="name it plainly"):
        rewritten("FROM events('2024') WITH ORDINALITY")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1 FROM alluvia.v0, range(3)",
        "WITH A AS (FROM alluvia.v0), b AS (FROM a) SELECT (SELECT max(n) FROM B) FROM (FROM a)",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) FROM r",
        "DESCRIBE alluvia.v0",
    ],
)
def test_views_and_common_table_expressions_pass_the_second_wall(text: str) -> None:
    check_tables(parse(text).root, VIEW_SCHEMA, {"v0"})


@pytest.mark.parametrize(
    "text",
    [
        "FROM events",
        "FROM 'x.parquet'",
        "FROM alluvia.v1",
        "FROM main.v0",
        "FROM memory.alluvia.v0",
        "FROM alluvia.v0 AT (VERSION => 1)",
        "SELECT (SELECT max(n) FROM 'x.parquet') FROM alluvia.v0",
        "WITH a AS (FROM a) FROM a",
        "WITH a AS (FROM b), b AS (SELECT 1) FROM a",
        "FROM (WITH a AS (SELECT 1) FROM a), a",
        'WITH "\u212a.parquet" AS (SELECT 1) FROM "k.parquet"',
        "FROM read_parquet('x')",
        "SHOW ALL TABLES",
    ],
)
def test_nothing_else_passes_the_second_wall(text: str) -> None:
    with pytest.raises(Invalid, match="neither a table of the lake"):
        check_tables(parse(text).root, VIEW_SCHEMA, {"v0"})
