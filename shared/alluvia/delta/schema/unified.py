"""One schema for independently written files: missing columns are null, contradicting ones are refused. Pure.

Source: Delta protocol, "Type Widening": a reader refuses a table whose history holds a change that it does not support.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache

import pyarrow as pa

from alluvia.delta.schema.nesting import all_fields
from alluvia.delta.schema.serialization import SCHEMAS_KEPT, Json, schema_fields
from alluvia.errors import Invalid, Unsupported

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


Path = tuple[str, ...]


class UnifiedSchema:
    """Takes the schemas of files, one after another; columns are in the order in which they were first seen."""

    def __init__(self) -> None:
        self._whole: pa.DataType = pa.struct([])
        self._first: dict[Path, str] = {}

    @property
    def schema(self) -> pa.Schema:
        """Return the schema of all files so far."""
        return pa.schema([self._whole.field(at) for at in range(self._whole.num_fields)])

    def add(self, file: str, schema: pa.Schema) -> None:
        """Take a file's schema. Raises `Invalid`, naming the file, the column, and a file that it contradicts."""
        self._whole = self._unify(self._whole, pa.struct(list(schema)), (), file)

    def _unify(self, ours: pa.DataType, theirs: pa.DataType, path: Path, file: str) -> pa.DataType:
        types = pa.types
        if types.is_struct(ours) and types.is_struct(theirs):
            return self._unify_fields(ours, theirs, path, file)
        if types.is_list(ours) and types.is_list(theirs):
            element = self._unify(ours.value_type, theirs.value_type, (*path, "element"), file)
            return pa.list_(pa.field("element", element))
        if types.is_map(ours) and types.is_map(theirs):
            key = self._unify(ours.key_type, theirs.key_type, (*path, "key"), file)
            value = self._unify(ours.item_type, theirs.item_type, (*path, "value"), file)
            return pa.map_(key, value)
        if not ours.equals(theirs):
            raise Invalid(
                f"{file}: column {'.'.join(path)} is {theirs}, but {ours} in {self._first_of(path)}: "
                "a column has one type in all files of a table"
            )
        return ours

    def _unify_fields(self, ours: pa.DataType, theirs: pa.DataType, path: Path, file: str) -> pa.DataType:
        known = {ours.field(at).name: ours.field(at).type for at in range(ours.num_fields)}
        spelled = {name.lower(): name for name in known}
        for at in range(theirs.num_fields):
            field = theirs.field(at)
            here = (*path, field.name)
            other = spelled.setdefault(field.name.lower(), field.name)
            if other != field.name:
                raise Invalid(
                    f"{file}: column {'.'.join(here)} differs from {'.'.join((*path, other))} in "
                    f"{self._first_of((*path, other))} only in case, which Delta does not allow"
                )
            if field.name in known:
                known[field.name] = self._unify(known[field.name], field.type, here, file)
            else:
                known[field.name] = field.type
                self._first.setdefault(here, file)
        return pa.struct(list(known.items()))

    def _first_of(self, path: Path) -> str:
        """Return the file in which a column, or the one that it is a part of, was first seen."""
        return next(self._first[path[:end]] for end in range(len(path), 0, -1) if path[:end] in self._first)
