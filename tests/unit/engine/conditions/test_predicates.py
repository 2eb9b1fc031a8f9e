"""What pruning is told of a condition: exactly this, and never more than the condition says."""

from __future__ import annotations

import math
import struct
from datetime import UTC, date, datetime
from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from alluvia.delta.skipping.predicate import And, Comparison, In, IsNotNull, IsNull, Operator, Or, Predicate, Unknown
from alluvia.engine.conditions.condition import condition

SCHEMA = pa.schema(
    [
        ("n", pa.int64()),
        ("small", pa.int8()),
        ("value", pa.float64()),
        ("single", pa.float32()),
        ("price", pa.decimal128(10, 2)),
        ("name", pa.string()),
        ("raw", pa.binary()),
        ("flag", pa.bool_()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", tz="UTC")),
        ("naive", pa.timestamp("us")),
        ("place", pa.struct([("city", pa.string()), ("at", pa.struct([("zip", pa.int32())]))])),
        ("tags", pa.list_(pa.string())),
    ]
)
UNKNOWN = Unknown()


def predicate(text: str) -> Predicate:
    return condition(text, SCHEMA).predicate


def on(column: str, op: Operator, value: object) -> Comparison:
    return Comparison(tuple(column.split(".")), op, value)


def utc(*parts: int) -> datetime:
    return datetime(*parts, tzinfo=UTC)  # type: ignore[misc, arg-type]


def between(column: str, low: object, high: object) -> And:
    """From `low`, and before `high`."""
    return And((on(column, ">=", low), on(column, "<", high)))


@pytest.mark.parametrize("op", ["=", "<", "<=", ">", ">="])
@pytest.mark.parametrize("form", ["n {} 5", "N {} 5", "rows.n {} 5", '"n" {} (2 + 3)', "n {} CAST('5' AS BIGINT)"])
def test_comparisons(op: Operator, form: str) -> None:
    assert predicate(form.format(op)) == on("n", op, 5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("5 < n", on("n", ">", 5)),
        ("5 >= n", on("n", "<=", 5)),
        ("n <> 5", on("n", "!=", 5)),
        ("NOT n < 5", on("n", ">=", 5)),
        ("NOT NOT n < 5", on("n", "<", 5)),
        ("NOT n = 5", on("n", "!=", 5)),
        ("n IS NOT DISTINCT FROM 5", on("n", "=", 5)),
        ("n IS DISTINCT FROM 5", UNKNOWN),
        ("NOT (n IS NOT DISTINCT FROM 5)", UNKNOWN),
        ("n = NULL", UNKNOWN),
        ("n = n", UNKNOWN),
        ("n + 1 = 5", UNKNOWN),
        ("n = random()", UNKNOWN),
        ("abs(n) = 5", UNKNOWN),
        ("CAST(n AS VARCHAR) = '5'", UNKNOWN),
        ("n BETWEEN 1 AND 9", And((on("n", ">=", 1), on("n", "<=", 9)))),
        ("NOT n BETWEEN 1 AND 9", Or((on("n", "<", 1), on("n", ">", 9)))),
        ("n NOT BETWEEN 1 AND 9", Or((on("n", "<", 1), on("n", ">", 9)))),
        ("n BETWEEN 1 AND small", UNKNOWN),
        ("n IN (1, 2, 1 + 2)", In(("n",), (1, 2, 3))),
        ("n IN (7)", on("n", "=", 7)),
        ("n NOT IN (1, 2)", And((on("n", "!=", 1), on("n", "!=", 2)))),
        ("NOT n IN (1, 2)", And((on("n", "!=", 1), on("n", "!=", 2)))),
        ("NOT n NOT IN (1, 2)", In(("n",), (1, 2))),
        ("n IN (1, small)", UNKNOWN),
        ("n IN (1, NULL)", UNKNOWN),
        ("n IS NULL", IsNull(("n",))),
        ("n IS NOT NULL", IsNotNull(("n",))),
        ("NOT n IS NULL", IsNotNull(("n",))),
        ("NOT n IS NOT NULL", IsNull(("n",))),
        ("n = 1 AND small = 2 AND name = 'a'", And((on("n", "=", 1), on("small", "=", 2), on("name", "=", "a")))),
        ("n = 1 AND random() < 0.5", on("n", "=", 1)),
        ("n = 1 OR small = 2", Or((on("n", "=", 1), on("small", "=", 2)))),
        ("n = 1 OR random() < 0.5", UNKNOWN),
        ("NOT (n = 1 OR small = 2)", And((on("n", "!=", 1), on("small", "!=", 2)))),
        ("NOT (n = 1 AND small = 2)", Or((on("n", "!=", 1), on("small", "!=", 2)))),
        ("NOT (n = 1 AND random() < 0.5)", UNKNOWN),
        ("NOT (n = 1 OR random() < 0.5)", on("n", "!=", 1)),
        ("flag", on("flag", "=", True)),
        ("NOT flag", on("flag", "=", False)),
        ("flag = false", on("flag", "=", False)),
        ("flag <> true", on("flag", "!=", True)),
        ("flag = 1", UNKNOWN),
        ("flag > false", UNKNOWN),
        ("true", UNKNOWN),
        ("CASE WHEN n = 1 THEN true END", UNKNOWN),
        ("coalesce(n, 1) = 1", UNKNOWN),
    ],
)
def test_logic(text: str, expected: Predicate) -> None:
    assert predicate(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # a decimal literal is exact, also with an integer column
        ("n > 2.5", on("n", ">", Decimal("2.5"))),
        (f"n = {10**38 - 1}", on("n", "=", 10**38 - 1)),
        ("n = 170141183460469231731687303715884105727", UNKNOWN),  # which has more digits than Arrow's decimals
        ("small < 1000", on("small", "<", 1000)),
        # text takes the column's type, as DuckDB rounds it
        ("n > '2.5'", on("n", ">", 3)),
        ("n = '5' || ''", UNKNOWN),
        ("n = CAST('5' AS VARCHAR)", UNKNOWN),
        # floating point turns the column into floating point, where neighbours beyond 2^53 fall together
        ("n > 2.5e0", on("n", ">", 2.5)),
        ("n = 9007199254740991e0", on("n", "=", 9007199254740991.0)),
        ("n = 9007199254740992e0", UNKNOWN),
        ("n = CAST(16777215 AS FLOAT)", on("n", "=", 16777215.0)),
        ("n = CAST(16777216 AS FLOAT)", UNKNOWN),
        ("n < CAST('nan' AS DOUBLE)", UNKNOWN),
        ("n < CAST('inf' AS DOUBLE)", UNKNOWN),
        ("price = 1.005", on("price", "=", Decimal("1.005"))),
        ("price = 3", on("price", "=", 3)),
        ("price = '1.005'", on("price", "=", Decimal("1.01"))),
        ("price = 1e0", UNKNOWN),
        ("price < CAST(1 AS FLOAT)", UNKNOWN),
        # in a list or range all constants are of one family, or DuckDB gives them another type together
        ("n IN (1, 2.5)", In(("n",), (1, Decimal("2.5")))),
        ("n IN (1, 2e0)", UNKNOWN),
        ("n IN ('1', '2')", In(("n",), (1, 2))),
        ("n IN (1, '2')", UNKNOWN),
        ("n BETWEEN 1 AND 2e0", UNKNOWN),
        ("n BETWEEN '1' AND 2", UNKNOWN),
        # floating-point columns
        ("value < 5e0", on("value", "<", 5.0)),
        ("value = 5", on("value", "=", 5.0)),
        ("value >= 5e0", on("value", ">=", 5.0)),
        ("value <> 5e0", UNKNOWN),
        ("value = CAST('nan' AS DOUBLE)", UNKNOWN),
        ("value <= CAST('inf' AS DOUBLE)", UNKNOWN),
        ("value = true", UNKNOWN),
    ],
)
def test_numbers(text: str, expected: Predicate) -> None:
    assert predicate(text) == expected


