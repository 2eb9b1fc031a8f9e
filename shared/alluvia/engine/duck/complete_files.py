"""Files that have every column of a table, by their statistics in the log. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson
import pyarrow as pa

from alluvia.delta.log.actions import AddFile

Names = dict[str, "Names | None"]


def counted_names(fields: Iterable[pa.Field]) -> Names | None:
    """Return the names that complete statistics count the nulls of, those in structs included; None if they cannot."""
    names: Names = {}
    for field in fields:
        inner = counted_names(field.type.fields) if pa.types.is_struct(field.type) else None
        if inner is None and _holds_struct(field.type):
            return None
        names[field.name] = inner
    return names


def is_complete(file: AddFile, names: Names) -> bool:
    """Whether the statistics say that a file has every column, so that DuckDB need not compare the files' schemas."""
    if file.stats is None:
        return False
    try:
        return _counted(names, orjson.loads(file.stats).get("nullCount"))
    except (ValueError, AttributeError):
        return False


def _counted(names: Names, counts: Any) -> bool:
    return isinstance(counts, dict) and all(
        name in counts and (inner is None or _counted(inner, counts[name])) for name, inner in names.items()
    )


def _holds_struct(kind: pa.DataType) -> bool:
    """Whether there are fields within lists or maps, of which statistics say nothing."""
    if pa.types.is_map(kind):
        return _holds_struct(kind.key_type) or _holds_struct(kind.item_type)
    if pa.types.is_list(kind):
        return _holds_struct(kind.value_type)
    return pa.types.is_struct(kind)
