"""Type widening: which changes of a column's type the files of a table may contain. Pure.

Source: Delta protocol, "Type Widening": a reader refuses a table whose history holds a change that it does not support.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

from alluvia.delta.schema.nesting import all_fields
from alluvia.delta.schema.serialization import SCHEMAS_KEPT, Json, schema_fields
from alluvia.errors import Unsupported

_CHANGES = "delta.typeChanges"
_DECIMAL = re.compile(r"^decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)$")
_WIDER = {
    "byte": ("short", "integer", "long", "double"),
    "short": ("integer", "long", "double"),
    "integer": ("long", "double"),
    "float": ("double",),
    "date": ("timestamp_ntz",),
}
_DIGITS = {"byte": 10, "short": 10, "integer": 10, "long": 20}
"""The digits before the point that a decimal needs to hold every value of a type."""


@lru_cache(maxsize=SCHEMAS_KEPT)
def check_type_changes(schema_string: str) -> None:
    """Raise `Unsupported`, naming the column, for a change of type that cannot be read. Raises `Corrupt`."""
    for path, change in _changes(schema_fields(schema_string)):
        before, after = change.get("fromType"), change.get("toType")
        if not is_wider(str(before), str(after)):
            msg = f"column {path} once changed its type from {before} to {after}, which this library cannot read"
            raise Unsupported(msg)


def is_wider(before: str, after: str) -> bool:
    """Whether every value of a Delta type is one of another, as type widening has it."""
    if after in _WIDER.get(before, ()):
        return True
    new = _DECIMAL.match(after)
    if new is None:
        return False
    precision, scale = int(new[1]), int(new[2])
    if before in _DIGITS:
        return precision - scale >= _DIGITS[before]
    old = _DECIMAL.match(before)
    return old is not None and scale >= int(old[2]) and precision - scale >= int(old[1]) - int(old[2])


def _changes(fields: list[Json]) -> Iterator[tuple[str, Json]]:
    for path, field in all_fields(fields):
        for change in (field.get("metadata") or {}).get(_CHANGES) or ():
            yield path, change if isinstance(change, dict) else {}
