"""Moments as senders write them: ISO 8601, RFC 2822 and epochs, to µs since the Unix epoch in UTC. Pure.

A text with two meanings, such as `11/12/2026`, and a text without a day are not moments. Decision 0068 has the forms,
and the reasons against the libraries that read them.
"""

from __future__ import annotations

import re
from datetime import date
from fractions import Fraction
from typing import TYPE_CHECKING

from alluvia.json_values.jsontext import ExactNumber

if TYPE_CHECKING:
    from collections.abc import Callable

MIN_US = -62_135_596_800_000_000  # 0001-01-01T00:00:00Z
MAX_US = 253_402_300_799_999_999  # 9999-12-31T23:59:59.999999Z
EPOCH_LIMITS = ((10**11, 1_000_000, 1), (10**14, 1_000, 1), (10**17, 1, 1), (10**20, 1, 1_000))
"""Each first number is the limit of a unit. The second is a number of microseconds, and the third the same in units."""
_DAY_S = 86_400
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_DIGITS = 15  # of a fraction, which are read exactly; an hour has 3.6e9 µs
_ISO = re.compile(
    r"(?P<year>\d{4})(?P<dash>-?)"
    r"(?:(?P<month>\d\d)(?P=dash)(?P<day>\d\d)|W(?P<week>\d\d)(?P=dash)(?P<weekday>[1-7])|(?P<ordinal>\d{3}))"
    r"(?P<time>[Tt ](?P<hour>\d\d)(?:(?P<colon>:?)(?P<minute>\d\d)(?:(?P=colon)(?P<second>\d\d))?)?"
    r"(?:[.,](?P<fraction>\d+))?"
    r"(?P<zone>[Zz]| ?(?:UTC|GMT)| ?(?P<sign>[+\-\u2212])(?P<off_hour>\d\d)(?::?(?P<off_minute>\d\d))?)?)?",
    re.ASCII,
)
_RFC_2822 = re.compile(
    r"(?:(?P<weekday>mon|tue|wed|thu|fri|sat|sun),[ \t]*)?(?P<day>\d{1,2})[ \t]+"
    r"(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[ \t]+(?P<year>\d{2,4})[ \t]+"
    r"(?P<hour>\d\d):(?P<minute>\d\d)(?::(?P<second>\d\d))?[ \t]+"
    r"(?:(?P<sign>[+-])(?P<off_hour>\d\d)(?P<off_minute>\d\d)|(?P<zone>ut|utc|gmt|z|[ecmp][sd]t))"
    r"(?:[ \t]*\([^()]*\))?",
    re.ASCII | re.IGNORECASE,
)
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_AMERICAN = {"e": -5, "c": -6, "m": -7, "p": -8}
_SINCE_1970 = re.compile(r"[1-9](?:[0-9]{9}|[0-9]{12}|[0-9]{15}|[0-9]{18})(?:\.[0-9]{1,9})?", re.ASCII)
"""Seconds, ms, µs or ns from 2001 to 2286. Other numbers may be dates, such as 2026, 20261120 or 20261120100000."""


def instant(value: object) -> tuple[int, bool] | None:
    """Return the moment in µs, and whether that is all of it; None if `value` is not a time in the years 1 to 9999.

    Text is a date of ISO 8601 with or without a time of day, in UTC without an offset; a date and time of RFC 2822; or
    a number of 10, 13, 16 or 19 digits. A number counts from the epoch in seconds below 1e11, milliseconds below 1e14,
    microseconds below 1e17, nanoseconds below 1e20. What is finer than a microsecond is cut off.
    """
    if isinstance(value, str):
        moment = _from_text(value)
    elif isinstance(value, (int, float, ExactNumber)) and not isinstance(value, bool):
        moment = _from_epoch(value)
    else:
        return None
    return moment if moment is not None and MIN_US <= moment[0] <= MAX_US else None


def naive_instant(value: object) -> tuple[int, bool] | None:
    """Like `instant`, for a wall time: ISO 8601 text without an offset only."""
    match = _ISO.fullmatch(value) if isinstance(value, str) else None
    return instant(value) if match and not match["zone"] else None


def _from_text(text: str) -> tuple[int, bool] | None:
    for form, read in _FORMS:
        match = form.fullmatch(text)
        if match is not None:
            try:
                return read(match)
            except ValueError:  # such as February 30
                return None
    return None


