from __future__ import annotations

import pytest

from alluvia.engine.queries.parse import QUERY_LIMIT_BYTES, parse
from alluvia.errors import Invalid


@pytest.mark.parametrize(
    "text",
    [
        "SELECT 1",
        "  select 1 ; ;",
        "-- a comment; select 2\nSELECT 1",
        "/* ; */ FROM events",
        "TABLE events",
        "VALUES (1), (2)",
        "(SELECT 1)",
        "WITH a AS (SELECT 1) SELECT * FROM a",
        "SELECT 1 UNION SELECT 2 ORDER BY 1 LIMIT 1",
        "DESCRIBE events",
        "SUMMARIZE events",
        "SHOW TABLES",
        "PIVOT events ON kind IN ('a') USING sum(n)",
        "SELECT ';', '--', $$ ; $$",
        "SELECT 'a\u00a0''b', \"\ufeff\", $a$ \u00a0 $a$ -- \u00a0\n/* \u00a0 */ FROM events",
    ],
)
def test_one_select_is_taken(text: str) -> None:
    assert not parse(text).explain


def test_explain_is_taken_off_and_positions_stay() -> None:
    statement = parse("/* é */ explain SELECT n FROM events")
    assert statement.explain
    place = statement.root["from_table"]["query_location"]
    assert statement.text.encode()[place:] == b"events"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("COPY events TO 'x'", "COPY"),
        ("INSERT INTO events VALUES (1)", "INSERT"),
        ("UPDATE events SET n = 1", "UPDATE"),
        ("DELETE FROM events", "DELETE"),
        ("CREATE TABLE x (n INT)", "CREATE"),
        ("DROP TABLE events", "DROP"),
        ("ATTACH ':memory:' AS x", "ATTACH"),
        ("DETACH x", "DETACH"),
        ("INSTALL httpfs", "INSTALL"),
        ("LOAD '/x.duckdb_extension'", "LOAD"),
        ("SET threads = 1", "SET"),
        ("PRAGMA version", "PRAGMA"),
        ("CALL pragma_version()", "CALL"),
        ("USE main", "USE"),
        ("BEGIN", "BEGIN"),
        ("CHECKPOINT", "CHECKPOINT"),
        ("VACUUM", "VACUUM"),
        ("EXPORT DATABASE 'x'", "EXPORT"),
        ("IMPORT DATABASE 'x'", "IMPORT"),
        ("CREATE SECRET (TYPE s3)", "CREATE"),
        ("PREPARE p AS SELECT 1", "PREPARE"),
        ("EXECUTE p", "EXECUTE"),
        ("/* SELECT */ COPY events TO 'x' -- SELECT", "COPY"),
    ],
)
def test_anything_else_is_refused_by_name(text: str, word: str) -> None:
    with pytest.raises(Invalid, match=f"only a SELECT can be run here, not {word}$"):
        parse(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "empty"),
        (" \n\t", "empty"),
        ("-- nothing", "no statement"),
        (";", "no statement"),
        ("SELECT 1; SELECT 2", "2 statements"),
        ("SELECT 1; COPY t TO 'x'", "only a SELECT"),
        ("EXPLAIN COPY t TO 'x'", "only EXPLAIN of one SELECT"),
        ("EXPLAIN ANALYZE SELECT 1", "EXPLAIN ANALYZE is not supported"),
        ("EXPLAIN (ANALYZE, FORMAT json) SELECT 1", "EXPLAIN ANALYZE is not supported"),
        ("PIVOT events ON kind", "must name its values"),
        ("SELECT 1 \0", "NUL"),
        ("SELECT '\udc80'", "surrogate"),
        ("\ufeffSELECT 1", r"U\+FEFF outside quotes"),
        ("\u00a0SELECT 1", r"U\+00A0 outside quotes"),
        ("SELECT\u3000n FROM events", r"U\+3000 outside quotes"),
        ("SELECT '\u00a0' AS \"\u00a0\" FROM\u00a0events", r"U\+00A0 outside quotes"),
        ("é SELECT 1", "syntax error"),
        ("SELECT " + "1" * QUERY_LIMIT_BYTES, "more than the limit"),
        ("SELECT " + "+".join(["1"] * 900), "nested too deeply"),
        ("SELECT " + "(SELECT " * 900 + "1" + ")" * 900, "nested too deeply|memory exhausted|syntax error"),
        ("WITH x AS (INSERT INTO t VALUES (1) RETURNING *) SELECT * FROM x", "needs a SELECT"),
    ],
)
def test_refused_texts_are_told_why(text: str, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        parse(text)


def test_a_syntax_error_shows_the_users_own_line() -> None:
    with pytest.raises(Invalid) as caught:
        parse("SELECT n,\n  'é' AS x,,\nFROM events")
    message, _, shown = str(caught.value).partition("\n\n")
    assert message == 'Parser Error: syntax error at or near ","'
    assert shown.splitlines() == ["LINE 2:   'é' AS x,,", "                   ^"]
