"""Arguments of callers: names, numbers, types, and times such as `2026-01-31`, `30d` and `1 hour ago`. Pure.

Each error names the argument.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa

from alluvia.clock import Clock, datetime_of
from alluvia.errors import Invalid


def check_names(argument: str, given: object) -> None:
    """Refuse anything but a list of names; a string is one name, not its letters."""
    whole = isinstance(given, Sequence) and not isinstance(given, str | bytes)
    if not whole or not all(isinstance(name, str) for name in given):  # type: ignore[attr-defined]
        raise Invalid(f"{argument}: expected a list of names, such as ['id'], got {given!r:.100}")


def check_text(argument: str, given: object, example: str) -> None:
    """Refuse anything but text."""
    if not isinstance(given, str):
        raise Invalid(f"{argument}: expected text, such as {example!r}, got {given!r:.100}")


def check_place(argument: str, given: object) -> None:
    """Refuse what is neither a path nor a URI."""
    if not isinstance(given, str | os.PathLike) or not str(given):
        raise Invalid(f"{argument}: expected a path or a URI, such as 's3://bucket/prefix', got {given!r:.100}")


def check_number(argument: str, given: object) -> None:
    """Refuse what is neither None nor a whole number above 0."""
    if given is not None and (not isinstance(given, int) or isinstance(given, bool) or given <= 0):
        raise Invalid(f"{argument}: expected a whole number above 0, got {given!r:.100}")


def check_mapping(argument: str, given: object) -> None:
    """Refuse what is neither None nor a mapping of names."""
    if given is not None and (not isinstance(given, Mapping) or not all(isinstance(name, str) for name in given)):
        raise Invalid(f"{argument}: expected values by name, such as {{'country': 'de'}}, got {given!r:.100}")


def schema_of(given: Any) -> pa.Schema:
    """Return a caller's schema: one of pyarrow's, or a mapping of names to Delta's type names or pyarrow's types."""
    if isinstance(given, pa.Schema):
        return given
    if not isinstance(given, Mapping):
        raise Invalid(f"schema: expected a pyarrow schema or a mapping such as {{'id': 'long'}}, got {given!r:.100}")
    return pa.schema([(name, type_of(name, kind)) for name, kind in given.items()])


def type_of(name: object, kind: object) -> pa.DataType:
    """Return the type that a caller gives for a column, by Delta's name or as pyarrow's."""
    check_text("column name", name, "id")
    if isinstance(kind, str):
        from alluvia.delta.schema.serialization import parse_type  # loaded late: a query's process checks text alone

        return parse_type(kind)
    if isinstance(kind, pa.DataType):
        return kind
    raise Invalid(f"column {name}: expected a type's name such as 'long', or a pyarrow type, got {kind!r:.100}")


def check_version(version: int | None, timestamp: datetime | str | None) -> None:
    """Raise `Invalid` for arguments that do not name a version."""
    if version is not None and timestamp is not None:
        raise Invalid("version, timestamp: give one of them, not both")
    if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
        raise Invalid(f"version: expected a whole number, got {version!r}")


def milliseconds(moment: datetime | str | None) -> int:
    """Return a moment in ms since the Unix epoch; without a time zone it is UTC. Raises `Invalid`."""
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment.strip())
        except ValueError as error:
            raise Invalid(f"timestamp: {moment!r} is not an ISO 8601 time") from error
    if not isinstance(moment, datetime):
        raise Invalid(f"timestamp: expected a datetime or ISO 8601 text, got {type(moment).__name__}")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


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
    match = _INTERVAL.fullmatch(text)
    unit_ms = _INTERVAL_MS.get(match[2].lower()) if match else None
    return None if match is None or unit_ms is None else int(match[1]) * unit_ms


def duration_ms(given: object) -> int | None:
    """Return a duration in ms: a number with one of the letters s, m, h, d and w, an interval as in properties, or 0.

    Returns None for any other value, and above a thousand years.
    """
    text = str(given).strip()
    short = _SHORT.fullmatch(text)
    lasts_ms = int(short[1]) * _SHORT_MS[short[2]] if short else 0 if text == "0" else interval_ms(text)
    return lasts_ms if lasts_ms is not None and lasts_ms <= _LONGEST_MS else None


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
    match = _OFFSET.fullmatch(offset.strip().lower())
    parts = re.findall(_PART, match["parts"]) if match else []
    if not parts or not all(unit in _OFFSET_MS for _, unit in parts):
        raise Invalid(f"offset: {offset!r:.100} {_WRONG}")
    return sum(int(number) * _OFFSET_MS[unit] for number, unit in parts)


def moment_ago(offset: str | int, clock: Clock) -> datetime:
    """Return the moment that an offset means now. Raises `Invalid`, also for one before the year 1970."""
    at_ms = clock.now_ms() - offset_ms(offset)
    if at_ms < 0:
        raise Invalid(f"offset: {offset!r:.100} is longer ago than any table")
    return datetime_of(at_ms)


def lasting(text: str, field: str) -> timedelta:
    """Return a retention. Raises `Invalid`, naming the field, unless it is a duration above 0."""
    lasts_ms = duration_ms(text)
    if not lasts_ms or lasts_ms < 0:
        raise Invalid(f"{field}: {text!r:.100} is not a duration; use for example 7d or '12 hours'")
    return timedelta(milliseconds=lasts_ms)
