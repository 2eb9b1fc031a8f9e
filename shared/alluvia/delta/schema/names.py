"""Names as SQL compares them, and paths of nested columns. Pure.

DuckDB folds only the letters A to Z: it treats `K` (the Kelvin sign) and `k` as two names. Python's `lower()` treats
them as one, so a check that used it would not see the query that runs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from string import ascii_lowercase, ascii_uppercase
from typing import Any

import pyarrow as pa

from alluvia.recent import once_each

_FOLD = str.maketrans(ascii_uppercase, ascii_lowercase)


def fold(name: str) -> str:
    """Return the text that two names share if DuckDB treats them as equal."""
    return name.translate(_FOLD)


@once_each
def places_by_name(schema: pa.Schema) -> Mapping[str, Sequence[int]]:
    """Return the places of a schema's columns by folded name."""
    places: dict[str, list[int]] = {}
    for at, name in enumerate(schema.names):
        places.setdefault(fold(name), []).append(at)
    return places


def places_of(schema: pa.Schema, named: Collection[str] | None) -> Sequence[int]:
    """Return the places of the columns whose folded names are among some, in order; of all for None."""
    if named is None:
        return range(len(schema))
    places = places_by_name(schema)
    return sorted(at for name in named for at in places.get(name, ()))


ColumnPath = tuple[str, ...]
Json = dict[str, Any]


def put(tree: Json, path: ColumnPath, value: Any) -> None:
    """Put a value into a tree of objects, and make those on the way to it."""
    if len(path) > 1:
        for name in path[:-1]:
            tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def find(tree: Any, path: ColumnPath) -> Any:
    """Return what a tree holds for a column; None for nothing."""
    for name in path:
        if not isinstance(tree, dict):
            return None
        tree = tree.get(name)
    return tree


def leaves(schema: pa.Schema | pa.StructType, start: ColumnPath = ()) -> Iterator[tuple[ColumnPath, pa.DataType]]:
    """Yield the columns that have no fields of their own, in order. A list or a map is one column."""
    for field in schema:
        path = (*start, field.name)
        if pa.types.is_struct(field.type):
            yield from leaves(field.type, path)
        else:
            yield path, field.type
