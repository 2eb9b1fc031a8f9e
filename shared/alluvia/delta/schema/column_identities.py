"""Column mapping as it is written: ids and physical names of columns, which stay when their names change. Pure.

Source: Delta protocol, "Column Mapping". Each function takes a table's metadata and returns it changed.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import orjson

from alluvia.delta.log.actions import Metadata
from alluvia.delta.schema.column_mapping import ID, MODE, NAME, ColumnMapping
from alluvia.delta.schema.column_path import ColumnPath
from alluvia.delta.schema.nesting import not_readable, without_depth
from alluvia.delta.schema.serialization import Json, schema_fields
from alluvia.errors import Corrupt, Unsupported

MAX_ID = "delta.columnMapping.maxColumnId"
"""The highest id that a column of the table has ever had, so that none is given twice."""
_PARTS = ("elementType", "keyType", "valueType")

Naming = Callable[[ColumnPath], str]
"""Gives a column, or a field in one, the name that it will have in files."""


def is_mapped(configuration: Mapping[str, str]) -> bool:
    """Whether a table with these properties gives its columns ids and physical names."""
    return configuration.get(MODE, "none").lower() != ColumnMapping.NONE.value


def own_names(path: ColumnPath) -> str:
    """Return the column's name, which it has in the files of a table without column mapping."""
    return path[-1]


def fresh_names(seed: str) -> Naming:
    """Return what names new columns; with the same seed, a UUID, they get the same names again."""
    return lambda path: f"col-{uuid.uuid5(uuid.UUID(seed), '/'.join(path))}"


def mapped(metadata: Metadata, like: Metadata | None = None) -> Metadata:
    """Return a table with column mapping; one without it gets mapping by name, so that its files stay as they are.

    Columns that have the same name in the files of `like`, a version of the same table, have the same ids.
    """
    if is_mapped(metadata.configuration):
        return metadata
    fields = schema_fields(metadata.schema_string)
    for _, _, field in _visited(fields):
        field["metadata"] = {name: value for name, value in _metadata(field).items() if name not in (ID, NAME)}
    before = {} if like is None else like.configuration
    configuration = {**metadata.configuration, MODE: before.get(MODE, ColumnMapping.NAME.value)}
    configuration[MAX_ID] = before.get(MAX_ID, "0")
    known = {} if like is None else _ids(like)
    return identified(replace(metadata, schema_string=_text(fields), configuration=configuration), own_names, known)


def identified(metadata: Metadata, names: Naming, known: Mapping[ColumnPath, int] | None = None) -> Metadata:
    """Return a mapped table in which columns without an id or a physical name have one. `known` are ids to use.

    Raises `Corrupt` if the properties do not say which ids have been given.
    """
    fields = schema_fields(metadata.schema_string)
    last = _last_id(metadata)
    for path, start, field in _visited(fields):
        given = _metadata(field)
        given.setdefault(NAME, names(path))
        if ID not in given:
            found = (known or {}).get((*start, given[NAME]))
            last += found is None
            given[ID] = last if found is None else found
        field["metadata"] = given
    configuration = {**metadata.configuration, MAX_ID: str(last)}
    return replace(metadata, schema_string=_text(fields), configuration=configuration)


def restored(metadata: Metadata, now: Metadata) -> Metadata:
    """Return the metadata of an earlier version as a table takes it back that has column mapping by now, if it has."""
    if not is_mapped(now.configuration):
        return metadata
    found = mapped(metadata, like=now)
    last = max(_last_id(found), _last_id(now))
    return replace(found, configuration={**found.configuration, MAX_ID: str(last)})


def renamed(metadata: Metadata, names: Mapping[str, str]) -> Metadata:
    """Return a table of which some columns have other names."""
    fields = schema_fields(metadata.schema_string)
    for field in fields:
        field["name"] = names.get(field["name"], field["name"])
    return replace(metadata, schema_string=_text(fields))


def without_depth_of(metadata: Metadata, names: Collection[str]) -> Metadata:
    """Return a table in which some columns, as far as they are nested too deeply to read, hold bytes."""
    fields = schema_fields(metadata.schema_string)
    flat = without_depth(fields, names)
    return metadata if flat == fields else replace(metadata, schema_string=_text(flat))


def without(metadata: Metadata, names: Collection[str]) -> Metadata:
    """Return a table without some columns."""
    fields = [field for field in schema_fields(metadata.schema_string) if field["name"] not in names]
    return replace(metadata, schema_string=_text(fields))


def _visited(fields: list[Json]) -> Iterator[tuple[ColumnPath, ColumnPath, Json]]:
    """Yield fields, nested ones after what they are in: the names up to each, the physical names above it, and it."""
    pending: list[tuple[ColumnPath, ColumnPath, Any]] = [((), (), {"fields": fields})]
    for path, stored, kind in pending:  # which grows
        if not isinstance(kind, dict):
            continue
        pending += [((*path, part), (*stored, part), kind[part]) for part in _PARTS if part in kind]
        for field in kind.get("fields", ()):
            here = (*path, field["name"])
            yield here, stored, field
            pending.append((here, (*stored, _metadata(field).get(NAME, field["name"])), field["type"]))


def _metadata(field: Json) -> Json:
    return dict(field.get("metadata") or {})


def _ids(metadata: Metadata) -> dict[ColumnPath, int]:
    """Return the ids that columns have, by their physical names from the top."""
    visited = _visited(schema_fields(metadata.schema_string))
    given = ((start, field["name"], _metadata(field)) for _, start, field in visited)
    return {(*start, str(body.get(NAME, name))): body[ID] for start, name, body in given if ID in body}


def _last_id(metadata: Metadata) -> int:
    text = metadata.configuration.get(MAX_ID, "0")
    if not text.isdecimal():
        raise Corrupt(f"property {MAX_ID} is {text!r:.100}, which is not a whole number")
    return max([int(text), *_ids(metadata).values()])


def _text(fields: list[Json]) -> str:
    try:
        return orjson.dumps({"type": "struct", "fields": fields}).decode()
    except orjson.JSONEncodeError as error:  # which writes 254 levels
        raise Unsupported(not_readable(fields) or f"the columns cannot be written: {error}") from error