@pytest.mark.parametrize("column", ["value", "single"])
@pytest.mark.parametrize("constant", ["0.1", "CAST(0.1 AS FLOAT)", "0.1e0", "'0.1'", "16777217", "9007199254740993"])
def test_a_rounded_constant_keeps_all_that_duckdb_finds_equal(column: str, constant: str) -> None:
    found = predicate(f"{column} = {constant}")
    bounds = [found] if isinstance(found, Comparison) else list(found.children)  # type: ignore[union-attr]
    values = [one.value for one in bounds if isinstance(one, Comparison)]
    near = [float(one.strip("'CASTFLO )(").split()[0]) for one in (constant,)]
    near += [struct.unpack("f", struct.pack("f", near[0]))[0]]
    near += [math.nextafter(one, towards) for one in near for towards in (math.inf, -math.inf)]
    kind = "DOUBLE" if column == "value" else "FLOAT"
    equal = duckdb.execute(
        f"SELECT CAST(CAST(x AS {kind}) AS DOUBLE) FROM unnest($1) t(x) WHERE CAST(x AS {kind}) = {constant}", [near]
    ).fetchall()
    assert equal or (column, constant) == ("single", "0.1e0")  # no FLOAT is
    assert all(min(values) <= one <= max(values) for (one,) in equal)  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("name = 'a'", on("name", "=", "a")),
        ("name > 'a' || 'b'", on("name", ">", "ab")),
        ("name = lower('ABC')", on("name", "=", "abc")),
        ("name = 5", UNKNOWN),
        ("name = 'a' COLLATE NOCASE", UNKNOWN),
        ("name COLLATE NOCASE = 'a'", UNKNOWN),
        ("name LIKE 'ab%'", between("name", "ab", "ac")),
        ("name LIKE 'ab_d%'", between("name", "ab", "ac")),
        ("name LIKE 'ab'", on("name", "=", "ab")),
        ("name LIKE '%b'", IsNotNull(("name",))),
        ("name LIKE 'a' || '%'", UNKNOWN),
        ("name LIKE 'a!%%' ESCAPE '!'", UNKNOWN),
        ("name NOT LIKE 'ab%'", UNKNOWN),
        ("NOT name LIKE 'ab%'", UNKNOWN),
        ("name ILIKE 'ab%'", UNKNOWN),
        ("name SIMILAR TO 'ab.*'", UNKNOWN),
        ("starts_with(name, 'ab%')", between("name", "ab%", "ab&")),
        ("name ^@ 'ab'", between("name", "ab", "ac")),
        ("prefix(name, 'é')", between("name", "é", "ê")),
        ("name LIKE '\ud7ff%'", between("name", "\ud7ff", "\ue000")),
        ("name LIKE 'a\U0010ffff%'", between("name", "a\U0010ffff", "b")),
        ("name LIKE '\U0010ffff%'", on("name", ">=", "\U0010ffff")),
        ("starts_with('ab', name)", UNKNOWN),
        ("raw = 'a\\x00'", on("raw", "=", b"a\0")),
        ("raw = CAST('ab' AS BLOB)", on("raw", "=", b"ab")),
        ("name = CAST('ab' AS BLOB)", UNKNOWN),
    ],
)
def test_text(text: str, expected: Predicate) -> None:
    assert predicate(text) == expected


