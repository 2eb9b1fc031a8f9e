"""Digits that are grouped, texts that mean null, and years of two digits, in cells and in what a sender is told."""

from __future__ import annotations

import re
from datetime import date
from typing import Any

import pyarrow as pa
import pytest

from alluvia.errors import Invalid
from alluvia.files.column_notes import meaning_of_commas
from alluvia.files.limits import Misfit
from alluvia.files.reading_options import UNREADABLE, YearsOfTwoDigits, reading_options
from tests.unit.files.test_column_notes import fitted, inferred

US = reading_options(thousands_separator=",")
SWISS = reading_options(thousands_separator="'")
FRENCH = reading_options(thousands_separator=" ", decimal_separator=",")


@pytest.mark.parametrize(
    ("options", "numbers", "others"),
    [
        (US, {"1,234.50": "1234.50", "12,345,678": "12345678", "-9.99": "-9.99", "7": "7"}, ["1,23", "12,5", "0,123"]),
        (SWISS, {"1'234.50": "1234.50", "1\u2019234": "1234"}, ["1'2", "'1"]),
        (FRENCH, {"1 234,50": "1234.50", "1\u202f234": "1234", "1\u00a0234\u00a0567": "1234567"}, ["1.234", "1 2"]),
    ],
    ids=["commas", "apostrophes", "spaces"],
)
def test_digits_are_grouped_by_what_the_sender_says(options: Any, numbers: dict[str, str], others: list[str]) -> None:
    texts = [*numbers, *others]
    expected = [*numbers.values(), *[UNREADABLE] * len(others)]
    assert options.plain(pa.array(texts), pa.float64()).to_pylist() == expected
    assert [options.plain_text(text, pa.float64()) for text in texts] == expected
    assert options.plain(pa.array(texts), pa.string()).to_pylist() == texts


def test_grouped_numbers_of_a_file_become_numbers() -> None:
    text = 'id,n\n1,"1,234.50"\n2, 9.99 \n3,"12,345,678"\n'
    assert inferred(text, US) == (pa.float64(), [])
    assert fitted(text, pa.float64(), US) == [1234.5, 9.99, 12345678.0]
    assert inferred('id,n\n1,"1,234"\n2,"5,000"\n', US) == (pa.int64(), [])
    with pytest.raises(Misfit, match=r"row 1, column n: expected a number with '\.' before its decimals, if"):
        fitted('id,n\n1,"12,50"\n', pa.float64(), US)
    assert fitted("id;n\n1;1.234\n", pa.float64(), US) == [1.234]


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (
            ["1,234", "5,000"],
            "numbers such as '1,234', which may be 1234 or 1.234: --thousands-separator , or --decimal",
        ),
        (["1,234", "9.99"], "numbers such as '1,234', which --thousands-separator , reads"),
        (["1,234.50"], "numbers such as '1,234.50', which --thousands-separator , reads"),
        (["12,345,678", "1"], "numbers such as '12,345,678', which --thousands-separator , reads"),
        (["12,50", "1,234"], "numbers with a decimal comma, which --decimal-separator , reads (decimal_separator)"),
        (["1.234,50"], "numbers with a decimal comma"),
        (["12,50", "1,234.50"], ""),
        (["1,234", "a", "b"], ""),
        (["1", "2.5"], ""),
    ],
)
def test_commas_in_numbers_may_group_digits(texts: list[str], said: str) -> None:
    found = meaning_of_commas(texts)
    assert found.startswith(said)
    assert bool(found) is bool(said)


def test_a_column_that_refuses_a_grouped_number_names_both_options() -> None:
    with pytest.raises(Misfit, match=re.escape("give --thousands-separator , (thousands_separator), or, if they are")):
        fitted('id,n\n1,"1,234"\n', pa.int64())


def test_texts_that_mean_null() -> None:
    options = reading_options(null=["k.A.", " - "])
    text = 'id,n\n1,5\n2,k.A.\n3,"-"\n4, - \n'
    assert inferred(text, options) == (pa.int64(), [])
    assert fitted(text, pa.int64(), options) == [5, None, None, None]
    assert fitted(text, pa.string(), options) == ["5", None, None, None]
    assert fitted("a,n\nk.A.,-\n,\nx,y\n", pa.string(), options) == [None, "y"]
    with pytest.raises(Misfit, match="row 2, column n"):
        fitted("id,n\n1,5\n2,#NV\n", pa.int64(), options)
    assert reading_options(null='["a,b"]').null == ("a,b",)
    assert reading_options(null="n/a, -").null == ("n/a", "-")


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"thousands_separator": ";"}, "thousands_separator: use one of , . ' _ and a space"),
        ({"thousands_separator": "."}, "both are '.': with points between thousands, give --decimal-separator , too"),
        (
            {"thousands_separator": ",", "decimal_separator": ","},
            "decimal_separator: both are ','",
        ),
        ({"null": "[1]"}, "null: expected at most 100 texts"),
        ({"null": "["}, "null: expected texts, such as n/a,- or a JSON array"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, Any], why: str) -> None:
    with pytest.raises(Invalid) as refused:
        reading_options(**given)
    assert why in str(refused.value)


def test_years_of_two_digits_are_noted() -> None:
    born = pa.table({"born": [date(2060, 6, 5), None, date(1987, 1, 1)], "n": [1, 2, 3]})
    years = YearsOfTwoDigits(reading_options(date_format="%d.%m.%y"))
    years.see(born)
    years.see(born.slice(1))
    (note,) = years.notes()
    assert note.startswith("column born: the years read by %y are from 1987 to 2060, because two digits are years from")
    whole = YearsOfTwoDigits(reading_options(date_format="%d.%m.%Y"))
    whole.see(born)
    assert whole.notes() == []
