"""Calendar arithmetic on µs since the Unix epoch, UTC: what `date_trunc` does. Pure."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_US = 86_400_000_000
_FIXED_US = {"second": 1_000_000, "minute": 60_000_000, "hour": 3_600_000_000, "day": _DAY_US}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
UNITS = frozenset({*_FIXED_US, *_MONTHS, "week"})


def truncate(at_us: int, unit: str) -> tuple[int, int]:
    """Return the start of the unit that a moment is in, and the start of the next.

    Raises `OverflowError` or `ValueError` outside the years 1 to 9999.
    """
    if unit in _FIXED_US:
        start = at_us - at_us % _FIXED_US[unit]
        return start, start + _FIXED_US[unit]
    moment = to_datetime(at_us)
    if unit == "week":
        day = at_us // _DAY_US - moment.weekday()
        return day * _DAY_US, (day + 7) * _DAY_US
    step = _MONTHS[unit]
    first = (moment.month - 1) // step * step
    return _month_us(moment.year, first), _month_us(moment.year, first + step)


def _month_us(year: int, months: int) -> int:
    start = datetime(year + months // 12, months % 12 + 1, 1, tzinfo=UTC)
    return (start - _EPOCH) // timedelta(microseconds=1)


def year_us(year: int) -> int:
    """Return the start of a year."""
    return _month_us(year, 0)


def to_datetime(at_us: int) -> datetime:
    """Return an aware UTC datetime. Raises `OverflowError` outside the years 1 to 9999."""
    return _EPOCH + timedelta(microseconds=at_us)


def to_date(at_us: int) -> date:
    """Return the day that a moment is in. Raises `OverflowError` outside the years 1 to 9999."""
    return to_datetime(at_us).date()


def is_midnight(at_us: int) -> bool:
    """Whether a day starts at a moment."""
    return at_us % _DAY_US == 0
