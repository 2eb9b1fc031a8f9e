"""What pruning does leave out; the property tests show that it never leaves out too much."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.files.file_set import ActionSet
from alluvia.delta.skipping.predicate import (
    And,
    Comparison,
    In,
    IsNotNull,
    IsNull,
    Operator,
    Or,
    Predicate,
    Unknown,
    columns_of,
)
from alluvia.delta.skipping.pruning import prune
from alluvia.delta.statistics.written import file_statistics

SCHEMA = pa.schema(
    [
        ("i", pa.int64()), ("f", pa.float64()), ("s", pa.string()), ("d", pa.decimal128(10, 2)),
        ("ts", pa.timestamp("us", tz="UTC")), ("local", pa.timestamp("us")), ("day", pa.date32()), ("b", pa.bool_()),
        ("st", pa.struct([("a", pa.int64())])), ("p", pa.string()), ("q", pa.int32()),
    ]
)  # fmt: skip


def keeps(stats: str | None, predicate: Predicate, partition: dict[str, str | None] | None = None) -> bool:
    file = AddFile("f", partition or {}, 1, 1, data_change=True, stats=stats)
    return bool(prune([file], predicate, SCHEMA, tuple(partition or {})))


def stats(**columns: list[Any]) -> str:
    arrays = {name: pa.array(values, SCHEMA.field(name).type) for name, values in columns.items()}
    return file_statistics(pa.table(arrays))


def noon(hour: int = 12, microsecond: int = 0) -> datetime:
    return datetime(2024, 5, 6, hour, microsecond=microsecond, tzinfo=UTC)


@pytest.mark.parametrize(
    ("operator", "kept"),
    [
        ("=", [False, True, True, True, False]),
        ("!=", [True, True, True, True, True]),
        ("<", [False, False, True, True, True]),
        ("<=", [False, True, True, True, True]),
        (">", [True, True, True, False, False]),
        (">=", [True, True, True, True, False]),
    ],
)
def test_a_number_is_compared_with_the_bounds(operator: Operator, kept: list[bool]) -> None:
    found = [keeps(stats(i=[10, 20]), Comparison(("i",), operator, value)) for value in (9, 10, 15, 20, 21)]
    assert found == kept


def test_a_single_value_is_left_out_by_not_equal() -> None:
    assert not keeps(stats(i=[5, 5]), Comparison(("i",), "!=", 5))
    assert keeps(stats(i=[5, 5]), Comparison(("i",), "!=", 6))
    assert keeps(stats(s=["x" * 33]), Comparison(("s",), "!=", "x" * 32))


@pytest.mark.parametrize(
    ("column", "values", "inside", "outside"),
    [
        ("s", ["b", "d"], ["b", "c", "d"], ["a", "bb"[:0], "e", "d\0"]),
        ("s", ["b" * 40], ["b" * 40, "b" * 32 + "c"], ["b" * 31, "c", "b" * 31 + "c"]),
        (
            "d",
            [Decimal("0.10"), Decimal("0.30")],
            [Decimal("0.1"), Decimal("0.30")],
            [Decimal("0.09"), Decimal("0.31")],
        ),
        ("ts", [noon(), noon(13)], [noon(), noon(13)], [noon(11), noon(14)]),
        ("local", [noon().replace(tzinfo=None)], [noon().replace(tzinfo=None)], [noon(13).replace(tzinfo=None)]),
        ("day", [date(2024, 5, 6)], [date(2024, 5, 6)], [date(2024, 5, 5), date(2024, 5, 7)]),
        ("f", [1.5, 2.5], [1.5, 2.5], [1.4, 2.6]),
    ],
)
def test_equality_with_a_value_of_each_type(column: str, values: Any, inside: Any, outside: Any) -> None:
    file = stats(**{column: values})
    for value in inside:
        assert keeps(file, Comparison((column,), "=", value))
    for value in outside:
        assert not keeps(file, Comparison((column,), "=", value))
    assert keeps(file, In((column,), (*outside, inside[0])))
    assert not keeps(file, In((column,), tuple(outside)))
    assert not keeps(file, In((column,), ()))


def test_nulls_are_known() -> None:
    assert not keeps(stats(i=[1, 2]), IsNull(("i",)))
    assert keeps(stats(i=[1, None]), IsNull(("i",)))
    assert keeps(stats(i=[1, None]), IsNotNull(("i",)))
    assert not keeps(stats(i=[None, None]), IsNotNull(("i",)))
    assert not keeps(stats(i=[None, None]), Comparison(("i",), "!=", 1))
    assert not keeps(stats(b=[None]), Comparison(("b",), "=", value=True))


def test_connectives() -> None:
    file = stats(i=[1, 5], s=["a", "a"])
    yes, no = Comparison(("i",), "=", 3), Comparison(("i",), "=", 9)
    assert keeps(file, And((yes, Unknown())))
    assert not keeps(file, And((yes, no)))
    assert keeps(file, Or((yes, no)))
    assert not keeps(file, Or((no, Comparison(("s",), "=", "b"))))
    assert keeps(file, Or((no, Unknown())))
    assert keeps(file, And(()))
    assert not keeps(file, Or(()))
    assert columns_of(Or((And((yes, IsNull(("st", "a")))), Unknown()))) == {("i",), ("st", "a")}


def test_partition_values_prune_exactly() -> None:
    partition: dict[str, str | None] = {"p": "a b", "q": "7"}
    rows = '{"numRecords":3}'
    assert keeps(rows, Comparison(("p",), "=", "a b"), partition)
    assert not keeps(rows, Comparison(("p",), "=", "a"), partition)
    assert keeps(rows, Comparison(("q",), ">=", 7), partition)
    assert not keeps(rows, Comparison(("q",), ">", 7), partition)
    assert not keeps(rows, IsNull(("p",)), partition)
    assert keeps(rows, IsNull(("p",)), {"p": None})
    assert keeps(rows, IsNull(("p",)), {"p": ""})
    assert not keeps(rows, Comparison(("p",), "=", "x"), {"p": None})
    assert not keeps(rows, IsNotNull(("p",)), {"p": None})
    assert keeps(None, Comparison(("p",), "=", "a b"), partition)
    assert not keeps(None, Comparison(("p",), "=", "a"), partition)


def test_nested_fields_prune() -> None:
    file = stats(st=[{"a": 1}, {"a": 5}, None])
    assert keeps(file, Comparison(("st", "a"), "=", 5))
    assert not keeps(file, Comparison(("st", "a"), "=", 6))
    assert keeps(file, IsNull(("st",)))
    assert keeps(file, IsNull(("st", "a")))
    assert keeps(file, Comparison(("st", "unknown"), "=", 5))


def test_nan_and_infinity_are_never_pruned_away() -> None:
    file = (
        '{"numRecords":3,"minValues":{"f":1.0},"maxValues":{"f":2.0},"nullCount":{"f":0}}'  # another NaN may be there
    )
    for operator in (">", ">=", "!="):
        assert keeps(file, Comparison(("f",), operator, 5.0))
    assert not keeps(file, Comparison(("f",), "=", 5.0))
    assert not keeps(file, Comparison(("f",), "<", 1.0))
    assert keeps(file, Comparison(("f",), "=", math.nan))
    assert keeps(stats(f=[math.inf, 1.0]), Comparison(("f",), "=", math.inf))
    assert keeps(stats(f=[-math.inf, 7.0]), Comparison(("f",), "<", 5.0))


@pytest.mark.parametrize(
    "broken",
    [
        None, "", "{", "[]", "null", "5", '{"numRecords":3}', '{"minValues":{"i":10}}', '{"maxValues":{"i":1}}',
        '{"minValues":{"i":"10"},"maxValues":{"i":"11"}}', '{"minValues":{"i":true},"maxValues":{"i":true}}',
        '{"minValues":{"i":{"x":1}},"maxValues":{"i":{"x":1}}}', '{"minValues":[10],"maxValues":[11]}',
        '{"minValues":{"i":null},"maxValues":{"i":null},"nullCount":{"i":null}}',
    ],
)  # fmt: skip
def test_absent_and_unreadable_statistics_keep_the_file(broken: str | None) -> None:
    for predicate in (Comparison(("i",), "=", 5), IsNull(("i",)), IsNotNull(("i",)), Unknown()):
        assert keeps(broken, predicate)


@pytest.mark.parametrize(
    ("column", "low", "high"),
    [
        ("ts", "yesterday", "today"), ("ts", 1, 2), ("day", "x", "y"), ("day", 1, 2), ("d", "x", "y"), ("s", 1, 2),
        ("f", "1", "2"), ("day", "+10000-01-01", "+10000-01-02"),
    ],
)  # fmt: skip
def test_bounds_of_another_type_keep_the_file(column: str, low: object, high: object) -> None:
    import orjson

    text = orjson.dumps({"numRecords": 1, "minValues": {column: low}, "maxValues": {column: high}}).decode()
    constants = {"ts": noon(), "day": date(2024, 1, 1), "d": Decimal(5), "s": "x", "f": 0.5}
    assert keeps(text, Comparison((column,), "=", constants[column]))


def test_a_constant_of_another_type_keeps_the_file() -> None:
    for value in ("5", noon(), b"5"):
        assert keeps(stats(i=[1]), Comparison(("i",), "=", value))


@pytest.mark.parametrize("zone", ["Z", "", "+00:00"])
def test_another_writers_maximum_may_be_cut_to_the_millisecond(zone: str) -> None:
    low, high = f"2024-05-06T12:00:00.000{zone}", f"2024-05-06T12:00:00.123{zone}"
    text = f'{{"numRecords":2,"minValues":{{"ts":"{low}"}},"maxValues":{{"ts":"{high}"}}}}'
    assert keeps(text, Comparison(("ts",), "=", noon(microsecond=123_999)))
    assert not keeps(text, Comparison(("ts",), "=", noon(microsecond=125_000)))


def test_another_writers_maximum_may_be_cut_without_a_tie_breaker() -> None:
    text = f'{{"numRecords":2,"minValues":{{"s":"a"}},"maxValues":{{"s":"{"x" * 32}"}}}}'
    assert keeps(text, Comparison(("s",), "=", "x" * 32 + "zzz"))
    assert not keeps(text, Comparison(("s",), "=", "y"))


@pytest.mark.parametrize(
    "text", ["1.000000000000000001", "-99999999999999999999.999999999999999999", "123456789.123456789123456789"]
)
def test_another_writers_decimals_may_have_been_floating_point_numbers(text: str) -> None:
    value, schema = Decimal(text), pa.schema([("d", pa.decimal128(38, 18))])
    rounded = float(value) * (1 - 2**-53)
    stats = f'{{"numRecords":1,"minValues":{{"d":{rounded!r}}},"maxValues":{{"d":{rounded!r}}},"nullCount":{{"d":0}}}}'
    file = AddFile("f", {}, 1, 1, data_change=True, stats=stats)
    layered = ActionSet(AddFile.from_json).changed([(file.key, file)])
    for files in ([file], layered):
        assert prune(files, Comparison(("d",), "=", value), schema, ()) == [file]
        for factor in (Decimal("0.99"), Decimal("1.01")):
            assert prune(files, Comparison(("d",), "=", value * factor), schema, ()) == []


def test_decimals_of_few_digits_are_compared_exactly() -> None:
    assert not keeps(stats(d=[Decimal("1.00")]), Comparison(("d",), "=", Decimal("1.01")))
    assert not keeps(stats(d=[Decimal("99999999.99")]), Comparison(("d",), "<", Decimal("99999999.99")))


def test_the_files_come_in_their_order() -> None:
    files = [AddFile(str(at), {}, 1, 1, data_change=True, stats=stats(i=[at])) for at in range(5)]
    kept = prune(files, Comparison(("i",), "!=", 2), SCHEMA, ())
    assert [file.path for file in kept] == ["0", "1", "3", "4"]
