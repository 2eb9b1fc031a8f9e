"""Moments as senders write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alluvia.events.ingest.event_time import _PLAIN, instant, instants, naive_instant, plain_instants
from alluvia.events.ingest.jsontext import ExactNumber

NOON_US = 1_577_880_000_000_000  # 2020-01-01T12:00:00Z
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        ("2020-01-01T12:00:00Z", (NOON_US, True)),
        ("2020-01-01T12:00:00", (NOON_US, True)),
        ("2020-01-01 12:00", (NOON_US, True)),
        ("2020-01-01t12z", (NOON_US, True)),
        ("2020-01-01T14:00:00+02:00", (NOON_US, True)),
        ("2020-01-01T06:30:00-0530", (NOON_US, True)),
        ("2020-01-01T06:00:00-06", (NOON_US, True)),
        ("2020-01-01", (NOON_US - 12 * 3_600_000_000, True)),
        ("2020-01-01T12:00:00.5Z", (NOON_US + 500_000, True)),
        ("2020-01-01T12:00:00,000001Z", (NOON_US + 1, True)),
        ("2020-01-01T12:00:00.000001000Z", (NOON_US + 1, True)),
        ("2020-01-01T12:00:00.000001999Z", (NOON_US + 1, False)),
        ("0001-01-01T00:00:00Z", (-62_135_596_800_000_000, True)),
        ("9999-12-31T23:59:59.999999Z", (253_402_300_799_999_999, True)),
        (1_577_880_000, (NOON_US, True)),
        (1_577_880_000.25, (NOON_US + 250_000, True)),
        (1_577_880_000_000, (NOON_US, True)),
        (1_577_880_000_000.5, (NOON_US + 500, True)),
        (1_577_880_000_000_000, (NOON_US, True)),
        (0, (0, True)),
        (-1.5, (-1_500_000, True)),
        (99_999_999_999, (99_999_999_999_000_000, True)),
        (100_000_000_000, (100_000_000_000_000, True)),
        (ExactNumber("1577880000.123456789012345678"), (NOON_US + 123_456, False)),
        (0.1234567, (123_457, False)),
    ],
)
def test_moments(sent: object, expected: tuple[int, bool]) -> None:
    assert instant(sent) == expected


@pytest.mark.parametrize(
    "sent",
    ["", "yesterday", "1577880000", "2020-13-01", "2020-02-30T00:00:00Z", "2020-01-01T24:00:00Z",
     "2020-01-01T23:59:60Z", "2020-01-01T12:00:00+24:00", "2020-01-01Z", " 2020-01-01", "20200101",
     "0000-01-01T00:00:00Z", "٢٠٢٠-01-01",
     "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00", "2020-01-01\n", 10**17, -(10**17), 1e300, True, None,
     {"a": 1}, [1], ExactNumber("1e400"), ExactNumber("9" * 400), -62_135_596_801],
)  # fmt: skip
def test_no_moments(sent: object) -> None:
    assert instant(sent) is None


def test_a_wall_time_has_no_offset() -> None:
    assert naive_instant("2020-01-01T12:00:00") == (NOON_US, True)
    assert naive_instant("2020-01-01T12:00:00Z") is None
    assert naive_instant(1_577_880_000) is None


OFFSETS = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.datetimes(timezones=OFFSETS).filter(lambda moment: 1 < moment.year < 9999)


@given(MOMENTS)
def test_iso_text_is_the_moment_it_names(moment: datetime) -> None:
    expected_us = (moment - EPOCH) // timedelta(microseconds=1)
    assert instant(moment.isoformat()) == (expected_us, True)


ODD = st.text("0123456789-:.TZ+ ", max_size=25) | st.none() | st.integers() | st.just("0000-01-01T00:00:00Z")


@given(st.lists(MOMENTS.map(datetime.isoformat) | ODD, max_size=4), st.integers(0, 100))
def test_the_fast_way_agrees_with_the_careful_one(sent: list[object], company: int) -> None:
    fast = instants([*["2020-01-01T12:00:00Z"] * company, *sent])
    for moment_us, value in zip(fast.cast(pa.int64()).to_pylist()[company:], sent, strict=True):
        assert moment_us is None or (moment_us, True) == instant(value)


def test_the_fast_way_is_taken_where_it_can_be() -> None:
    def known(values: list[object]) -> list[bool | None]:
        return instants(values).is_valid().to_pylist()

    assert known(["2020-01-01T12:00:00Z", "2020-01-01T14:00:00.000+02:00", None, 1]) == [True, True, False, False]
    years: list[object] = [
        "2020-01-01T12:00:00Z",
        "0000-01-01T00:00:00Z",
        "0000-12-31T12:59:59-23:59",
        "0001-01-02T00:00:00Z",
    ]
    assert known(years) == [True, False, False, True]
    plain = ["2020-01-01T12:00:00Z"] * 1000
    assert known([*plain, "2020-01-01T12:00:00", *plain]).count(False) <= 64
    assert known([]) == []


@given(st.integers(10**8, 10**11 - 1) | st.integers(-6 * 10**10, -(10**8)))
def test_the_same_moment_in_seconds_ms_and_us(seconds: int) -> None:
    expected = (seconds * 1_000_000, True)
    assert [instant(seconds), instant(seconds * 1_000), instant(seconds * 1_000_000)] == [expected] * 3


@given(st.lists(st.from_regex(re.compile(_PLAIN, re.ASCII)) | st.text("0123456789-:TZ. +", max_size=25), min_size=1))
def test_odd_texts_among_plain_ones_take_none_along(texts: list[str]) -> None:
    texts = [text.rstrip("\n") for text in texts]
    found = plain_instants(pa.array([*texts, "odd", None])).cast(pa.int64()).to_pylist()
    assert found[-2:] == [None, None]
    for text, moment_us in zip(texts, found, strict=False):
        assert moment_us is None or (moment_us, True) == instant(text)
        is_plain = re.fullmatch(_PLAIN, text, re.ASCII) and text >= "0001-01-03"  # before, it needs a look
        assert moment_us is not None or instant(text) is None or not is_plain
