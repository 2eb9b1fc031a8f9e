"""How long something lasts, and how long ago it was, as people write it: `30d`, `1 hour`, `1 hour ago`. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from alluvia.clock import Clock
from alluvia.errors import Invalid

_LONG_MS = {"second": 1000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000, "week": 604_800_000}
_SHORT_MS = {name[0]: ms for name, ms in _LONG_MS.items()}
_INTERVAL_MS = {"millisecond": 1, **_LONG_MS}
_OFFSET_MS = {
    **_SHORT_MS,
    **_LONG_MS,
    **{f"{name}s": ms for name, ms in _LONG_MS.items()},
    **dict.fromkeys(("sec", "secs"), 1000),
    **dict.fromkeys(("min", "mins"), 60_000),
}
_INTERVAL = re.compile(r"\s*(?:interval\s+)?(\d{1,30})\s+([a-z]+?)s?\s*", re.IGNORECASE)
_SHORT = re.compile(r"(\d{1,15})\s*([smhdw])")
_LONGEST_MS = 365_000 * 24 * 60 * 60 * 1000
"""A moment that is so far away can still be written as a date."""
_PART = r"(\d{1,9})\s*([a-z]+)"
_OFFSET = re.compile(rf"(?P<interval>interval\s+)?-?\s*(?P<parts>{_PART}(?:\s*,?\s*{_PART})*?)(?P<ago>\s+ago)?")
_WRONG = "is not a time ago: use for example '1 hour ago', '90 minutes ago', '1 day 12 hours ago' or '7d'"


def interval_ms(text: str) -> int | None:
    """Return a duration as Delta's properties have it, `7 days` or `interval 7 days`, in ms; None for another text."""
    found = _INTERVAL.fullmatch(text)
    unit_ms = _INTERVAL_MS.get(found[2].lower()) if found else None
    return None if found is None or unit_ms is None else int(found[1]) * unit_ms


def duration_ms(given: object) -> int | None:
    """Return a duration in ms: a number with one of the letters s, m, h, d and w, or as properties have it; or 0.

    Returns None for what is not one, or lasts longer than a thousand years.
    """
    text = str(given).strip()
    short = _SHORT.fullmatch(text)
    found = int(short[1]) * _SHORT_MS[short[2]] if short else 0 if text == "0" else interval_ms(text)
    return found if found is not None and found <= _LONGEST_MS else None


def offset_ms(offset: str | int) -> int:
    """Return how long ago a moment is, in ms. A number means seconds, and 0 or less: `-3600` is an hour ago.

    Raises `Invalid`.
    """
    if isinstance(offset, int) and not isinstance(offset, bool):
        if offset > 0:
            raise Invalid(f"offset: {offset} seconds from now is in the future: use 0 or less, such as -3600")
        return -offset * 1000
    if not isinstance(offset, str):
        raise Invalid(f"offset: {offset!r:.100} {_WRONG}")
    found = _OFFSET.fullmatch(offset.strip().lower())
    parts = re.findall(_PART, found["parts"]) if found else []
    if not parts or not all(unit in _OFFSET_MS for _, unit in parts):
        raise Invalid(f"offset: {offset!r:.100} {_WRONG}")
    return sum(int(number) * _OFFSET_MS[unit] for number, unit in parts)


def moment_ago(offset: str | int, clock: Clock) -> datetime:
    """Return the moment that an offset means now. Raises `Invalid`, also for one before the year 1970."""
    at_ms = clock.now_ms() - offset_ms(offset)
    if at_ms < 0:
        raise Invalid(f"offset: {offset!r:.100} is longer ago than any table")
    return datetime.fromtimestamp(at_ms / 1000, UTC)


def lasting(text: str, field: str) -> timedelta:
    """Return how long something is kept. Raises `Invalid`, naming the field, for what is not a duration above 0."""
    lasts_ms = duration_ms(text)
    if not lasts_ms or lasts_ms < 0:
        raise Invalid(f"{field}: {text!r:.100} is not a duration; use for example 7d or '12 hours'")
    return timedelta(milliseconds=lasts_ms)
