"""How long something lasts, as people write it: `30d`, `12h`, `1 hour`, `interval 7 days`. Pure."""

from __future__ import annotations

import re

from alluvia.errors import AlluviaError
from alluvia.table.properties import FILE_RETENTION, read_properties

_SHORT = re.compile(r"(\d+)\s*([smhdw])")
_LONGEST_MS = 365_000 * 24 * 60 * 60 * 1000
"""A moment that is so far away can still be written as a date."""
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def duration_ms(given: object) -> int | None:
    """Return a duration in ms: a number with one of the letters s, m, h, d and w, or as properties have it; or 0.

    Returns None for what is not one, or lasts longer than a thousand years.
    """
    text = str(given).strip()
    short = _SHORT.fullmatch(text)
    words = f"{short[1]} {_UNITS[short[2]]}" if short else "0 seconds" if text == "0" else text
    try:
        found = read_properties({FILE_RETENTION: words}).file_retention_ms
    except (AlluviaError, OverflowError):
        return None
    return found if found <= _LONGEST_MS else None
