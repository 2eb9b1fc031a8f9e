"""Parameters of SELECT and of statements that write: typed, bound, and never taken for SQL."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import alluvia
from alluvia.engine.duck.database import evaluator
from alluvia.engine.duck.literals import literal
from alluvia.errors import Invalid

NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.UTC)
VALUES = [
    "it's -- ; DROP TABLE t", "", "a\0b", "é\U0001f600", 0, -1, 2**62, -(2**63), 1.5, -0.0, 1e300, float("inf"), True,
    False, None, b"", b"\x00'\xff", Decimal("1.50"), Decimal("-0.001"), Decimal(10**37), dt.date(1, 1, 1),
    dt.date(9999, 12, 31), dt.datetime(2026, 1, 1, 12), dt.datetime(1900, 1, 1, 0, 0, 0, 1), NOON,
    NOON.astimezone(dt.timezone(dt.timedelta(hours=5, minutes=30))), [1, 2], ["a'", None], [[1], []],
    {"a": 1, "b c": "x"}, [{"a": [True]}], {"n": {"d": dt.date(2026, 1, 1)}},
]  # fmt: skip


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_value_comes_back_as_it_was(lake: alluvia.Lake, value: Any) -> None:
    assert lake.sql("SELECT ? AS v, $2 AS w".replace("$2", "?"), [value, value]).to_pylist() == [
        {"v": value, "w": value}
    ]
    assert lake.sql("SELECT $v AS v", {"v": value}).to_pylist() == [{"v": value}]
    assert lake.sql("SELECT $1 AS v; SELECT $2 AS v", [0, value]).to_pylist() == [{"v": value}]


def nested(levels: int, kind: str) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value} if kind == "dict" else [value]
    return value


@pytest.mark.parametrize("kind", ["list", "dict"])
def test_a_value_may_be_nested_32_levels_deep(lake: alluvia.Lake, kind: str) -> None:
    value = nested(32, kind)
    assert lake.sql("SELECT [{'x': $v}] AS v", {"v": value}).to_pylist() == [{"v": [{"x": value}]}]
    for levels in (33, 80, 100_000):
        with pytest.raises(Invalid, match=r"^parameter \$v is nested more than 32 levels deep: flatten it, or pass it"):
            lake.sql("SELECT $v", {"v": nested(levels, kind)})
    with pytest.raises(Invalid, match=r"^parameter 2 is nested more than 32 levels deep"):
        lake.sql("INSERT INTO t SELECT ?, ?", [1, nested(33, kind)])


def test_a_result_that_is_nested_too_deeply(lake: alluvia.Lake) -> None:
    with pytest.raises(Invalid, match=r"^a column of the result is nested too deeply to be sent: flatten it, or cast"):
        lake.sql(f"SELECT {'[' * 70}1{']' * 70}")


def computed(text: str) -> Any:
    return evaluator().execute(f"SELECT {text} AS v").to_arrow_table().to_pylist()[0]["v"]


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_a_literal_is_the_value(value: Any) -> None:
    found = computed(literal(value))
    assert found == value
    assert type(found) is type(value)


simple = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.binary()
    | st.text(st.characters(codec="utf-8")) | st.dates()
    | st.datetimes() | st.decimals(places=4, min_value=-(10**20), max_value=10**20)
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(simple | st.dictionaries(st.sampled_from(["a", "b'", 'c"']), simple, min_size=1))
def test_any_literal_is_the_value(value: Any) -> None:
    assert computed(literal(value)) == value


@pytest.mark.parametrize("value", [Decimal("NaN"), Decimal("1E+40"), {"": 1}, object], ids=repr)
def test_what_has_no_literal_is_refused(value: Any) -> None:
    with pytest.raises(Invalid):
        literal(value)


def test_parameters_prune_files(lake: alluvia.Lake) -> None:
    table = lake.create_table("t", {"day": "date", "n": "long"}, partition_by=["day"])
    for day in range(1, 6):
        table.append([{"day": dt.date(2026, 1, day), "n": day}])
    cases: list[tuple[str, Any, int, int]] = [
        ("day = ?", [dt.date(2026, 1, 2)], 1, 1),
        ("n >= $n", {"n": 4}, 2, 2),
        ("n IN (?, ?)", [1, 5], 2, 2),
        ("day > ?", [dt.datetime(2026, 1, 4)], 1, 1),
        ("day = ?", ["2026-01-02"], 1, 1),
    ]
    for condition, parameters, files, found in cases:
        explained = lake.sql(f"EXPLAIN SELECT * FROM t WHERE {condition}", parameters).to_pylist()[0]
        assert explained["files_read"] == files, condition
        assert lake.sql(f"SELECT n FROM t WHERE {condition}", parameters).num_rows == found


def test_parameters_in_statements_that_write(lake: alluvia.Lake) -> None:
    lake.sql("CREATE TABLE t (a BIGINT, b STRING, ts TIMESTAMP, x DECIMAL(9, 3), l INT[], s STRUCT(p INT, q STRING))")
    evil = "x'; DROP TABLE t; --"
    lake.sql(
        "INSERT INTO t VALUES (?, ?, ?, ?, ?, ?); INSERT INTO t (a, b) SELECT ? + a, ? FROM t",
        [1, evil, NOON, Decimal("1.5"), [1, 2], {"p": 1, "q": "'"}, 10, "$1 ? "],
    )
    assert [tuple(row.values()) for row in lake.sql("FROM t ORDER BY a").to_pylist()] == [
        (1, evil, NOON, Decimal("1.500"), [1, 2], {"p": 1, "q": "'"}),
        (11, "$1 ? ", None, None, None, None),
    ]
    lake.sql("UPDATE t SET b = $new, a = a - $minus WHERE b = $old", {"new": "'", "minus": -5, "old": evil})
    lake.sql("DELETE FROM t WHERE a = ? AND '?' <> ?", [11, "x"])
    assert lake.sql("SELECT a, b FROM t").to_pylist() == [{"a": 6, "b": "'"}]
    assert lake.sql("UPDATE t SET a = ? - ?; SELECT a FROM t WHERE a = ?", [1, -1, 2]).to_pylist() == [{"a": 2}]


@pytest.mark.parametrize(
    ("text", "parameters", "message"),
    [
        ("SELECT ?", None, "a parameter"),
        ("SELECT ?, ?", [1], "parameter 2 has no value"),
        ("SELECT $a", {"b": 1}, "parameter $a has no value"),
        ("SELECT 1", [1], "parameter 1 has a value, but the SQL does not use it"),
        ("SELECT ?", [{1}], "parameter 1: expected text, a number"),
        ("SELECT ?", [[1, "a"]], "parameter 1 does not fit one SQL type"),
        ("SELECT ?", [10**80], "parameter 1 does not fit one SQL type"),
        ("SELECT ?", "a", "parameters: expected a list for ?, or a dict for $name, got str"),
        ("SELECT * FROM t(?)", ["2026-01-01"], "the version of t cannot be a parameter"),
        ("DELETE FROM t WHERE a = ?", None, "parameter 1 has no value"),
        ("DELETE FROM t WHERE a = 1", [1], "parameter 1 has a value, but the SQL does not use it"),
        ("DELETE FROM t WHERE a = $a; SELECT $b", {"a": 1}, "parameter $b has no value"),
        ("DELETE FROM t WHERE a = ? OR a = $a", [1], "both ? and named parameters"),
        ("DELETE FROM ?", ["t"], "expected the name of a table, got ?"),
    ],
)  # fmt: skip
def test_parameters_that_do_not_fit_are_named(lake: alluvia.Lake, text: str, parameters: Any, message: str) -> None:
    lake.sql("CREATE TABLE t (a BIGINT)")
    with pytest.raises(Invalid) as raised:
        lake.sql(text, parameters)
    assert message in str(raised.value)
