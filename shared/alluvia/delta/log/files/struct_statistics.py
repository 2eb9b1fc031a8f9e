"""Convert statistics that a checkpoint holds only as a struct to JSON text. Pure.

Source: Delta protocol, "Checkpoints" (`stats_parsed`, written with `delta.checkpoint.writeStatsAsStruct`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import orjson
import pyarrow as pa


def statistics_texts(structs: pa.Array) -> list[str | None]:
    """Return the JSON text of each struct; None for one with a time that Python cannot represent (years above 9999)."""
    try:
        return [statistics_text(each) for each in structs.to_pylist()]
    except (ValueError, OverflowError):
        if len(structs) == 1:
            return [None]
        return [text for at in range(len(structs)) for text in statistics_texts(structs.slice(at, 1))]


def statistics_text(parsed: Mapping[str, Any] | None) -> str | None:
    """Return the JSON text of one file's struct statistics, None where there are none."""
    known = {name: value for name, value in (parsed or {}).items() if value is not None}
    if not known:
        return None
    return orjson.dumps(known, default=_plain, option=orjson.OPT_PASSTHROUGH_DATETIME).decode()


def _plain(value: object) -> object:
    if isinstance(value, Decimal):
        return orjson.Fragment(format(value, "f").encode())
    if isinstance(value, datetime):
        return value.replace(tzinfo=None).isoformat() + ("" if value.tzinfo is None else "Z")
    if isinstance(value, date):
        return value.isoformat()
    return None  # bytes: no bound of theirs is of use
