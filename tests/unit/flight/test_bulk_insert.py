"""Which INSERTs of many rows of values are one write."""

from __future__ import annotations

from typing import Any

import pytest

from alluvia.flight.bulk_ingest import as_rows
from alluvia.sql.grammar.statements import parse

SETS: list[dict[str, Any] | None] = [{"1": 1, "2": "a"}, {"1": 2, "2": None}]


@pytest.mark.parametrize("text", ["INSERT INTO t VALUES (?, ?)", "insert into t (a, b) values ( ? , ? ) ;"])
def test_values_that_are_parameters(text: str) -> None:
    found = as_rows(parse(text), SETS)
    assert found is not None
    assert found[0].table == "t"
    assert [column.to_pylist() for column in found[1].columns] == [[1, 2], ["a", None]]


def test_names_and_repetitions() -> None:
    found = as_rows(parse("INSERT INTO t VALUES ($b, $a, $b)"), [{"a": 1, "b": 2.5}, {"a": 3, "b": 4}])
    assert found is not None
    assert [column.to_pylist() for column in found[1].columns] == [[2.5, 4.0], [1, 3], [2.5, 4.0]]


@pytest.mark.parametrize(
    ("text", "sets"),
    [
        ("INSERT INTO t VALUES (?, ?)", SETS[:1]),
        ("INSERT INTO t VALUES (?, upper(?))", SETS),
        ("INSERT INTO t VALUES (?, ?), (1, 2)", SETS),
        ("INSERT INTO t VALUES (?, DEFAULT, ?)", SETS),
        ("INSERT INTO t VALUES (-?, ?)", SETS),
        ("INSERT INTO t SELECT ?, ?", SETS),
        ("INSERT INTO t VALUES (1, 2)", [None, None]),
        ("UPDATE t SET a = ? WHERE b = ?", SETS),
        ("INSERT INTO t VALUES (?, ?); DELETE FROM u", SETS),
        ("INSERT INTO t VALUES (?, ?)", [{"1": 1, "2": "a"}, {"1": "one", "2": "a"}]),
        ("INSERT INTO t VALUES (?, ?)", [{"1": 1, "2": "a"}, {"1": 2}]),
        ("INSERT INTO t VALUES (?, ?)", [{"1": 1, "2": "a"}, None]),
    ],
)
def test_what_stays_a_statement_for_each_row(text: str, sets: list[dict[str, Any] | None]) -> None:
    assert as_rows(parse(text), sets) is None
