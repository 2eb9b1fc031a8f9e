"""BEGIN, COMMIT and ROLLBACK: in one text, between texts, and in a transaction that Python began."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import alluvia
from alluvia.errors import Conflict, Invalid
from alluvia.sql.run import SqlSession


@pytest.fixture
def counted(lake: alluvia.Lake) -> alluvia.Lake:
    lake.sql("CREATE TABLE t (a BIGINT); INSERT INTO t VALUES (1)")
    return lake


@pytest.fixture
def session(counted: alluvia.Lake) -> Iterator[SqlSession]:
    session = SqlSession(counted)
    yield session
    session.close()


def count(lake: alluvia.Lake | SqlSession) -> int:
    answer = (lake.sql if isinstance(lake, alluvia.Lake) else lake.execute)("SELECT count(*) AS n FROM t")
    return int(answer["n"][0].as_py())


def test_a_text_with_begin_and_its_end(counted: alluvia.Lake) -> None:
    done = counted.sql("BEGIN TRANSACTION; INSERT INTO t VALUES (2); COMMIT")
    assert done.to_pylist()[0]["rows_inserted"] == 1
    assert count(counted) == 2
    done = counted.sql("BEGIN ISOLATION LEVEL SNAPSHOT; DELETE FROM t; ROLLBACK")
    assert done.to_pylist() == [{"transaction": "rolled back"}]
    assert counted.sql("BEGIN; DELETE FROM t; SELECT count(*) AS n FROM t; ROLLBACK").to_pylist() == [{"n": 0}]
    assert count(counted) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("BEGIN; DELETE FROM t", "BEGIN without COMMIT"),
        ("DELETE FROM t; COMMIT", "COMMIT is not possible here"),
        ("BEGIN; DELETE FROM t; COMMIT; BEGIN; COMMIT", "COMMIT is not possible here"),
        ("BEGIN ISOLATION LEVEL READ COMMITTED; COMMIT", "ISOLATION LEVEL READ is not supported"),
        ("ROLLBACK TO x", "ROLLBACK TO is not supported"),
    ],
)
def test_a_text_is_one_transaction(counted: alluvia.Lake, text: str, message: str) -> None:
    with pytest.raises(Invalid, match=message):
        counted.sql(text)
    assert count(counted) == 1


def test_a_session_keeps_a_transaction_open_between_texts(counted: alluvia.Lake, session: SqlSession) -> None:
    assert session.execute("BEGIN").to_pylist() == [{"transaction": "begun"}]
    assert session.in_transaction
    session.execute("INSERT INTO t VALUES (?)", [2])
    assert (count(session), count(counted)) == (2, 1)
    assert session.execute("COMMIT").to_pylist() == [{"transaction": "committed"}]
    assert count(counted) == 2
    session.execute("BEGIN; DELETE FROM t")
    assert (count(session), count(counted)) == (0, 2)
    session.execute("ROLLBACK")
    session.execute("INSERT INTO t VALUES (3); BEGIN; INSERT INTO t VALUES (4); ROLLBACK; INSERT INTO t VALUES (5)")
    assert sorted(counted.sql("FROM t")["a"].to_pylist()) == [1, 2, 3, 5]


def test_after_an_error_a_transaction_takes_only_its_end(counted: alluvia.Lake, session: SqlSession) -> None:
    session.execute("BEGIN; DELETE FROM t")
    with pytest.raises(Invalid, match="has no column"):
        session.execute("INSERT INTO t (b) VALUES (1)")
    with pytest.raises(Invalid, match="the transaction failed with an earlier error: ROLLBACK"):
        session.execute("SELECT 1")
    with pytest.raises(Invalid, match="the transaction was rolled back"):
        session.execute("COMMIT")
    assert not session.in_transaction
    assert count(session) == 1


def test_a_commit_of_several_tables_says_which_versions_it_made(counted: alluvia.Lake, session: SqlSession) -> None:
    counted.sql("CREATE TABLE u (a BIGINT)")
    session.execute("BEGIN; INSERT INTO t VALUES (7); INSERT INTO u VALUES (7)")
    (said,) = session.execute("COMMIT").to_pylist()
    made = {"t": counted.table("t").version, "u": counted.table("u").version}
    assert said == {"transaction": "committed", "versions": made}
    assert made["u"] == 2


def test_begin_and_its_end_out_of_place(session: SqlSession) -> None:
    with pytest.raises(Invalid, match="COMMIT: no transaction is open"):
        session.execute("COMMIT")
    session.execute("BEGIN")
    with pytest.raises(Invalid, match="a transaction is open already"):
        session.execute("BEGIN")
    with pytest.raises(Invalid, match="OPTIMIZE cannot be part of a transaction"):
        session.execute("OPTIMIZE t")


def test_a_session_loses_to_a_writer_of_what_it_has_read(counted: alluvia.Lake, session: SqlSession) -> None:
    session.execute("BEGIN; INSERT INTO t SELECT count(*) + 10 FROM t")
    counted.sql("INSERT INTO t VALUES (2)")
    with pytest.raises(Conflict):
        session.execute("COMMIT")
    assert sorted(counted.sql("FROM t")["a"].to_pylist()) == [1, 2]


def test_statements_in_a_transaction_that_python_began(counted: alluvia.Lake) -> None:
    with counted.transaction() as tx:
        done = tx.sql("CREATE TABLE u AS SELECT a + 1 AS b FROM t; INSERT INTO t SELECT b FROM u WHERE b = ?", [2])
        assert done.to_pylist()[0]["rows_inserted"] == 1
        assert tx.sql("SELECT sum(a) AS n FROM t").to_pylist() == [{"n": 3}]
        with pytest.raises(Invalid, match="COMMIT is not possible here"):
            tx.sql("COMMIT")
        assert counted.tables() == ["t"]
    assert sorted(counted.sql("SELECT a FROM t UNION ALL SELECT b FROM u")["a"].to_pylist()) == [1, 2, 2]
