"""Statements over HTTP: the right to write, parameters, atomicity, limits, and texts that attack."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeVar

import pytest

import alluvia
from alluvia.errors import AnswerLost, NotDeleted, Unavailable
from alluvia.query.rendering import RenderedRows, render
from alluvia.serverless import warm_lake
from alluvia.serverless.query_settings import QuerySettings
from alluvia.store.wrapper import Wrapper
from functions.query import handler as query
from functions.query import statements
from tests.functions.test_query import Answer, error_of, event
from tests.log_lines import Context, log_lines
from tests.samples import payload

T = TypeVar("T")
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


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> alluvia.Lake:
    monkeypatch.setenv("ALLUVIA_LAKE", str(tmp_path))
    lake = alluvia.connect(str(tmp_path))
    lake.create_table("totals", {"name": "string", "n": "long"}).append([{"name": "a", "n": 1}, {"name": "b", "n": 2}])
    return lake


@pytest.fixture
def writing(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> alluvia.Lake:
    monkeypatch.setenv("ALLUVIA_ALLOW_WRITES", "true")
    return lake


def send(sql: str, parameters: Any = None, path: str = "/q", accept: str | None = None) -> Answer:
    body = {"query": sql} if parameters is None else {"query": sql, "parameters": parameters}
    return query.handler(event(json.dumps(body), path=path, accept=accept), None)


def rows(answer: Answer) -> list[Any]:
    assert answer["statusCode"] == 200, answer["body"]
    return [json.loads(line) for line in answer["body"].splitlines()]


def state(lake: alluvia.Lake) -> tuple[list[str], dict[str, int]]:
    """The versions of all tables, and what is in `totals`."""
    fresh = alluvia.connect(lake.uri)
    found = fresh.table("totals").to_arrow().to_pylist()
    return [f"{name}@{fresh.table(name).version}" for name in fresh.tables()], {row["name"]: row["n"] for row in found}


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


@pytest.mark.parametrize(
    "sql",
    [
        "INSERT INTO totals VALUES ('c', 3); SELECT error('no') FROM totals",
        "INSERT INTO totals VALUES ('c', 3); SELECT * FROM nothing",
        "INSERT INTO totals VALUES ('c', 3); SELECT nope FROM totals",
        "INSERT INTO totals VALUES ('c', 3); INSERT INTO totals VALUES ('d', 'many')",
        "CREATE TABLE other (n BIGINT); INSERT INTO other VALUES (1); UPDATE totals SET n = nope",
        "DROP TABLE totals; SELECT * FROM totals",
        "INSERT INTO totals VALUES ('c', 3); SELEC 1",
    ],
)
def test_what_fails_undoes_all_of_the_request(writing: alluvia.Lake, sql: str) -> None:
    before = state(writing)
    answer = send(sql)
    assert answer["statusCode"] in (400, 404)
    assert error_of(answer)
    assert state(writing) == before


def test_a_result_over_the_limit_undoes_the_writes(writing: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_RESULT_LIMIT_BYTES", "1000")
    before = state(writing)
    answer = send("INSERT INTO totals VALUES ('c', 3); SELECT i FROM range(500) t(i)")
    assert (answer["statusCode"], "limit of 1000 bytes" in error_of(answer)) == (413, True)
    assert state(writing) == before


SLOW = "SELECT count(*) FROM range(100000000000) t(i) WHERE hash(i) = 1"


@pytest.mark.parametrize(
    "sql",
    [
        f"INSERT INTO totals VALUES ('c', 3); {SLOW}",
        f"INSERT INTO totals SELECT 'c', n FROM ({SLOW.replace('count(*)', 'count(*) AS n')})",
        f"CREATE TABLE other AS {SLOW.replace('count(*)', 'count(*) AS n')}",
    ],
)
def test_a_time_out_undoes_the_writes(writing: alluvia.Lake, monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    monkeypatch.setenv("ALLUVIA_QUERY_TIMEOUT_SECONDS", "1")
    before = state(writing)
    began = time.monotonic()
    answer = send(sql)
    assert (answer["statusCode"], "longer than the 1 seconds allowed" in error_of(answer)) == (422, True)
    assert time.monotonic() - began < 5
    assert state(writing) == before


def test_a_change_of_rows_stops_between_two_files(writing: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_QUERY_TIMEOUT_SECONDS", "1")
    writing.table("totals").append([{"name": "c", "n": 3}])
    before = state(writing)
    answer = send("UPDATE totals SET n = levenshtein(repeat('ab', 10000 + n), repeat('ba', 10000))")
    assert (answer["statusCode"], "longer than the 1 seconds allowed" in error_of(answer)) == (422, True)
    assert state(writing) == before


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


@pytest.mark.parametrize(
    "sql",
    [
        "DELETE FROM totals WHERE " + "(" * 100_000,
        "DELETE FROM totals WHERE " + "(" * 50_000 + "1" + ")" * 50_000,
        "DELETE FROM totals WHERE n = 1" + " OR n = 1" * 25_000,
        "/*" * 100_000,
        "DELETE FROM totals; " * 12_000,
        "DELETE FROM totals WHERE name = '" + "x" * 260_000,
        "INSERT INTO totals VALUES " + "('a'," * 40_000,
        "SELECT 1;" * 28_000,
        "DELETE FROM totals WHERE n = " + "CASE WHEN " * 20_000,
        ";" * 260_000,
    ],
    ids=["open", "nested", "long", "comments", "many", "quote", "rows", "reads", "case", "empty"],
)
def test_texts_that_attack_are_refused_soon(writing: alluvia.Lake, monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    monkeypatch.setenv("ALLUVIA_QUERY_TIMEOUT_SECONDS", "1")
    before = state(writing)
    began = time.monotonic()
    answer = send(sql)
    assert time.monotonic() - began < 5
    assert answer["statusCode"] in (400, 422)
    assert len(error_of(answer)) < 3000
    assert state(writing) == before


def test_a_lost_race_is_a_409_that_says_what_to_do(writing: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another writer changes the table after the transaction has read it, and before it commits."""
    rival = alluvia.connect(writing.uri).table("totals")

    def meanwhile(*args: Any, **extra: Any) -> RenderedRows:
        rival.update({"n": "n + 10"})
        return render(*args, **extra)

    monkeypatch.setattr(statements, "render", meanwhile)
    answer = send("UPDATE totals SET n = n + 1; SELECT * FROM totals")
    assert answer["statusCode"] == 409
    assert "nothing was done, send the same request again" in error_of(answer)
    found = state(writing)[1]
    assert {name: n % 10 for name, n in found.items()} == {"a": 1, "b": 2}
    assert found["a"] > 10


