"""How long ago a moment was, as people write it: `1 hour ago`. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from alluvia.clock import Clock
from alluvia.errors import Invalid

_UNITS_MS = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1000),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60_000),
    **dict.fromkeys(("h", "hour", "hours"), 3_600_000),
    **dict.fromkeys(("d", "day", "days"), 86_400_000),
    **dict.fromkeys(("w", "week", "weeks"), 604_800_000),
}
_PART = r"(\d{1,9})\s*([a-z]+)"
_OFFSET = re.compile(rf"(?P<interval>interval\s+)?-?\s*(?P<parts>{_PART}(?:\s*,?\s*{_PART})*?)(?P<ago>\s+ago)?")
_WRONG = "is not a time ago: use for example '1 hour ago', '90 minutes ago', '1 day 12 hours ago' or '7d'"


def offset_ms(offset: str | int) -> int:
    """Return how long ago a moment is, in ms. A number means seconds, and 0 or less: `-3600` is an hour ago.

    Raises `Invalid`.
    """
    if isinstance(offset, int) and not isinstance(offset, bool):
        if offset > 0:
            raise Invalid(f"offset: {offset} seconds from now has not come yet: use 0 or less, such as -3600")
        return -offset * 1000
    if not isinstance(offset, str):
        raise Invalid(f"offset: {offset!r:.100} {_WRONG}")
    found = _OFFSET.fullmatch(offset.strip().lower())
    parts = re.findall(_PART, found["parts"]) if found else []
    if not parts or not all(unit in _UNITS_MS for _, unit in parts):
        raise Invalid(f"offset: {offset!r:.100} {_WRONG}")
    return sum(int(number) * _UNITS_MS[unit] for number, unit in parts)


def moment_ago(offset: str | int, clock: Clock) -> datetime:
    """Return the moment that an offset means now. Raises `Invalid`, also for one before the year 1970."""
    at_ms = clock.now_ms() - offset_ms(offset)
    if at_ms < 0:
        raise Invalid(f"offset: {offset!r:.100} is longer ago than any table")
    return datetime.fromtimestamp(at_ms / 1000, UTC)