NEW_YEAR = utc(2024, 1, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ts >= '2024-01-01'", on("ts", ">=", NEW_YEAR)),
        ("ts >= '2024-01-01 02:00:00+02'", on("ts", ">=", NEW_YEAR)),
        ("ts >= TIMESTAMP '2024-01-01'", on("ts", ">=", NEW_YEAR)),
        ("ts >= TIMESTAMPTZ '2024-01-01 02:00:00+02'", on("ts", ">=", NEW_YEAR)),
        ("ts >= DATE '2024-01-01'", on("ts", ">=", NEW_YEAR)),
        ("ts >= DATE '2024-01-02' - INTERVAL 1 DAY", on("ts", ">=", NEW_YEAR)),
        ("ts >= make_timestamptz(2024, 1, 1, 0, 0, 0)", on("ts", ">=", NEW_YEAR)),
        ("ts >= to_timestamp(1704067200)", on("ts", ">=", NEW_YEAR)),
        ("ts > CAST('infinity' AS TIMESTAMP)", UNKNOWN),
        ("ts > TIMESTAMP '20000-01-01'", UNKNOWN),
        ("ts > TIMESTAMP '2024-01-01 00:00:00.123456'", on("ts", ">", utc(2024, 1, 1, 0, 0, 0, 123456))),
        ("ts IN ('2024-01-01', '2024-01-02')", In(("ts",), (NEW_YEAR, utc(2024, 1, 2)))),
        ("ts IN ('2024-01-01', DATE '2024-01-02')", UNKNOWN),
        ("ts BETWEEN DATE '2024-01-01' AND TIMESTAMP '2024-01-02'", UNKNOWN),
        ("naive < '2024-01-01'", on("naive", "<", datetime(2024, 1, 1))),
        ("naive < TIMESTAMPTZ '2024-01-01 00:00:00+00'", on("naive", "<", datetime(2024, 1, 1))),
        ("day = '2024-01-01'", on("day", "=", date(2024, 1, 1))),
        ("day = '2024-01-01 05:00:00'", on("day", "=", date(2024, 1, 1))),
        ("day < '2024-01-01 05:00:00'", on("day", "<", date(2024, 1, 1))),
        ("day < TIMESTAMP '2024-01-01 05:00:00'", on("day", "<=", date(2024, 1, 1))),
        ("day >= TIMESTAMP '2024-01-01 05:00:00'", on("day", ">", date(2024, 1, 1))),
        ("day >= TIMESTAMP '2024-01-01'", on("day", ">=", date(2024, 1, 1))),
        ("day <> TIMESTAMP '2024-01-01 05:00:00'", UNKNOWN),
        ("CAST(day AS TIMESTAMP) < '2024-01-01 05:00:00'", on("day", "<=", date(2024, 1, 1))),
        ("ts + INTERVAL 1 DAY > '2024-01-01'", UNKNOWN),
    ],
)
def test_times(text: str, expected: Predicate) -> None:
    assert predicate(text) == expected


