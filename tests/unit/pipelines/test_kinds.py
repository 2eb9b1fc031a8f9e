"""The kind of a table, and the columns by which its changes are narrowed down, follow from its query."""

from __future__ import annotations

import pyarrow as pa
import pytest

from alluvia.errors import Invalid
from alluvia.pipelines.declarations.grammar import read_declaration
from alluvia.pipelines.kinds import TableKind, derive_kind
from alluvia.pipelines.queries.query import read_query

SCHEMAS = {
    "events": pa.schema(
        [
            ("event_id", pa.string()),
            ("ts", pa.timestamp("us", "UTC")),
            ("event", pa.string()),
            ("visitor", pa.string()),
            ("status", pa.int64()),
            ("properties", pa.string()),
        ]
    ),
    "users": pa.schema([("id", pa.string()), ("visitor", pa.string()), ("name", pa.string())]),
}


def kind_of(options: str, query: str) -> TableKind:
    declaration = read_declaration(f"CREATE OR REFRESH TABLE t {options} AS {query}")
    parsed = read_query(declaration.query)
    return derive_kind(declaration, parsed, {name: SCHEMAS[name] for name in parsed.sources})


APPENDS = [
    "SELECT * FROM events",
    "SELECT visitor, lower(event) AS e, unnest([1, 2]) AS n FROM events WHERE status < 500",
    "SELECT properties->>'$.path' AS path FROM events",
]


@pytest.mark.parametrize("query", APPENDS)
def test_rows_of_their_own_are_appended(query: str) -> None:
    assert kind_of("", query).name == "append"


SESSIONS = """WITH marked AS (
    SELECT visitor, ts, event_id, CASE WHEN lag(ts) OVER w IS NULL THEN 1 ELSE 0 END AS starts
    FROM events WINDOW w AS (PARTITION BY visitor ORDER BY ts, event_id)),
  numbered AS (
    SELECT visitor, ts, sum(starts) OVER (PARTITION BY visitor ORDER BY ts, event_id) AS session FROM marked)
  SELECT visitor, session, min(ts) AS begins, count(*) AS n FROM numbered GROUP BY visitor, session"""
"""Queries with the columns of their units, and what these are in each source."""
UNITS = [
    ("", "SELECT ts::DATE AS day, count(*) AS n FROM events GROUP BY 1", {"day": {"events": 'CAST("ts" AS DATE)'}}),
    ("", "SELECT event, count(*) AS n FROM events GROUP BY ALL HAVING count(*) > 1", {"event": {"events": '"event"'}}),
    ("KEY (visitor, session)", SESSIONS, {"visitor": {"events": '"visitor"'}}),
    (
        "KEY (day)",
        "SELECT day, count(*) AS n FROM (SELECT ts::DATE AS day, visitor FROM events GROUP BY ALL) GROUP BY day",
        {"day": {"events": 'CAST("ts" AS DATE)'}},
    ),
    (
        "KEY (visitor, event_id)",
        "SELECT e.visitor, event_id, name FROM events e LEFT JOIN users u ON u.visitor = e.visitor",
        {"visitor": {"events": '"visitor"', "users": '"visitor"'}},
    ),
    (
        "KEY (visitor)",
        "SELECT visitor, count(event_id) AS n FROM users FULL JOIN events USING (visitor) GROUP BY visitor",
        {"visitor": {"events": '"visitor"', "users": '"visitor"'}},
    ),
    (
        "KEY (visitor)",
        "SELECT visitor FROM users WHERE name IS NOT NULL UNION SELECT visitor FROM events",
        {"visitor": {"events": '"visitor"', "users": '"visitor"'}},
    ),
    (
        "KEY (visitor)",
        "SELECT DISTINCT ON (visitor) visitor, status FROM events ORDER BY ts, event_id",
        {"visitor": {"events": '"visitor"'}},
    ),
    (
        "KEY (id)",
        "SELECT u.id FROM users u SEMI JOIN events e ON e.visitor = u.id",
        {"id": {"users": '"id"', "events": '"visitor"'}},
    ),
    (
        "KEY (login) SEQUENCE BY ts",
        "SELECT properties->>'$.sender.login' AS login, ts, status FROM events",
        {"login": {"events": "(\"properties\" ->> '$.sender.login')"}},
    ),
]  # fmt: skip


@pytest.mark.parametrize(("options", "query", "unit"), UNITS)
def test_units_are_what_every_part_of_a_query_divides_rows_by(
    options: str, query: str, unit: dict[str, dict[str, str]]
) -> None:
    kind = kind_of(options, query)
    assert {each.column: dict(each.texts) for each in kind.unit} == unit
    assert kind.name == ("keyed" if options else "aggregate")


