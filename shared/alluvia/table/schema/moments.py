"""Times as columns have them: with a zone, in UTC, or without one. Pure."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa


def is_zoned(kind: pa.DataType) -> bool:
    """Whether values of a type are moments, and not times of some unknown zone, or no times."""
    return pa.types.is_timestamp(kind) and kind.tz is not None


def moment(text: str, kind: pa.DataType) -> datetime:
    """Read an ISO time as a value of a column. Raises `ValueError`."""
    found = datetime.fromisoformat(text)
    if not is_zoned(kind):
        return found.replace(tzinfo=None)
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