def at_once(text: str) -> datetime:
    found = predicate(text)
    assert isinstance(found, Comparison)
    assert isinstance(found.value, datetime)
    return found.value


@pytest.mark.parametrize("word", ["now()", "current_timestamp", "get_current_timestamp()", "transaction_timestamp()"])
def test_now_is_the_time_of_the_query(word: str) -> None:
    before = datetime.now(UTC)
    found = at_once(f"ts > {word}")
    assert before <= found <= datetime.now(UTC)


def test_constants_can_be_reckoned_from_now() -> None:
    parts = list(predicate("ts > now() AND ts < now() - INTERVAL 1 DAY").children)  # type: ignore[union-attr]
    later, earlier = (one.value for one in parts if isinstance(one, Comparison))
    assert (later - earlier).total_seconds() == 86_400  # type: ignore[operator]
    parts = list(predicate("ts > ago(INTERVAL 2 HOUR) AND ts < now()").children)  # type: ignore[union-attr]
    earlier, later = (one.value for one in parts if isinstance(one, Comparison))
    assert (later - earlier).total_seconds() == 7_200  # type: ignore[operator]
    assert predicate("day < current_date") == on("day", "<", datetime.now(UTC).date())


def test_a_column_hides_the_time_of_the_same_name() -> None:
    schema = SCHEMA.append(pa.field("current_date", pa.date32()))
    assert condition("day < current_date", schema).predicate == UNKNOWN


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ts::DATE = '2024-01-01'", between("ts", NEW_YEAR, utc(2024, 1, 2))),
        ("CAST(ts AS DATE) = DATE '2024-01-01'", between("ts", NEW_YEAR, utc(2024, 1, 2))),
        ("ts::DATE = '2024-01-01 17:00:00'", between("ts", NEW_YEAR, utc(2024, 1, 2))),
        ("ts::DATE < '2024-01-01'", on("ts", "<", NEW_YEAR)),
        ("ts::DATE <= '2024-01-01'", on("ts", "<", utc(2024, 1, 2))),
        ("ts::DATE > '2024-01-01'", on("ts", ">=", utc(2024, 1, 2))),
        ("ts::DATE >= '2024-01-01'", on("ts", ">=", NEW_YEAR)),
        ("ts::DATE >= TIMESTAMP '2024-01-01 17:00:00'", on("ts", ">=", utc(2024, 1, 2))),
        ("ts::DATE < TIMESTAMP '2024-01-01 17:00:00'", on("ts", "<", utc(2024, 1, 2))),
        ("ts::DATE <> '2024-01-01'", UNKNOWN),
        ("NOT ts::DATE >= '2024-01-01'", on("ts", "<", NEW_YEAR)),
        ("ts::DATE BETWEEN '2024-01-01' AND '2024-01-31'", between("ts", NEW_YEAR, utc(2024, 2, 1))),
        ("ts::DATE IN ('2024-01-01')", between("ts", NEW_YEAR, utc(2024, 1, 2))),
        ("date_trunc('hour', ts) = '2024-01-01 05:00:00'", between("ts", utc(2024, 1, 1, 5), utc(2024, 1, 1, 6))),
        ("date_trunc('week', ts) = DATE '2024-01-01'", between("ts", NEW_YEAR, utc(2024, 1, 8))),
        ("date_trunc('month', ts) = DATE '2024-01-01'", between("ts", NEW_YEAR, utc(2024, 2, 1))),
        ("date_trunc('quarter', ts) = DATE '2024-04-01'", between("ts", utc(2024, 4, 1), utc(2024, 7, 1))),
        ("date_trunc('YEAR', ts) = DATE '2024-01-01'", between("ts", NEW_YEAR, utc(2025, 1, 1))),
        ("date_trunc('day', ts)::DATE = '2024-01-01'", between("ts", NEW_YEAR, utc(2024, 1, 2))),
        ("date_trunc('month', day) = '2024-01-01'", between("day", date(2024, 1, 1), date(2024, 2, 1))),
        ("date_trunc('decade', ts) = '2024-01-01'", UNKNOWN),
        ("date_trunc(name, ts) = '2024-01-01'", UNKNOWN),
        ("date_trunc('day', ts) = ts", UNKNOWN),
        ("year(ts) = 2024", between("ts", NEW_YEAR, utc(2025, 1, 1))),
        ("extract(year FROM ts) >= 2024", on("ts", ">=", NEW_YEAR)),
        ("date_part('year', day) < 2024", on("day", "<", date(2024, 1, 1))),
        ("year(ts) = 2024.5", UNKNOWN),
        ("year(ts) = '2024'", UNKNOWN),
        ("year(ts) = 10000", UNKNOWN),
        ("year(ts) = -1", UNKNOWN),
        ("month(ts) = 1", UNKNOWN),
    ],
)
def test_units_of_time_become_ranges(text: str, expected: Predicate) -> None:
    assert predicate(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("place.city = 'Ur'", on("place.city", "=", "Ur")),
        ("rows.place.city = 'Ur'", on("place.city", "=", "Ur")),
        ("PLACE.CITY = 'Ur'", on("place.city", "=", "Ur")),
        ("place.at.zip = 1", on("place.at.zip", "=", 1)),
        ("place['city'] = 'Ur'", on("place.city", "=", "Ur")),
        ("struct_extract(place, 'city') = 'Ur'", on("place.city", "=", "Ur")),
        ("place['at']['zip'] = 1", on("place.at.zip", "=", 1)),
        ("place.city IS NULL", UNKNOWN),
        ("place IS NULL", IsNull(("place",))),
        ("place = {'city': 'Ur', 'at': {'zip': 1}}", UNKNOWN),
        ("tags[1] = 'a'", UNKNOWN),
        ("list_contains(tags, 'a')", UNKNOWN),
        ("len(list_filter(tags, lambda n: n = 'a')) = 1", UNKNOWN),
    ],
)
def test_fields_of_structs(text: str, expected: Predicate) -> None:
    assert predicate(text) == expected
