"""Statements over HTTP: the right to write, parameters, and transactions."""

from __future__ import annotations

import json
from typing import Any

import pytest

import alluvia
from alluvia.serverless.query_settings import QuerySettings
from functions.query import handler as query
from tests.functions.statements import lake as lake  # noqa: PLC0414 - a fixture
from tests.functions.statements import rows, send, state
from tests.functions.statements import writing as writing  # noqa: PLC0414 - a fixture
from tests.functions.test_query import error_of, event
from tests.log_lines import Context, log_lines
from tests.samples import payload

WRITES = [
    "INSERT INTO totals VALUES ('a', 1)",
    "  -- a comment\n/* and /* another */ */ insert into totals values ('a', 1)",
    "UPDATE totals SET n = 1",
    "DELETE FROM totals",
    "TRUNCATE TABLE totals",
    "MERGE INTO totals t USING (SELECT 'a' AS name, 1 AS n) s ON t.name = s.name WHEN NOT MATCHED THEN INSERT *",
    "CREATE TABLE other (n BIGINT)",
    "CREATE TABLE other AS SELECT 1 AS n",
    "ALTER TABLE totals ADD COLUMN m BIGINT",
    "DROP TABLE totals",
    "UNDROP TABLE gone",
    "OPTIMIZE totals",
    "CREATE VIEW seen AS SELECT * FROM totals",
    "DROP VIEW seen",
    "RESTORE TABLE totals TO VERSION AS OF 0",
    "SELECT 1; DELETE FROM totals; SELECT 2",
    ";;DELETE FROM totals;",
]


@pytest.mark.parametrize("sql", WRITES)
def test_without_the_right_nothing_is_written(lake: alluvia.Lake, sql: str) -> None:
    before = state(lake)
    for path in ("/q", "/sql"):
        answer = send(sql, path=path)
        assert answer["statusCode"] == 403
        assert "only reads are allowed here" in error_of(answer)
        assert "--allow-writes" in error_of(answer)
        assert "ALLUVIA_ALLOW_WRITES=true" in error_of(answer)
    assert state(lake) == before


def test_several_reads_need_no_right(lake: alluvia.Lake) -> None:
    assert rows(send("SELECT 1 AS a; SELECT n FROM totals WHERE name = 'b'")) == [{"n": 2}]


@pytest.mark.parametrize("value", ["yes", "1", "TRUE"])
def test_the_setting_is_true_or_false(value: str) -> None:
    with pytest.raises(alluvia.errors.Invalid, match=f"ALLUVIA_ALLOW_WRITES is '{value}'"):
        QuerySettings.read({"ALLUVIA_ALLOW_WRITES": value})


def test_a_write_says_what_it_did(writing: alluvia.Lake) -> None:
    (said,) = rows(send("INSERT INTO totals VALUES ('c', 3), ('d', 4)"))
    assert (said["rows_inserted"], said["version"]) == (2, 2)
    assert state(writing)[1] == {"a": 1, "b": 2, "c": 3, "d": 4}


def test_several_writes_say_which_versions_they_made(writing: alluvia.Lake) -> None:
    writing.create_table("log", {"name": "string"})
    said = rows(send("INSERT INTO log VALUES ('c'); DELETE FROM totals WHERE name = 'a'; DELETE FROM totals"))
    assert said == [{"rows_deleted": 1, "version": 3, "versions": {"log": 2, "totals": 3}}]
    assert (writing.table("log").version, writing.table("totals").version) == (2, 3)
    (said,) = rows(send("INSERT INTO log VALUES ('d'); UPDATE totals SET n = 1"))
    assert (said["rows_updated"], said["version"]) == (0, 3)


def test_the_last_read_is_the_answer(writing: alluvia.Lake) -> None:
    sql = "UPDATE totals SET n = n + 1; SELECT sum(n) AS n FROM totals; DELETE FROM totals WHERE name = 'b'"
    assert rows(send(sql, accept="application/json")) == [[{"n": 5}]]
    assert state(writing)[1] == {"a": 2}


def test_a_direct_invocation_writes_too(writing: alluvia.Lake) -> None:
    answer = query.handler({"query": "DELETE FROM totals WHERE name = $name", "parameters": {"name": "a"}}, None)
    assert rows(answer)[0]["rows_deleted"] == 1


def test_the_sample(writing: alluvia.Lake) -> None:
    events = [{"event": name} for name in ("request", "request", "error")]
    writing.create_table("access_log", {"event": "string"}).append(events)
    answer = query.handler(payload("sql_api_gateway"), None)
    assert json.loads(answer["body"]) == [{"event": "error", "n": 1}, {"event": "page", "n": 2}]


@pytest.mark.parametrize(
    ("sql", "parameters", "expected"),
    [
        ("SELECT n FROM totals WHERE name = ?", ["b"], [{"n": 2}]),
        ("SELECT n FROM totals WHERE name = $name AND n > $least", {"name": "b", "least": 1}, [{"n": 2}]),
        ("SELECT $1 AS x", ["'; DROP TABLE totals; --"], [{"x": "'; DROP TABLE totals; --"}]),
        ("SELECT 1; SELECT ? + ? AS x", [1, 2.5], [{"x": 3.5}]),
        ("SELECT $x IS NULL AS x", {"x": None}, [{"x": True}]),
        ("SELECT len($x) AS x", {"x": [1, 2, 3]}, [{"x": 3}]),
        ("SELECT typeof($x) || ' ' || ($x * 3) AS x", {"x": {"$decimal": "0.10"}}, [{"x": "DECIMAL(2,2) 0.30"}]),
        ("SELECT typeof(?) AS x", [{"$timestamp": "1795000000"}], [{"x": "TIMESTAMP WITH TIME ZONE"}]),
        ("SELECT ($x.a)::VARCHAR AS x", {"x": {"a": [{"$date": "2026-11-20"}]}}, [{"x": "[2026-11-20]"}]),
        ('SELECT $x."$date" AS x', {"x": {"$struct": {"$date": 1}}}, [{"x": 1}]),
    ],
)
def test_parameters_of_reads(lake: alluvia.Lake, sql: str, parameters: Any, expected: list[Any]) -> None:
    assert rows(send(sql, parameters)) == expected


