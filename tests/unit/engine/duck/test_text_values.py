"""Texts as values of columns, compared with what Python says that the texts are."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import alluvia
from alluvia.engine.duck.text_values import text_values
from alluvia.errors import Invalid

NUMBERS = st.decimals(-(10**17), 10**17, allow_nan=False, places=4) | st.integers(-(2**62), 2**62).map(Decimal)
FORMS = st.sampled_from([str, "{:E}".format, " {} ".format, "{:f}".format])


@given(
    NUMBERS,
    FORMS,
    st.sampled_from([(pa.int64(), 0), (pa.int32(), 0), (pa.decimal128(38, 2), 2), (pa.decimal128(38, 6), 6)]),
)
def test_a_number_is_what_it_says_or_is_refused(
    number: Decimal, form: Callable[[Decimal], str], column: tuple[pa.DataType, int]
) -> None:
    text, (kind, scale) = form(number), column
    fits = round(number, scale) == number and (kind != pa.int32() or -(2**31) <= number < 2**31)
    if fits:
        assert text_values(pa.array([text]), pa.field("n", kind))[0].as_py() == number
    else:
        with pytest.raises(Invalid, match="column n: "):
            text_values(pa.array([text]), pa.field("n", kind))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.timestamp("us"), "2026-01-01 00:00:00+00:00"),
        (pa.timestamp("us"), "2026-01-01 00:00:00.100000000"),
        (pa.timestamp("us", "UTC"), "2026-01-01 00:00:00+05:30"),
        (pa.float64(), "0.1"),
        (pa.float64(), "0e5"),
        (pa.date32(), " 2026-01-01 "),
        (pa.float64(), "Infinity"),
        (pa.bool_(), "yes"),
        (pa.string(), "1.5"),
        (pa.int8(), "1_00"),
    ],
)
def test_nothing_is_lost(kind: pa.DataType, text: str) -> None:
    assert text_values(pa.array([text, None]), pa.field("x", kind)).null_count == 1


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (pa.timestamp("us"), "2026-01-01 00:00:00-00:30"),
        (pa.timestamp("us"), "2026-01-01 00:00:00.0000001"),
        (pa.timestamp("us", "UTC"), "2026-01-01 00:00:00.0000001Z"),
        (pa.float64(), "1e999"),
        (pa.date32(), "2026-01-01 00:01"),
        (pa.date32(), "2026-01-01 10"),
        (pa.float64(), "1e-400"),
        (pa.int8(), "1.5"),
        (pa.decimal128(4, 1), "1.25"),
    ],
)
def test_what_would_be_lost_is_refused(kind: pa.DataType, text: str) -> None:
    with pytest.raises(Invalid, match="column x: "):
        text_values(pa.array([None, text]), pa.field("x", kind))


def test_parameters_that_are_texts() -> None:
    lake = alluvia.connect("memory://text-values")
    lake.sql("CREATE TABLE t (x DOUBLE, n BIGINT, s VARCHAR)")
    lake.sql("INSERT INTO t VALUES (?, ?, ?), (?, ?, ?)", [1, "7", "a", "1.5", 8, None])
    lake.sql("INSERT INTO t VALUES ($x, $n, 'c'), ('2', $x, $x)", {"x": "3", "n": 4})
    assert sorted(lake.sql("FROM t").to_pylist(), key=lambda row: row["x"]) == [
        {"x": 1.0, "n": 7, "s": "a"}, {"x": 1.5, "n": 8, "s": None},
        {"x": 2.0, "n": 3, "s": "3"}, {"x": 3.0, "n": 4, "s": "c"},
    ]  # fmt: skip
