"""One table of values through every way that rows come in: each gives the same value, or refuses it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

import alluvia
from alluvia.errors import Invalid

Table = alluvia.Table
Way = Callable[[alluvia.Lake, str, Any], object]
NOON = dt.datetime(2026, 1, 1, 12, tzinfo=dt.timezone(dt.timedelta(hours=5)))
REFUSED = object()
PROBES: list[tuple[str, str, Any, Any]] = [
    # the column's type, the value in SQL, the value in Python (... where there is no such), what is stored
    ("array<long>", "[1, 2.75]", [1, Decimal("2.75")], REFUSED),
    ("array<long>", "[1.5e0]", [1.5], REFUSED),
    ("array<long>", "[true]", [True], REFUSED),
    ("array<long>", "[7::HUGEINT]", [Decimal(7)], [7]),
    ("array<integer>", "[3000000000]", [3000000000], REFUSED),
    ("array<double>", "[1, 2.5]", [1, Decimal("2.5")], [1.0, 2.5]),
    ("array<double>", "[9007199254740993]", [9007199254740993], REFUSED),
    ("array<float>", "[1e300]", [1e300], REFUSED),
    ("array<decimal(10,2)>", "[1.005]", [Decimal("1.005")], REFUSED),
    ("array<decimal(10,2)>", "[1.50, 2]", [Decimal("1.50"), 2], [Decimal("1.50"), Decimal("2.00")]),
    ("array<decimal(10,2)>", "[1.5e0]", [1.5], REFUSED),
    ("array<string>", "[1]", [1], REFUSED),
    ("array<string>", "['a', NULL]", ["a", None], ["a", None]),
    ("array<date>", "[TIMESTAMP '2026-01-01 12:00:00']", [dt.datetime(2026, 1, 1, 12)], REFUSED),
    ("array<timestamp_ntz>", "[TIMESTAMPTZ '2026-01-01 12:00:00+05']", [NOON], REFUSED),
    ("array<timestamp>", "[DATE '2026-01-01']", [dt.date(2026, 1, 1)], [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)]),
    ("array<boolean>", "[1]", [1], REFUSED),
    ("array<array<integer>>", "[[1], [2.5]]", [[1], [Decimal("2.5")]], REFUSED),
    ("array<struct<a:integer>>", "[{'a': 1, 'z': 2}]", [{"a": 1, "z": 2}], REFUSED),
    ("struct<a:long,b:string>", "{'a': 1.5, 'b': 'x'}", {"a": Decimal("1.5"), "b": "x"}, REFUSED),
    ("struct<a:long,b:string>", "{'a': 1, 'c': 'x'}", {"a": 1, "c": "x"}, REFUSED),
    ("struct<a:long,b:string>", "{'b': 'x', 'a': 1}", {"b": "x", "a": 1}, {"a": 1, "b": "x"}),
    ("struct<a:long,b:string>", "{'a': 1}", {"a": 1}, {"a": 1, "b": None}),
    ("struct<a:long,b:string>", "row(1, 'x')", ..., {"a": 1, "b": "x"}),
    ("map<string,long>", "MAP {'a': 2.5}", {"a": Decimal("2.5")}, REFUSED),
    ("map<string,long>", "MAP {'a': 2}", ..., [("a", 2)]),
    ("map<string,long>", "MAP {1: 2}", ..., REFUSED),
    ("long", "2.75", Decimal("2.75"), REFUSED),
    ("long", "7::DECIMAL(38, 0)", Decimal(7), 7),
    ("long", "2e0", 2.0, REFUSED),
    ("long", "true", True, REFUSED),
    ("decimal(10,2)", "1.005", Decimal("1.005"), REFUSED),
    ("double", "1.5", Decimal("1.5"), 1.5),
    ("double", "0.1234567890123456789", Decimal("0.1234567890123456789"), 0.12345678901234568),
    ("double", "12345678901234567890.123456789012345678", Decimal("12345678901234567890.123456789012345678"),
     12345678901234567890.123456789012345678),
    ("float", "16777217", 16777217, REFUSED),
    ("string", "1", 1, REFUSED),
    ("date", "TIMESTAMP '2026-01-01 12:00:00'", dt.datetime(2026, 1, 1, 12), REFUSED),
    ("timestamp", "DATE '2026-01-01'", dt.date(2026, 1, 1), dt.datetime(2026, 1, 1, tzinfo=dt.UTC)),
    ("timestamp_ntz", "TIMESTAMPTZ '2026-01-01 12:00:00+05'", NOON, REFUSED),
    ("boolean", "1", 1, REFUSED),
]  # fmt: skip
IN_SQL: dict[str, str] = {
    "values": "INSERT INTO t VALUES (1, {sql})",
    "select": "INSERT INTO t SELECT 1, {sql}",
    "update": "UPDATE t SET v = {sql}",
    "update with a query": "UPDATE t SET v = {sql} WHERE k IN (SELECT 1)",
    "update by a query": "UPDATE t SET v = (SELECT {sql})",
    "merge's insert": "MERGE INTO t USING (SELECT 1 AS k, {sql} AS v) AS s ON t.k = s.k WHEN NOT MATCHED THEN INSERT *",
    "merge's value": "MERGE INTO t USING (SELECT 1 AS k) AS s ON t.k = s.k WHEN NOT MATCHED THEN INSERT (k, v) "
    "VALUES (1, {sql})",
    "merge's update": "MERGE INTO t USING (SELECT 1 AS k, {sql} AS v) AS s ON t.k = s.k WHEN MATCHED THEN UPDATE SET "
    "v = s.v",
    "merge by pairs": "MERGE INTO t USING (SELECT 1 AS k, {sql} AS v) AS s ON t.k = s.k AND t.k < s.k + 1 "
    "WHEN MATCHED THEN UPDATE SET v = s.v",
}
IN_PYTHON: dict[str, Way] = {
    "append": lambda lake, _, value: lake["t"].append([{"k": 1, "v": value}]),
    "upsert": lambda lake, _, value: lake["t"].upsert([{"k": 1, "v": value}], on=["k"]),
    "an Arrow table": lambda lake, _, value: lake["t"].append(
        pa.table({"k": pa.array([1], pa.int64()), "v": pa.array([value])})
    ),
    "a parameter in VALUES": lambda lake, _, value: lake.sql("INSERT INTO t VALUES (1, $1)", [value]),
    "a parameter in SELECT": lambda lake, _, value: lake.sql("INSERT INTO t SELECT 1, $1", [value]),
    "a parameter in UPDATE": lambda lake, _, value: lake.sql("UPDATE t SET v = $1", [value]),
}


@pytest.mark.parametrize(("kind", "sql", "value", "stored"), PROBES, ids=[f"{p[0]} {p[1]}" for p in PROBES])
def test_every_way_stores_the_same_or_refuses(kind: str, sql: str, value: Any, stored: Any) -> None:
    found = {}
    ways: dict[str, Way] = {name: _statement(text) for name, text in IN_SQL.items()}
    for name, way in (ways if value is ... else ways | IN_PYTHON).items():
        lake = alluvia.connect(f"memory://conversion-{abs(hash((kind, sql, name)))}")
        table = lake.create_table("t", {"k": "long", "v": kind})
        if "update" in name.lower() or "pairs" in name:
            table.append([{"k": 1}])
        try:
            way(lake, sql, value)
            (found[name],) = table.to_arrow()["v"].to_pylist()
        except Invalid as error:
            found[name] = REFUSED if "column v" in str(error) else str(error)
    assert found == dict.fromkeys(found, stored)


def _statement(text: str) -> Way:
    return lambda lake, sql, _: lake.sql(text.format(sql=sql))


@pytest.mark.parametrize(
    ("kind", "values", "stored"),
    [
        ("array<long>", "(1, ['2']), (2, ['3'])", [[2], [3]]),
        ("array<date>", "(1, ['2026-01-01'])", [[dt.date(2026, 1, 1)]]),
        ("array<long>", "(1, '[1, 2]')", [[1, 2]]),
        ("struct<a:long,b:string>", "(1, {'a': '7', 'b': 'x'})", [{"a": 7, "b": "x"}]),
        ("struct<a:long,b:string>", "(1, '{a: 7}')", [{"a": 7, "b": None}]),
        ("map<string,long>", "(1, {'a': 1, 'b': 2}), (2, NULL), (3, {'a': 3, 'b': 4})",
         [[("a", 1), ("b", 2)], None, [("a", 3), ("b", 4)]]),
        ("map<string,long>", "(1, '{a=2}')", [[("a", 2)]]),
        ("array<long>", "(1, ['2.5']), (2, [3])", "Cannot combine types"),
        ("array<long>", "(1, [3]), (2, ['2.5'])", "Cannot combine types"),
        ("array<long>", "(1, '[1, 2.5]')", "'2.5' does not fit long unless it is rounded or cut"),
        ("struct<a:long>", "(1, {'a': '2.5'})", "column v.a: '2.5' does not fit long"),
        ("map<string,long>", "(1, '{a=2.5}')", "column v.value: '2.5' does not fit long"),
        ("map<string,long>", "(1, {'a': 1}), (2, {'b': 2})", "a struct with nulls cannot become a map"),
        ("array<date>", "(1, ['2026-01-01 12:00:00'])", "does not fit date"),
    ],
)  # fmt: skip
def test_texts_in_values(kind: str, values: str, stored: Any) -> None:
    lake = alluvia.connect(f"memory://texts-{abs(hash((kind, values)))}")
    table = lake.create_table("t", {"k": "long", "v": kind})
    if isinstance(stored, str):
        with pytest.raises(Invalid, match=stored.replace(".", r"\.")):
            lake.sql(f"INSERT INTO t VALUES {values}")
        stored = []
    else:
        lake.sql(f"INSERT INTO t VALUES {values}")
    assert table.to_arrow().sort_by("k")["v"].to_pylist() == stored


def test_texts_within_calls_stay_as_they_are() -> None:
    lake = alluvia.connect("memory://calls")
    lake.create_table("t", {"k": "long", "v": "array<date>"})
    lake.sql(
        "INSERT INTO t VALUES (1, [strptime('01.02.2026', '%d.%m.%Y')::DATE, DATE '2026-01-02', '2026-01-03'::DATE])"
    )
    assert lake.sql("SELECT v FROM t").to_pylist() == [
        {"v": [dt.date(2026, 2, 1), *map(dt.date, [2026] * 2, [1] * 2, [2, 3])]}
    ]