def test_parameters_of_writes_are_values_and_never_sql(writing: alluvia.Lake) -> None:
    evil = "x'); DELETE FROM totals; --"
    assert rows(send("INSERT INTO totals VALUES (?, ?)", [evil, 7]))[0]["rows_inserted"] == 1
    send("UPDATE totals SET n = n + $by WHERE name = $name", {"by": 1, "name": evil})
    assert state(writing)[1] == {"a": 1, "b": 2, evil: 8}


@pytest.mark.parametrize(
    ("parameters", "reason"),
    [
        ("a", "parameters: send a list"),
        (1, "parameters: send a list"),
        ([], "a parameter (? or $name) that has no value"),
        ({"other": 1}, "parameter 1 has no value"),
        ([1, 2], "parameter 2 has a value"),
        (
            [{"$decimal": "0,10"}],
            "parameter 1: '0,10' is not a value of $decimal: send digits as text, such as \"0.10\"",
        ),
        ([[{"$decimal": "9" * 101}]], "is not a value of $decimal"),
        ([{"$decimal": 1.5}], "parameter 1: 1.5 is not a value of $decimal"),
        ({"1": {"$date": "yesterday"}}, "is not a value of $date: send 2026-11-20"),
        ({"1": {"$binary": "%"}}, "is not a value of $binary: send base64"),
        ({"1": {"$struct": []}}, "is not a value of $struct: send an object"),
    ],
)
def test_parameters_that_do_not_fit(lake: alluvia.Lake, parameters: Any, reason: str) -> None:
    answer = send("SELECT $1 AS x", parameters)
    assert answer["statusCode"] == 400
    assert reason in error_of(answer)


@pytest.mark.parametrize("sql", ["BEGIN", "BEGIN; DELETE FROM totals", "ROLLBACK", "COMMIT", "COMMIT; BEGIN"])
def test_a_transaction_does_not_outlive_its_request(writing: alluvia.Lake, sql: str) -> None:
    before = state(writing)
    assert send(sql)["statusCode"] == 400
    assert state(writing) == before


def test_a_request_may_say_where_its_transaction_begins_and_ends(writing: alluvia.Lake) -> None:
    assert rows(send("BEGIN; DELETE FROM totals WHERE n = 1; COMMIT"))
    assert state(writing)[1] == {"b": 2}


def test_what_a_request_rolls_back_is_not_shown_as_done(writing: alluvia.Lake) -> None:
    before = state(writing)
    assert rows(send("BEGIN; DELETE FROM totals WHERE n = 1; ROLLBACK")) == [{"transaction": "rolled back"}]
    assert state(writing) == before


def test_vacuum_is_refused_whoever_asks(writing: alluvia.Lake) -> None:
    answer = send("VACUUM totals")
    assert (answer["statusCode"], "`alluvia vacuum`" in error_of(answer)) == (403, True)


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["/q", "/sql"])
def test_other_methods_write_nothing(writing: alluvia.Lake, method: str, path: str) -> None:
    before = state(writing)
    asked = event(json.dumps({"query": "DELETE FROM totals"}), method=method, path=path)
    asked["rawQueryString"] = "query=DELETE+FROM+totals"
    answer = query.handler(asked, None)
    assert (answer["statusCode"], answer["headers"]["Allow"].partition(",")[0]) == (405, "POST")
    assert state(writing) == before


@pytest.mark.parametrize(
    ("sql", "status", "reason"),
    [
        ("CREATE TABLE totals (n BIGINT)", 400, "totals"),
        ("INSERT INTO nothing VALUES (1)", 404, "there is no table 'nothing'"),
        ("INSERT INTO totals VALUES (1)", 400, "totals"),
        ("UPDATE totals SET m = 1", 400, "m"),
        ("CREATE INDEX i ON totals (n)", 400, "INDEX"),
        ("GRANT SELECT ON totals TO you", 400, "GRANT"),
        ("COPY totals TO '/tmp/x'", 400, "COPY"),
        ("ATTACH '/tmp/x'", 400, "expected AS"),
        ("PRAGMA database_list", 400, "PRAGMA"),
        ("SET memory_limit = '1TB'", 400, "SET"),
        ("INSERT INTO totals SELECT content, 1 FROM read_text('/etc/passwd')", 400, "read_text"),
        ("UPDATE totals SET name = getenv('HOME')", 400, "getenv"),
    ],
)
def test_a_bad_statement_is_the_callers_error(writing: alluvia.Lake, sql: str, status: int, reason: str) -> None:
    before = state(writing)
    answer = send(sql)
    assert (answer["statusCode"], reason in error_of(answer)) == (status, True), answer["body"]
    assert state(writing) == before


def test_no_line_of_the_log_has_a_statement_or_a_value(writing: alluvia.Lake) -> None:
    with log_lines() as lines:
        body = {"query": "INSERT INTO totals VALUES ('hunter2', $n)", "parameters": {"n": 4242}}
        query.handler(event(json.dumps(body)), Context("r"))
        query.handler(event(json.dumps({"query": "DELETE FROM hunter2"})), Context("r"))
    assert "hunter2" not in lines.text
    assert "4242" not in lines.text
    assert [line["message"] for line in lines.parsed()] == ["answered", "refused"]
