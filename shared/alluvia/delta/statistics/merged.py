"""Merge the statistics of a file's parts, so that a file can be written piece by piece. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from alluvia.delta.schema.column_path import Json, find, put
from alluvia.delta.statistics.written import encode_statistics, exact_json, statistics_text


def merged_statistics(parts: Sequence[str]) -> str:
    """Return the statistics of all rows of some parts of a file, each given by its own (see `file_statistics`).

    A column has bounds only if it has them in every part that holds a value of it.
    """
    if len(parts) == 1:
        return parts[0]
    parsed: list[Json] = [exact_json(part) for part in parts]
    leaves = sorted({path for part in parsed for path in _paths(part["nullCount"])})
    minima: Json = {}
    maxima: Json = {}
    nulls: Json = {}
    for path in leaves:
        put(nulls, path, sum(find(part["nullCount"], path) or 0 for part in parsed))
        filled = [part for part in parsed if (find(part["nullCount"], path) or 0) < part["numRecords"]]
        low = [find(part["minValues"], path) for part in filled]
        high = [find(part["maxValues"], path) for part in filled]
        if filled and None not in low and None not in high:
            put(minima, path, min(low))
            put(maxima, path, max(high))
    return encode_statistics(sum(part["numRecords"] for part in parsed), minima, maxima, nulls)


def _paths(tree: Json, start: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for name, value in tree.items():
        found += _paths(value, (*start, name)) if isinstance(value, dict) else [(*start, name)]
    return found


def loose_statistics(text: str | None, rows: int) -> str:
    """Return the statistics of a file with `rows` rows after a vector deletes some of them.

    Bounds stay where they are, though no row may reach them any more. Source: Delta protocol, "Per-file Statistics".
    """
    try:
        found = exact_json(text or "{}")
    except (ValueError, RecursionError):
        found = {}
    found = found if isinstance(found, dict) else {}
    return statistics_text(found | {"numRecords": rows, "tightBounds": False})
