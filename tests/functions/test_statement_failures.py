"""Statements over HTTP that fail: nothing of their request stays, and the answer says what to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import pytest

import alluvia
from alluvia.errors import AlluviaError, AnswerLost, Conflict, NotDeleted, Unavailable
from alluvia.flight.statuses import status_of
from alluvia.query.rendering import RenderedRows, render
from alluvia.serverless import warm_lake
from alluvia.store import Store
from alluvia.store.wrapper import Wrapper
from functions.query import statements
from tests.functions.statements import lake as lake  # noqa: PLC0414 - a fixture
from tests.functions.statements import send, state
from tests.functions.statements import writing as writing  # noqa: PLC0414 - a fixture
from tests.functions.test_query import error_of

T = TypeVar("T")


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
def test_a_failed_statement_undoes_the_whole_request(writing: alluvia.Lake, sql: str) -> None:
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
def test_hostile_statements_are_refused_quickly(
    writing: alluvia.Lake, monkeypatch: pytest.MonkeyPatch, sql: str
) -> None:
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


class NoDeletes(Wrapper):
    """A store whose role may not delete objects, like S3 with AccessDenied."""

    def delete(self, keys: Iterable[str]) -> None:
        raise NotDeleted([*keys], "AccessDenied")


def test_no_statement_needs_the_right_to_delete(writing: alluvia.Lake) -> None:
    """The function's role has no s3:DeleteObject, and no statement needs it."""
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
    """A store that carries out the first commit, and answers nothing from then on."""

    silent = False

    def request(self, kind: str, key: str, send: Callable[[], T]) -> T:
        if kind == "put_if_absent":
            send()
            self.silent = True
        if self.silent:
            raise AnswerLost("no answer") if kind == "put_if_absent" else Unavailable("no answer")
        return send()


def test_if_a_commit_may_have_succeeded_the_answer_says_to_check_first(writing: alluvia.Lake) -> None:
    with warm_lake.using(alluvia.Lake(Silent(writing.store), writing.clock)):
        answer = send("INSERT INTO totals VALUES ('c', 3)")
    assert (answer["statusCode"], "Retry-After" in answer["headers"]) == (500, False)
    assert error_of(answer).startswith("check whether the statements took effect before you send them again: ")
    assert state(writing)[1] == {"a": 1, "b": 2, "c": 3}


def test_a_text_of_definitions_says_what_is_committed(writing: alluvia.Lake) -> None:
    answer = send("CREATE SCHEMA gold; CREATE VIEW gold.v AS FROM nothing; CREATE SCHEMA silver")
    assert answer["statusCode"] == 404
    assert error_of(answer).startswith("statement 2 of 3 (CREATE VIEW): ")
    assert error_of(answer).endswith("(those before it are committed)")
    assert writing.schemas() == ["main", "gold"]


class Failing(Wrapper):
    """Fails when the table `gold.t` is created."""

    def __init__(self, inner: Store, error: AlluviaError) -> None:
        super().__init__(inner)
        self.error = error

    def request(self, kind: str, key: str, send: Callable[[], T]) -> T:
        if kind == "put_if_absent" and key.startswith("gold.t/"):
            raise self.error
        return send()


@pytest.mark.parametrize(("error", "status"), [(Conflict("another writer"), 409), (Unavailable("no answer"), 503)])
def test_a_text_of_which_a_part_is_committed_is_not_to_be_sent_again(
    writing: alluvia.Lake, error: AlluviaError, status: int
) -> None:
    with warm_lake.using(alluvia.Lake(Failing(writing.store, error), writing.clock)):
        answer = send("CREATE SCHEMA gold; CREATE TABLE gold.t (n INT)")
    assert answer["statusCode"] == status
    assert error_of(answer).startswith("statement 2 of 2 (CREATE TABLE): ")
    assert error_of(answer).endswith("(those before it are committed)")
    assert "again" not in status_of(error)[1]
    assert writing.schemas() == ["main", "gold"]
