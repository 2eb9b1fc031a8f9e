"""The types of parameters, as JDBC needs them before there are values."""

from __future__ import annotations

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake
from alluvia.flight.metadata import SCHEMA, like, sql_info
from alluvia.flight.prepared import parameter_schema

LONG, TEXT, DAY, MONEY = pa.int64(), pa.string(), pa.date32(), pa.decimal128(10, 2)


@pytest.fixture
def tables(lake: Lake) -> Lake:
    lake.create_table("t", {"id": "long", "day": "date", "name": "string", "Price": "decimal(10,2)"})
    lake.create_table("u", {"id": "string", "size": "double"})
    return lake


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("SELECT 1", {}),
        ("SELECT * FROM t WHERE id = ?", {"1": LONG}),
        ("SELECT * FROM t WHERE ? <= day AND t.name <> ?", {"1": DAY, "2": TEXT}),
        ("SELECT * FROM t WHERE \"Price\" > $low AND price < $high AND price <> $low", {"low": MONEY, "high": MONEY}),
        ("SELECT * FROM t WHERE day BETWEEN ? AND ? OR id NOT BETWEEN ? AND ?",
         {"1": DAY, "2": DAY, "3": LONG, "4": LONG}),
        ("SELECT * FROM t WHERE id IN (?, ?) OR day NOT IN (?)", {"1": LONG, "2": LONG, "3": DAY}),
        ("SELECT * FROM t WHERE name LIKE ? LIMIT ? OFFSET ?", {"1": TEXT, "2": LONG, "3": LONG}),
        ("SELECT ?::INTEGER, CAST(? AS DECIMAL(10, 2)), ?", {"1": pa.int32(), "2": MONEY, "3": TEXT}),
        ("SELECT * FROM t, u WHERE id = ? AND size > ?", {"1": TEXT, "2": pa.float64()}),
        ("SELECT * FROM t WHERE id = ? + 1 AND ? = abs(id)", {"1": LONG, "2": TEXT}),
        ("INSERT INTO t VALUES (?, ?, upper(?), ?), (?, ?, 'x', ?)",
         {"1": LONG, "2": DAY, "3": TEXT, "4": MONEY, "5": LONG, "6": DAY, "7": MONEY}),
        ("INSERT INTO t (day, id) VALUES (?, ?)", {"1": DAY, "2": LONG}),
        ("UPDATE t SET day = ?, name = ? WHERE id = ?", {"1": DAY, "2": TEXT, "3": LONG}),
        ("DELETE FROM t WHERE day < ?", {"1": DAY}),
        ("SELECT * FROM missing WHERE id = ?", {"1": TEXT}),
        ("INSERT INTO missing VALUES (?)", {"1": TEXT}),
    ],
)  # fmt: skip
def test_a_parameter_has_the_type_of_what_it_meets(tables: Lake, text: str, types: dict[str, pa.DataType]) -> None:
    assert parameter_schema(text, tables.catalog) == pa.schema(types)


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [
        ("orders", "%", True), ("", "%", True), ("", "", True), ("orders", "", False), ("orders", "orders", True),
        ("orders", "ord%", True), ("orders", "%der%", True), ("orders", "o_ders", True), ("orders", "o_ers", False),
        ("orders_old", r"orders\_%", True), ("orders2old", r"orders\_%", False), ("a%b", r"a\%b", True),
        ("orders", "%x", False), ("ababac", "%abac", True), ("a", "%%", True), ("a", "__", False),
    ],
)  # fmt: skip
def test_patterns(text: str, pattern: str, expected: bool) -> None:
    assert like(text, pattern) is expected


def test_a_pattern_of_many_signs_takes_no_time() -> None:
    assert not like("a" * 128, "%a" * 5000 + "b")


def test_the_server_tells_of_itself() -> None:
    found = sql_info([], allow_writes=True)
    assert found.schema == SCHEMA
    found.validate(full=True)
    told = dict(zip(found.column(0).to_pylist(), found.column(1).to_pylist(), strict=True))
    assert told.keys() >= {0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 100, 101, *range(500, 577)}
    assert (told[0], told[3], told[504], told[562]) == ("Alluvia", False, '"', 4)
    asked = sql_info([3, 0, 999], allow_writes=False)
    assert (asked.column(0).to_pylist(), asked.column(1).to_pylist()) == ([3, 0], [True, "Alluvia"])
