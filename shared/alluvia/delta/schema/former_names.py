"""The names that a table's columns have had, so that what is hidden under one of them stays hidden. Pure.

They are a property that only this library sets: by the name that a column has in files, each name that it was given.
It keeps those of columns that were dropped, since earlier versions have them. A column that always had its name in
files is not in it until it goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import orjson

from alluvia.delta.log.actions import Metadata
from alluvia.delta.schema.column_mapping import NAME, is_mapped
from alluvia.delta.schema.names import fold
from alluvia.delta.schema.serialization import schema_fields
from alluvia.errors import Corrupt

FORMER_NAMES = "alluvia.former_names"

Names = dict[str, tuple[str, ...]]
"""Names of columns by their names in files."""


def former_names(configuration: Mapping[str, str]) -> Names:
    """Return the names that columns were given, by the names that they have in files. Raises `Corrupt`."""
    try:
        recorded = {
            str(stored): tuple(names) for stored, names in orjson.loads(configuration.get(FORMER_NAMES, "{}")).items()
        }
        if all(isinstance(name, str) for names in recorded.values() for name in names):
            return recorded
    except (ValueError, TypeError, AttributeError) as error:
        raise Corrupt(f"property {FORMER_NAMES} cannot be read: only this library may set it") from error
    raise Corrupt(f"property {FORMER_NAMES} cannot be read: only this library may set it")


def together(*parts: Mapping[str, tuple[str, ...]]) -> Names:
    """Return what several records say of columns."""
    joined: Names = {}
    for part in parts:
        for stored, names in part.items():
            joined[stored] = tuple(dict.fromkeys((*joined.get(stored, ()), *names)))
    return joined


def noted(metadata: Metadata, before: Metadata | None = None) -> Metadata:
    """Return a table's metadata with the names that its columns have on record, and those that they had `before`.

    So are columns that it has no more, by the names that they have in files.
    """
    if before is None:
        return _with(metadata, _given(_columns(metadata)))
    with_before = _with(metadata, former_names(before.configuration))
    if metadata.schema_string == before.schema_string:
        return with_before
    now, then = _columns(metadata), _columns(before)
    gone = {stored: (name,) for stored, name in then.items() if stored not in now}
    return _with(with_before, together(_given(then), gone, _given(now)))


def inherited(metadata: Metadata, before: Metadata) -> Metadata:
    """Return a table's metadata with the names of the columns of another, which it takes the place of, on record.

    A column has those of each that has, or had, the name that it has now, as columns have whose rows were read from
    the other table. Names are compared as DuckDB compares them.
    """
    if metadata.id == before.id:  # a new log's first version, which comes before itself
        return metadata
    had = together({stored: (stored, name) for stored, name in _columns(before).items()},
                   former_names(before.configuration))  # fmt: skip
    heirs: dict[str, list[tuple[str, ...]]] = {}
    for stored, names in had.items():
        every = tuple(dict.fromkeys((stored, *names)))
        for each in {fold(name) for name in every}:
            heirs.setdefault(each, []).append(every)
    kept = {
        stored: tuple(dict.fromkeys(each for every in heirs.get(fold(name), ()) for each in every if each != stored))
        for stored, name in _columns(metadata).items()
    }
    return _with(metadata, {stored: names for stored, names in kept.items() if names})


def with_names_of(configuration: Mapping[str, str], before: Mapping[str, str]) -> dict[str, str]:
    """Return properties with what others, of the same log, have on record besides."""
    return with_names(configuration, former_names(before))


def with_names(configuration: Mapping[str, str], names: Names) -> dict[str, str]:
    """Return properties with further names of columns on record."""
    own = former_names(configuration)
    every = together(own, names)
    return dict(configuration) if every == own else {**configuration, FORMER_NAMES: orjson.dumps(every).decode()}


def _with(metadata: Metadata, names: Names) -> Metadata:
    return replace(metadata, configuration=with_names(metadata.configuration, names))


def _columns(metadata: Metadata) -> dict[str, str]:
    """Return the columns' names by those that they have in files."""
    mapped = is_mapped(metadata.configuration)
    named = ((field["name"], field.get("metadata") or {}) for field in schema_fields(metadata.schema_string))
    return {str(body.get(NAME, name)) if mapped else name: name for name, body in named}


def _given(columns: Mapping[str, str]) -> Names:
    return {stored: (name,) for stored, name in columns.items() if stored != name}
