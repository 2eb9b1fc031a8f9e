"""What runs DuckDB's own test files, on texts of ours; and the list of its verdicts is well formed."""

from __future__ import annotations

import pytest

from alluvia.sql.run import execute
from tests.reach.duckdb_files import CRASH, NOT_APPLICABLE, REFUSED, RIGHT, VERDICTS, WRONG, run_text

EXECUTE = "tests.reach.duckdb_files.execute"
TABLE = "statement ok\nCREATE TABLE t (a BIGINT, s VARCHAR)\n\n"
ROWS = "statement ok\nINSERT INTO t VALUES (1, 'x'), (2, NULL)\n\n"
QUERY = "query IT\nSELECT * FROM t ORDER BY a\n----\n1\tx\n2\tNULL\n\n"


@pytest.mark.parametrize(
    ("text", "verdict", "compared"),
    [
        ("# a comment\n" + TABLE + ROWS + QUERY, RIGHT, 1),
        (TABLE + "loop i 0 3\n\nstatement ok\nINSERT INTO t VALUES (${i}, 'y')\n\n" + QUERY + "endloop\n", RIGHT, 3),
        (TABLE + "foreach f sum min\n\nquery I\nSELECT {f}(a) FROM t\n----\nNULL\n\nendloop\n", RIGHT, 2),
        (TABLE + ROWS + QUERY + "statement ok\nCREATE INDEX i ON t (a)\n\n" + QUERY, REFUSED, 1),
        (TABLE + ROWS + "statement error\nSELECT nothing FROM t\n----\nnot found\n\n" + QUERY, RIGHT, 1),
        ("require spatial\n\n" + TABLE + QUERY, NOT_APPLICABLE, 0),
        (TABLE + "statement ok con1\nINSERT INTO t VALUES (1, 'x')\n", NOT_APPLICABLE, 0),
        ("statement ok\nCREATE TABLE t (a HUGEINT)\n\n" + QUERY, NOT_APPLICABLE, 0),
        ("mode skip\n\n" + TABLE + "mode unskip\n\nhalt\n\n" + QUERY, NOT_APPLICABLE, 0),
        (
            TABLE + ROWS + "query R\nSELECT a / 3.0 FROM t\n----\n0.1\n\nquery I\nSELECT [a] FROM t\n----\n[1]\n",
            RIGHT,
            2,
        ),
    ],
)
def test_a_file_gets_its_verdict(text: str, verdict: str, compared: int) -> None:
    outcome = run_text(text)
    assert (outcome.verdict, outcome.compared) == (verdict, compared), outcome.notes


def test_reals_are_compared_as_far_as_duckdb_casts_decimals_to_them() -> None:
    table = "statement ok\nCREATE TABLE r (a REAL)\n\nstatement ok\nINSERT INTO r VALUES (-0.2571428716182709)\n\n"
    outcome = run_text(table + "query R\nSELECT a::DOUBLE FROM r\n----\n-0.25714287\n\n")
    assert (outcome.verdict, outcome.compared) == (RIGHT, 1), outcome.notes


def test_a_wrong_row_and_a_crash_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EXECUTE, lambda *given, **more: execute(*given, **more).slice(1))
    assert run_text(TABLE + ROWS + QUERY).verdict == WRONG

    def fail(*given: object, **more: object) -> None:
        raise TypeError("Integer exceeds 64-bit range")

    monkeypatch.setattr(EXECUTE, fail)
    outcome = run_text(TABLE)
    assert (outcome.verdict, outcome.notes) == (CRASH, ["line 1: TypeError: Integer exceeds 64-bit range"])


def test_no_file_is_wrong() -> None:
    lines = [line.split("\t") for line in VERDICTS.read_text("utf-8").splitlines()]
    assert {verdict for verdict, _ in lines} == {RIGHT, REFUSED, NOT_APPLICABLE}
    assert len({name for _, name in lines}) == len(lines) > 0
    assert all(name.startswith("test/sql/") and name.endswith(".test") for _, name in lines)
