"""JSON values in columns of declared types: held exactly, or refused by the field's path."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alluvia.errors import Unsupported
from alluvia.json_values.convert import column
from alluvia.json_values.jsontext import decode

ADDRESS = pa.struct([pa.field("street", pa.string()), pa.field("zip", pa.int32(), nullable=False)])
NESTED = pa.list_(pa.field("element", pa.struct([pa.field("tags", pa.map_(pa.string(), pa.list_(pa.int16())))])))


def put(kind: pa.DataType, *sent: str, nullable: bool = True) -> tuple[list[Any], dict[int, str]]:
    """Convert values, given as JSON text, to a column `f`."""
    array, reasons = column(pa.field("f", kind, nullable), [decode(text.encode()) for text in sent])
    assert array.type == kind
    array.validate(full=True)
    return array.to_pylist(), reasons


@pytest.mark.parametrize(
    ("kind", "sent", "expected"),
    [
        (pa.string(), '"a\\u0000b"', "a\0b"),
        (pa.int64(), "9223372036854775807", 2**63 - 1),
        (pa.int64(), "-9223372036854775808", -(2**63)),
        (pa.int64(), "2.0", 2),
        (pa.int64(), "1e3", 1000),
        (pa.int32(), "-2147483648", -(2**31)),
        (pa.int16(), "32767", 32767),
        (pa.int8(), "-128", -128),
        (pa.float64(), "1", 1.0),
        (pa.float64(), "0.1", 0.1),
        (pa.float64(), "9007199254740992", 2.0**53),
        (pa.float64(), "10000000000000000000000000", 1e25),
        (pa.float64(), "1e308", 1e308),
        (pa.float32(), "0.5", 0.5),
        (pa.float32(), "16777216", 16777216.0),
        (pa.bool_(), "true", True),
        (pa.date32(), '"2024-02-29"', date(2024, 2, 29)),
        (pa.timestamp("us", "UTC"), '"2020-01-01T01:00:00+01:00"', datetime(2020, 1, 1, tzinfo=UTC)),
        (pa.timestamp("us", "UTC"), "1577836800", datetime(2020, 1, 1, tzinfo=UTC)),
        (pa.timestamp("us"), '"2020-01-01T01:00:00"', datetime(2020, 1, 1, 1, tzinfo=UTC).replace(tzinfo=None)),
        (pa.binary(), '"AAH/"', b"\x00\x01\xff"),
        (pa.binary(), '""', b""),
        (pa.decimal128(10, 2), "12345678.9", Decimal("12345678.90")),
        (pa.decimal128(10, 2), "1e2", Decimal("100.00")),
        (pa.decimal128(10, 2), '"-0.10"', Decimal("-0.10")),
        (pa.decimal128(10, 2), "0.1000", Decimal("0.10")),
        (pa.decimal128(38, 0), "9" * 38, Decimal("9" * 38)),
        (pa.decimal128(38, 38), "0." + "1" * 38, Decimal("0." + "1" * 38)),
        (pa.decimal128(5, 0), "0e9", Decimal(0)),
        (ADDRESS, '{"zip": 7, "street": null}', {"street": None, "zip": 7}),
        (pa.list_(pa.float64()), "[1, null, 2.5]", [1.0, None, 2.5]),
        (pa.map_(pa.string(), pa.int64()), '{"a": 1, "b": null}', [("a", 1), ("b", None)]),
        (NESTED, '[{"tags": {"x": [1, 2]}}, {}, null]', [{"tags": [("x", [1, 2])]}, {"tags": None}, None]),
    ],
)
def test_what_fits(kind: pa.DataType, sent: str, expected: object) -> None:
    assert put(kind, sent, "null", sent) == ([expected, None, expected], {})


def test_a_float_gives_back_the_digits() -> None:
    found, reasons = put(pa.float32(), "0.1", "3.4028235e38", "1.1754944e-38")
    assert reasons == {}
    assert [f"{value:.8g}" for value in found] == ["0.1", "3.4028235e+38", "1.1754944e-38"]


@pytest.mark.parametrize(
    ("kind", "sent", "reason"),
    [
        (pa.string(), "5", "f: expected a string, got a number"),
        (pa.string(), '{"a": 1}', "f: expected a string, got an object"),
        (pa.string(), "true", "f: expected a string, got true or false"),
        (pa.int64(), "1.5", "f: 1.5 has a fraction"),
        (pa.int64(), "1180591620717411303424", "f: the number does not fit a long"),
        (pa.int64(), "9223372036854775808", "f: the number does not fit a long"),
        (pa.int64(), "1e300", "f: the number does not fit a long"),
        (pa.int64(), '"5"', "f: expected a number (long), got a string"),
        (pa.int64(), "true", "f: expected a number (long), got true or false"),
        (pa.int32(), "2147483648", "f: the number does not fit a integer, whose maximum is 2147483647"),
        (pa.int16(), "-32769", "does not fit a short"),
        (pa.int8(), "128", "does not fit a byte"),
        (pa.float64(), "9007199254740993", "more digits than a double can hold"),
        (pa.float64(), "1e400", "more digits than a double can hold"),
        (pa.float64(), "1e-99999999999999999999", "more digits than a double can hold"),
        (pa.float64(), "0.1000000000000000055511151231257827", "more digits than a double can hold"),
        (pa.float64(), '"1"', "f: expected a number (double), got a string"),
        (pa.float64(), "false", "f: expected a number (double), got true or false"),
        (pa.float32(), "0.123456789", "more digits than a float can hold"),
        (pa.float32(), "1e39", "does not fit a float"),
        (pa.float32(), "16777217", "more digits than a float can hold"),
        (pa.bool_(), "1", "f: expected true or false, got a number"),
        (pa.date32(), '"2023-02-29"', "f: expected a date"),
        (pa.date32(), '"20240229"', "f: expected a date"),
        (pa.date32(), '"2024-02-29T00:00:00Z"', "f: expected a date"),
        (pa.date32(), "19000", "f: expected a date"),
        (pa.timestamp("us", "UTC"), '"soon"', "f: expected a timestamp"),
        (pa.timestamp("us", "UTC"), '"2020-01-01T00:00:00.0000001Z"', "more than microsecond precision"),
        (pa.timestamp("us"), '"2020-01-01T00:00:00Z"', "without an offset"),
        (pa.timestamp("us"), '"2020-01-01T00:00:00.0000001"', "more than microsecond precision"),
        (pa.binary(), '"AAH"', "not valid base64"),
        (pa.binary(), '"A-_/"', "not valid base64"),
        (pa.binary(), '"é"', "not valid base64"),
        (pa.binary(), "[1]", "f: expected a base64 string, got an array"),
        (pa.decimal128(10, 2), "0.001", "does not fit a decimal(10,2) without rounding"),
        (pa.decimal128(10, 2), "123456789", "does not fit a decimal(10,2) without rounding"),
        (pa.decimal128(10, 2), '"1,5"', "expected a number (decimal(10,2))"),
        (pa.decimal128(10, 2), '"NaN"', "expected a number (decimal(10,2))"),
        (pa.decimal128(10, 2), "false", "expected a number (decimal(10,2)), got true or false"),
        (ADDRESS, '{"zip": 7, "city": "x"}', "f.city: the column has no such field"),
        (ADDRESS, '{"street": "x"}', "f.zip: required, but missing or null"),
        (ADDRESS, "[]", "f: expected an object, got an array"),
        (NESTED, '[{}, {"tags": {"x": [1, "2"]}}]', "f[1].tags.x[1]: expected a number (short), got a string"),
        (pa.list_(pa.int64()), '{"0": 1}', "f: expected an array, got an object"),
        (pa.map_(pa.string(), pa.int64()), "[]", "f: expected an object, got an array"),
    ],
)
def test_what_does_not_fit(kind: pa.DataType, sent: str, reason: str) -> None:
    values, reasons = put(kind, "null", sent)
    assert values == [None, None]
    assert list(reasons) == [1]
    assert reason in reasons[1]


def test_a_missing_value_of_a_required_column() -> None:
    assert put(pa.int64(), "1", "null", '"x"', nullable=False) == (
        [1, None, None],
        {1: "f: required, but missing or null", 2: "f: expected a number (long), got a string"},
    )


@pytest.mark.parametrize("kind", [pa.time64("us"), pa.map_(pa.int64(), pa.string()), pa.list_(pa.duration("s"))])
def test_a_type_that_json_cannot_fill_is_named(kind: pa.DataType) -> None:
    with pytest.raises(Unsupported, match="column f: ingestion"):
        put(kind, "[]")


@given(st.decimals(allow_nan=False, allow_infinity=False, places=None, min_value=-(10**14), max_value=10**14))
def test_a_decimal_holds_a_number_whole_or_not_at_all(number: Decimal) -> None:
    text = f"{number:f}"
    found, reasons = put(pa.decimal128(12, 3), text)
    fits = number == round(number, 3) and abs(number) < 10**9
    assert (found[0] == number) if fits else (0 in reasons)


@given(
    st.lists(st.integers(-(2**70), 2**70) | st.floats(allow_nan=False, allow_infinity=False) | st.none(), max_size=4)
)
def test_a_long_and_a_double_hold_a_number_whole_or_not_at_all(numbers: list[float | None]) -> None:
    sent = [json.dumps(number) for number in numbers]
    longs, wrong = put(pa.int64(), *sent)
    for at, number in enumerate(numbers):
        fits = number is None or (number == int(number) and -(2**63) <= number < 2**63)
        assert (at not in wrong and longs[at] == number) if fits else at in wrong
    doubles, wrong = put(pa.float64(), *sent)
    for at, number in enumerate(numbers):
        if at not in wrong:
            assert doubles[at] == number or Decimal(repr(doubles[at])) == Decimal(sent[at])
        else:
            assert sent[at].lstrip("-").isdigit()
            assert int(float(sent[at])) != int(sent[at])
