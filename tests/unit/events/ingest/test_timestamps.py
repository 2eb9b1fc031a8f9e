"""Moments as senders write them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone
from email.utils import format_datetime

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alluvia.json_values.instants import _PLAIN, instants, plain_instants
from alluvia.json_values.jsontext import ExactNumber
from alluvia.json_values.time_texts import instant, naive_instant

NOON_US = 1_577_880_000_000_000  # 2020-01-01T12:00:00Z
HOUR_US = 3_600_000_000
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
        ("20200101T120000Z", (NOON_US, True)),
        ("20200101T1200", (NOON_US, True)),
        ("20200101T13+0100", (NOON_US, True)),
        ("20200101", (NOON_US - 12 * HOUR_US, True)),
        ("2020-W01-3T12:00Z", (NOON_US, True)),
        ("2020W013T12", (NOON_US, True)),
        ("2020-W01-3", (NOON_US - 12 * HOUR_US, True)),
        ("2026-W48-6", (1_795_824_000_000_000, True)),
        ("2026-332", (1_795_824_000_000_000, True)),
        ("2020-001T12:00", (NOON_US, True)),
        ("2020001T12", (NOON_US, True)),
        ("2020-366T00Z", (1_609_372_800_000_000, True)),
        ("2020-01-01T24:00Z", (NOON_US + 12 * HOUR_US, True)),
        ("2020-01-01T24:00:00.000-01:00", (NOON_US + 13 * HOUR_US, True)),
        ("2016-12-31T23:59:60Z", (1_483_228_800_000_000, True)),
        ("2017-01-01T05:29:60.5+05:30", (1_483_228_800_500_000, True)),
        ("2020-01-01T12:30,5Z", (NOON_US + HOUR_US // 2 + 30_000_000, True)),
        ("2020-01-01T12.5Z", (NOON_US + HOUR_US // 2, True)),
        ("2020-01-01T12,0000000001Z", (NOON_US, False)),
        ("2020-01-01T14:00:00\u221202", (NOON_US + 4 * HOUR_US, True)),
        ("2020-01-01 12:00:00 UTC", (NOON_US, True)),
        ("2020-01-01 14:00:00 +0200", (NOON_US, True)),
        ("Wed, 01 Jan 2020 13:00:00 +0100", (NOON_US, True)),
        ("1 Jan 2020 12:00 GMT", (NOON_US, True)),
        ("wed, 1 jan 20 07:00:00 EST (Eastern)", (NOON_US, True)),
        ("01 Jan 2020 05:00:00 PDT", (NOON_US, True)),
        ("Sat, 31 Dec 2016 23:59:60 UT", (1_483_228_800_000_000, True)),
        ("1577880000", (NOON_US, True)),
        ("1577880000.25", (NOON_US + 250_000, True)),
        ("1577880000000", (NOON_US, True)),
        ("1577880000000000", (NOON_US, True)),
        ("1577880000000000001", (NOON_US, False)),
        (1_577_880_000_000_000_000, (NOON_US, True)),
        (1_577_880_000_000_001_999, (NOON_US + 1, False)),
        (-(10**17) - 1, (-(10**14) - 1, False)),
        (1.57788e18, (NOON_US, True)),
        (ExactNumber("1577880000000000000.5"), (NOON_US, False)),
    ],
)
def test_moments(sent: object, expected: tuple[int, bool]) -> None:
    assert instant(sent) == expected


@pytest.mark.parametrize(
    "sent",
    ["", "yesterday", "2020-13-01", "2020-02-30T00:00:00Z", "2020-01-01T12:00:00+24:00",
     "2020-01-01Z", " 2020-01-01",
     "0000-01-01T00:00:00Z", "٢٠٢٠-01-01",
     "0001-01-01T00:00:00+01:00", "9999-12-31T23:59:59-01:00", "2020-01-01\n", 10**20, -(10**20), 1e300, True, None,
     {"a": 1}, [1], ExactNumber("1e400"), ExactNumber("9" * 400), -62_135_596_801],
)  # fmt: skip
def test_no_moments(sent: object) -> None:
    assert instant(sent) is None


@pytest.mark.parametrize(
    "sent",
    [
        "20.11.2026 10:00", "11/12/2026", "11-12-2026", "2026/11/20", "2026-11", "2026", "2026-W48", "2026332",
        "20261120100000", "10:00", "now", "Nov 20, 2026", "Fri Nov 20 2026 10:00:00 GMT+0100", "2026-11-20 10:00 CET",
        "20 Nov 2026 10:00 CET", "20 Nov 2026 10:00", "20 Nov 2026 10:00 A", "Mon, 20 Nov 2026 10:00 GMT",
        "31 Nov 2026 10:00 GMT", "20 Nov 2026 24:00 GMT", "20 Nov 2026 10:00 +2400", "20 Nov 2026 10:60 GMT",
        "2026-1120", "202611-20", "2026-W486", "2026-W54-1", "2026-W48-8", "2026-W48-0", "2026-000", "2026-366",
        "2020-01-01T24:01", "2020-01-01T24:00:00.1", "2020-01-01T25", "2020-01-01T12:00:60Z", "2020-01-01T23:59:60+01",
        "2020-01-01T23:59:61Z", "2020-01-01T12:0000", "2020-01-01T1200:00", "2020-01-01T12:00:00.", "2020-01-01T",
        "2020-01-01T12:00 01", "2020-01-01T12:00-1", "0123456789", "157788000", "15778800000", "1577880000e3",
        "-1577880000", "1" * 5000, "2020-01-01T12:00:00." + "1" * 5000 + "x", "9" * 19 + "." + "9" * 10,
    ],
)  # fmt: skip
def test_a_text_with_two_meanings_or_none_is_no_moment(sent: str) -> None:
    assert instant(sent) is None


def test_a_wall_time_has_no_offset() -> None:
    assert naive_instant("20200101T12") == (NOON_US, True)
    assert naive_instant("2020-01-01 12:00 UTC") is None
    assert naive_instant("1577880000") is None
    assert naive_instant("Wed, 01 Jan 2020 12:00:00 GMT") is None
    assert naive_instant("2020-01-01T12:00:00") == (NOON_US, True)
    assert naive_instant("2020-01-01T12:00:00Z") is None
    assert naive_instant(1_577_880_000) is None


OFFSETS = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
MOMENTS = st.datetimes(timezones=OFFSETS).filter(lambda moment: 1 < moment.year < 9999)


@given(MOMENTS)
def test_iso_text_is_the_moment_it_names(moment: datetime) -> None:
    expected_us = (moment - EPOCH) // timedelta(microseconds=1)
    assert instant(moment.isoformat()) == (expected_us, True)


@given(MOMENTS)
def test_each_form_of_a_day_is_that_day(moment: datetime) -> None:
    year, week, weekday = moment.isocalendar()
    time, basic = moment.strftime("T%H:%M:%S.%f%z"), moment.strftime("T%H%M%S,%f%z")
    texts = [
        f"{year:04}-W{week:02}-{weekday}{time}",
        f"{year:04}W{week:02}{weekday}{basic}",
        f"{moment.year:04}-{moment.timetuple().tm_yday:03}{time}",
        f"{moment.year:04}{moment.timetuple().tm_yday:03}{basic}",
        f"{moment.year:04}{moment.month:02}{moment.day:02}{basic}",
    ]
    expected = instant(moment.isoformat())
    assert [instant(text) for text in texts] == [expected] * len(texts)


@given(MOMENTS.filter(lambda moment: moment.year >= 1900))
def test_the_date_of_a_mail_is_the_moment_that_it_names(moment: datetime) -> None:
    moment = moment.replace(microsecond=0)
    assert instant(format_datetime(moment)) == instant(moment.isoformat())


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