def _from_iso(match: re.Match[str]) -> tuple[int, bool] | None:
    year, _, month, day, week, weekday, ordinal, time, hour, _, minute, second, fraction, *zone = match.groups()
    if month is not None:
        days = date(int(year), int(month), int(day)).toordinal()
    elif week is not None:
        days = date.fromisocalendar(int(year), int(week), int(weekday)).toordinal()
    elif time is not None or match["dash"]:  # seven digits alone are a number as likely as a date
        days = _ordinal_day(int(year), int(ordinal))
    else:
        return None
    of_unit_us = 3_600_000_000 if minute is None else 60_000_000 if second is None else 1_000_000
    part_us, is_all = _fraction(fraction or "", of_unit_us)
    _, sign, off_hour, off_minute = zone
    offset_s = _offset(sign or "+", off_hour or "0", off_minute or "0")
    seconds = _clock(int(hour or 0), int(minute or 0), int(second or 0), part_us)
    return _moment(days, seconds, offset_s, part_us, leap=second == "60", is_all=is_all)


def _from_rfc_2822(match: re.Match[str]) -> tuple[int, bool] | None:
    year = int(match["year"])
    if len(match["year"]) < 4:  # section 4.3
        year += 2000 if len(match["year"]) == 2 and year < 50 else 1900
    day = date(year, _MONTHS.index(match["month"].lower()) + 1, int(match["day"]))
    weekday = match["weekday"]
    if weekday is not None and _WEEKDAYS.index(weekday.lower()) != day.weekday():
        return None
    zone = (match["zone"] or "").lower()
    if zone and zone[0] in _AMERICAN:
        offset_s = 3600 * (_AMERICAN[zone[0]] + (zone[1] == "d"))
    else:
        offset_s = _offset(match["sign"] or "+", match["off_hour"] or "0", match["off_minute"] or "0")
    second = int(match["second"] or 0)
    seconds = _clock(int(match["hour"]), int(match["minute"]), second, 0, last_hour=23)
    return _moment(day.toordinal(), seconds, offset_s, 0, leap=second == 60, is_all=True)


def _from_epoch_text(match: re.Match[str]) -> tuple[int, bool] | None:
    return _from_digits(match[0])


_FORMS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], tuple[int, bool] | None]], ...] = (
    (_ISO, _from_iso),
    (_SINCE_1970, _from_epoch_text),
    (_RFC_2822, _from_rfc_2822),
)
"""The forms of texts: none of them matches what another does."""


def _ordinal_day(year: int, ordinal: int) -> int:
    first, following = date(year, 1, 1).toordinal(), date(year, 12, 31).toordinal() + 1
    if not 1 <= ordinal <= following - first:
        raise ValueError(ordinal)
    return first + ordinal - 1


def _fraction(digits: str, of_unit_us: int) -> tuple[int, bool]:
    """Return the µs of a decimal fraction of a unit, and whether that is all of it."""
    read, rest = digits[:_DIGITS], digits[_DIGITS:]
    part_us, left = divmod(int(read or 0) * of_unit_us, 10 ** len(read))
    return part_us, not left and not rest.strip("0")


def _clock(hour: int, minute: int, second: int, part_us: int, last_hour: int = 24) -> int:
    """Return the seconds since the day began. 24:00 is the end of the day; raises `ValueError` for later times."""
    if hour > last_hour or minute > 59 or second > 60 or (hour == 24 and (minute or second or part_us)):
        raise ValueError(hour)
    return hour * 3600 + minute * 60 + second


def _offset(sign: str, hour: str, minute: str) -> int:
    if int(hour) > 23 or int(minute) > 59:
        raise ValueError(hour)
    return (int(hour) * 3600 + int(minute) * 60) * (1 if sign == "+" else -1)


def _moment(
    days: int, seconds: int, offset_s: int, part_us: int, *, leap: bool, is_all: bool
) -> tuple[int, bool] | None:
    """Return a moment. A leap second ends a day of UTC, and is the first second of the next, as in Unix time."""
    moment_s = (days - _EPOCH_DAY) * _DAY_S + seconds - offset_s
    if leap and moment_s % _DAY_S:
        return None
    return moment_s * 1_000_000 + part_us, is_all


def _from_epoch(value: float | ExactNumber) -> tuple[int, bool] | None:
    if isinstance(value, ExactNumber):
        return _from_digits(value.text)
    for limit, scale_us, of in EPOCH_LIMITS:  # noqa: B007 - the first that is large enough
        if abs(value) < limit:
            break
    else:
        return None
    if isinstance(value, int):
        return value * scale_us // of, not value * scale_us % of
    if of > 1:  # a whole number: doubles of this size have no fraction
        return int(value) // of, not int(value) % of
    moment_us = round(value * scale_us)
    return moment_us, moment_us / scale_us == value


def _from_digits(text: str) -> tuple[int, bool] | None:
    if len(text) > 100 or "e" in text.lower():  # no clock writes that
        return None
    exact = Fraction(text)
    unit = next((unit for limit, *unit in EPOCH_LIMITS if abs(exact) < limit), None)
    if unit is None:
        return None
    moment = exact * Fraction(*unit)
    return moment.__floor__(), moment.denominator == 1
