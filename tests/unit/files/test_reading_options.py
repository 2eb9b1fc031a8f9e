"""Options of how a file is written, by the texts and the values that they make."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from alluvia.errors import Invalid
from alluvia.files.reading_options import UNREADABLE, ReadingOptions, as_json, reading_options
from alluvia.files.text_values import TextType, typed

COMMA = reading_options(decimal_separator=",")
DAYS = reading_options(date_format="%d.%m.%Y", timestamp_format="%d.%m.%Y %H:%M:%S.%f")
NUMBERS = {
    "12,50": 12.5,
    "-3": -3.0,
    "0,125": 0.125,
    "1.234,5": 1234.5,
    "1.234.567": 1234567.0,
    "1,5e3": 1500.0,
    "": None,
    "12.50": UNREADABLE,
    "1.234": 1234.0,
    "0.125": UNREADABLE,
    "0.125,5": UNREADABLE,
    "1,234,567": UNREADABLE,
    "1.23,4": UNREADABLE,
}


@pytest.mark.parametrize(("text", "value"), NUMBERS.items())
def test_numbers_with_a_decimal_comma(text: str, value: object) -> None:
    array, reasons = typed(pa.array([text]), pa.field("n", pa.float64()), COMMA)
    assert (array.to_pylist(), bool(reasons)) == ([None if value == UNREADABLE else value], value == UNREADABLE)
    kind = pa.decimal128(12, 3)
    exact, wrong = typed(pa.array([text]), pa.field("n", kind), COMMA)
    assert bool(wrong) is (value == UNREADABLE)
    if isinstance(value, float):
        assert exact.to_pylist() == [Decimal(str(value))]


def test_one_text_and_a_column_are_read_alike() -> None:
    texts = [*NUMBERS, "+1,0", "1.234.567,89", "x", "1.2.3"]
    for kind in (pa.float64(), pa.int64(), pa.string()):
        assert COMMA.plain(pa.array(texts), kind).to_pylist() == [COMMA.plain_text(text, kind) for text in texts]
    assert DAYS.plain_text("20.11.2026" + " " * 100, pa.date32()) == UNREADABLE
    days = ["20.11.2026", "1.2.2026", "2026-11-20", "30.02.2026", "", None]
    assert DAYS.plain(pa.array(days), pa.date32()).to_pylist() == [
        *("2026-11-20", "2026-02-01", UNREADABLE, UNREADABLE, ""),
        None,
    ]


def test_types_are_told_by_the_options() -> None:
    def kind(options: ReadingOptions, *texts: str) -> pa.DataType:
        seen = TextType(options=options)
        seen.see(pa.array(texts))
        return seen.kind()

    assert kind(COMMA, "1", "2") == pa.int64()
    assert kind(COMMA, "1", "2,5") == pa.float64()
    assert kind(COMMA, "1", "2.5") == pa.string()
    assert kind(DAYS, "20.11.2026", "21.11.2026") == pa.date32()
    assert kind(DAYS, "20.11.2026", "2026-11-20") == pa.string()
    assert kind(DAYS, "20.11.2026 10:00:00.5") == pa.timestamp("us")
    offset = reading_options(timestamp_format="%m/%d/%y %I:%M %p %z")
    assert kind(offset, "11/20/26 01:05 PM +0100") == pa.timestamp("us", "UTC")


def test_dates_and_times_are_read_by_their_formats() -> None:
    def values(options: ReadingOptions, kind: pa.DataType, *texts: str) -> list[Any]:
        array, reasons = typed(pa.array(texts), pa.field("t", kind), options)
        assert not reasons
        return list(array.to_pylist())

    assert values(DAYS, pa.date32(), "20.11.2026", "1.2.0998") == [date(2026, 11, 20), date(998, 2, 1)]
    unpadded = reading_options(date_format="%-m/%-d/%y")
    assert values(unpadded, pa.date32(), "1/2/26", "11/20/26") == [date(2026, 1, 2), date(2026, 11, 20)]
    assert values(DAYS, pa.timestamp("us"), "20.11.2026 10:00:00.25") == [datetime(2026, 11, 20, 10, 0, 0, 250000)]


@pytest.mark.parametrize(
    ("texts", "note"),
    [
        (
            ["12,50", "3", "1.234,50"],
            "is text: it seems to have numbers with a decimal comma, which --decimal-separator , reads",
        ),
        (["20.11.2026", "1/2/2026"], "is text: it seems to have dates such as '20.11.2026', which --date-format reads"),
        (
            ["20.11.2026 10:00"],
            "is text: it seems to have times such as '20.11.2026 10:00', which --timestamp-format reads",
        ),
        (["12,50", "3 kg"], ""),
        (["12,50", "3 kg", "4"], "is text: it seems to have numbers with a decimal comma"),
        (["a,b"], ""),
        (["1.5.2"], ""),
        (["007"], ""),
    ],
)
def test_a_column_that_is_text_for_lack_of_an_option_is_noted(texts: list[str], note: str) -> None:
    kind = TextType()
    kind.see(pa.array(texts))
    assert kind.note().startswith(note)
    assert bool(kind.note()) is bool(note)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"delimiter": ";;"}, "delimiter: use one character"),
        ({"delimiter": '"'}, "delimiter: use one character"),
        ({"decimal_separator": ";"}, "decimal_separator: use . or ,"),
        ({"delimiter": ",", "decimal_separator": ","}, "both are a comma"),
        ({"date_format": "%d.%m"}, "date_format: '%d.%m' does not say the day, the month and the year"),
        ({"date_format": "%d.%m.%Y %H"}, "date_format: '%d.%m.%Y %H' has a time, too: give it as timestamp_format"),
        ({"timestamp_format": "%Y" * 60}, "timestamp_format: a format has at most 100 characters"),
        ({"timestamp_format": "%Q"}, "timestamp_format: '%Q' "),
        ({"rename": "a"}, "rename: 'a' is not a pair of names"),
        ({"rename": "a=b,a=c"}, "rename: 'a' is given twice"),
        ({"rename": '{"a": 1}'}, "rename: expected names"),
        ({"rename": "{"}, "rename: expected names"),
    ],
)
def test_wrong_options_are_refused_by_name(given: dict[str, Any], named: str) -> None:
    with pytest.raises(Invalid) as refused:
        reading_options(**given)
    assert named in str(refused.value)


def test_options_go_to_another_process_and_come_back() -> None:
    given = reading_options("\\t", ",", "%d.%m.%Y", "%d.%m.%Y %H:%M", '{"a=b": "c,d"}')
    assert (given.delimiter, given.rename) == ("\t", {"a=b": "c,d"})
    assert reading_options(**as_json(given)) == given
    assert not reading_options()