FULL = [
    ("", "SELECT count(*) AS n FROM events"),
    ("", "SELECT visitor FROM events ORDER BY ts LIMIT 3"),
    ("", "SELECT DISTINCT visitor FROM events"),
    ("", "SELECT visitor, now() AS at FROM events"),
    ("KEY (visitor)", "SELECT visitor FROM events LIMIT 3"),
    ("KEY (visitor)", "SELECT visitor, row_number() OVER (ORDER BY ts) AS n FROM events"),
    ("KEY (visitor)", "SELECT visitor, row_number() OVER (PARTITION BY event ORDER BY ts) AS n FROM events"),
    ("KEY (visitor)", "SELECT visitor FROM events WHERE status > (SELECT avg(status) FROM events)"),
    ("KEY (visitor)", "SELECT e.visitor, name FROM events e JOIN users u ON u.id = e.event_id"),
    ("KEY (visitor)", "SELECT u.visitor FROM events e LEFT JOIN users u ON u.visitor = e.visitor"),
    ("KEY (visitor)", "SELECT visitor, any_value(status) AS s FROM events GROUP BY visitor"),
    ("KEY (event)", "SELECT event, count(*) AS n FROM events GROUP BY GROUPING SETS ((event), ())"),
    ("KEY (visitor)", "SELECT a.visitor FROM events a JOIN events b ON a.visitor = b.event"),
    # Both sides of the join read the table, and not by the same column.
    ("KEY (visitor)", "WITH c AS (FROM events) SELECT a.visitor FROM c a JOIN c b ON a.event = b.event"),
    (
        "KEY (cohort)",
        """WITH f AS (SELECT visitor, min(ts)::DATE AS day FROM events GROUP BY visitor)
        SELECT f.day AS cohort, count(*) AS n FROM events e JOIN f USING (visitor) GROUP BY 1""",
    ),
    (
        "KEY (n)",
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r JOIN events ON status = n) SELECT n FROM r",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("options", "query"), FULL)
def test_all_is_computed_again_where_no_column_divides_the_sources(options: str, query: str) -> None:
    kind = kind_of(options, query)
    assert (kind.name, kind.unit) == ("full", ())


_ONE = "in one process"
SHARED_OUT = [
    ("", "SELECT event, status FROM events", "each file of the source by itself"),
    ("KIND FULL", "SELECT event, status FROM events", "each file of the source by itself"),
    ("KEY (visitor, session)", SESSIONS, "by visitor"),
    ("", "SELECT DISTINCT visitor, event FROM events", "by visitor, event"),
    ("KIND FULL", "SELECT event, count(*) AS n FROM events GROUP BY event", "by event"),
    ("KEY (status) KIND FULL", "SELECT DISTINCT visitor, status FROM events", "by status"),
    ("", "SELECT event, any_value(status) AS s FROM events GROUP BY event", _ONE),
    ("", "SELECT DISTINCT visitor FROM events ORDER BY visitor LIMIT 3", _ONE),
    ("", "SELECT count(*) AS n FROM events", _ONE),
]


@pytest.mark.parametrize(("options", "query", "says"), SHARED_OUT)
def test_the_work_on_all_rows_is_shared_out(options: str, query: str, says: str) -> None:
    assert kind_of(options, query).shared_out == says


def test_the_reason_says_how_to_make_a_table_incremental() -> None:
    assert "declare KEY (…)" in kind_of("", "SELECT DISTINCT visitor FROM events").why
    why = kind_of("KEY (name)", "SELECT u.name, e.visitor FROM events e JOIN users u USING (visitor)").why
    assert "visitor does: add it to KEY" in why
    query = "SELECT visitor, first(status ORDER BY {}) AS s FROM events GROUP BY visitor"
    assert "end its ORDER BY with its argument" in kind_of("", query.format("ts")).why
    assert "an ORDER BY that ends with its argument" in kind_of("", query.replace(" ORDER BY {}", "")).why
    assert kind_of("", query.format("ts, status")).name == "aggregate"


def test_a_kind_that_the_query_cannot_have_is_refused_with_the_reason() -> None:
    with pytest.raises(Invalid, match="table t: the query cannot be of the kind append, but is aggregate: GROUP BY"):
        kind_of("KIND APPEND", "SELECT event, count(*) AS n FROM events GROUP BY event")
    with pytest.raises(Invalid, match="cannot be of the kind keyed, but is full: no column of KEY"):
        kind_of("KEY (n) KIND KEYED", "SELECT count(*) AS n FROM events")
    assert kind_of("KIND FULL", "SELECT * FROM events").name == "full"


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("SELECT 1 AS n", "reads no table"),
        ("SELECT * FROM events AT (VERSION => 3)", "has a version"),
        ("SELECT * FROM fix.main.events", "is on a branch"),
        ("SELECT * FROM history('events')", "is not a table"),
        ("EXPLAIN SELECT * FROM events", "cannot be an EXPLAIN"),
    ],
)
def test_a_query_reads_tables_as_they_are(query: str, says: str) -> None:
    with pytest.raises(Invalid, match=says):
        read_query(query)