def test_no_line_of_the_log_has_a_statement_or_a_value(writing: alluvia.Lake) -> None:
    with log_lines() as lines:
        body = {"query": "INSERT INTO totals VALUES ('hunter2', $n)", "parameters": {"n": 4242}}
        query.handler(event(json.dumps(body)), Context("r"))
        query.handler(event(json.dumps({"query": "DELETE FROM hunter2"})), Context("r"))
    assert "hunter2" not in lines.text
    assert "4242" not in lines.text
    assert [line["message"] for line in lines.parsed()] == ["answered", "refused"]


class NoDeletes(Wrapper):
    """A store whose role may not delete: the request fails, as S3's AccessDenied does."""

    def delete(self, keys: Iterable[str]) -> None:
        raise NotDeleted([*keys], "AccessDenied")


def test_no_statement_needs_the_right_to_delete(writing: alluvia.Lake) -> None:
    """The function's role has no s3:DeleteObject: whatever may be sent works without it."""
    store = NoDeletes(writing.store)
    with warm_lake.using(alluvia.Lake(store, writing.clock)):
        for sql in (
            "CREATE TABLE other (n BIGINT)",
            "INSERT INTO other VALUES (1), (2); INSERT INTO other SELECT n FROM totals; DELETE FROM other WHERE n = 1",
            "CREATE TABLE copied AS SELECT * FROM other",
            "UPDATE totals SET n = n + 1 WHERE name = 'a'",
            "MERGE INTO totals t USING (SELECT 'a' AS name) s ON t.name = s.name WHEN MATCHED THEN UPDATE SET n = 2",
            "ALTER TABLE other ADD COLUMN m BIGINT",
            "TRUNCATE TABLE copied",
            "RESTORE TABLE copied TO VERSION AS OF 0",
            "OPTIMIZE other",
            "CREATE VIEW seen AS SELECT * FROM totals",
            "DROP VIEW seen",
            "DROP TABLE copied",
            "UNDROP TABLE copied",
        ):
            answer = send(sql)
            assert answer["statusCode"] == 200, (sql, answer["body"])
        failed = send("INSERT INTO other (n) VALUES (9); SELECT error('late') FROM totals")
        assert (failed["statusCode"], "late" in error_of(failed)) == (400, True)
    assert state(writing)[1] == {"a": 2, "b": 2}


class Silent(Wrapper):
    """A store that carries commits out and says nothing more, from the first commit on."""

    silent = False

    def request(self, kind: str, key: str, send: Callable[[], T]) -> T:
        if kind == "put_if_absent":
            send()
            self.silent = True
        if self.silent:
            raise AnswerLost("no answer") if kind == "put_if_absent" else Unavailable("no answer")
        return send()


def test_a_commit_that_nobody_knows_of_is_not_to_be_sent_again_blindly(writing: alluvia.Lake) -> None:
    with warm_lake.using(alluvia.Lake(Silent(writing.store), writing.clock)):
        answer = send("INSERT INTO totals VALUES ('c', 3)")
    assert (answer["statusCode"], "Retry-After" in answer["headers"]) == (500, False)
    assert error_of(answer).startswith("check whether the statements took effect before you send them again: ")
    assert state(writing)[1] == {"a": 1, "b": 2, "c": 3}
