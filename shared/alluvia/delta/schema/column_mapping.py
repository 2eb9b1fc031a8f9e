"""Column mapping: columns' names and ids in files, which stay when a column is renamed. Pure.

Source: Delta protocol, "Column Mapping". A physical schema has the shape of the table's own, field by field, with
physical names, and with each column's id as the metadata under which Arrow keeps Parquet's field ids.
Functions that change columns take a table's metadata and return it changed.
"""

from __future__ import annotations

import enum
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import replace
from typing import Any

import orjson
import pyarrow as pa

from alluvia.delta.log.actions import Metadata, Protocol
from alluvia.delta.log.features import COLUMN_MAPPING
from alluvia.delta.schema.names import ColumnPath
from alluvia.delta.schema.nesting import not_readable, without_depth
from alluvia.delta.schema.serialization import Identify, Json, arrow_schema, schema_fields
from alluvia.errors import Corrupt, Unsupported

MODE = "delta.columnMapping.mode"
NAME = "delta.columnMapping.physicalName"
ID = "delta.columnMapping.id"
FIELD_ID = b"PARQUET:field_id"


class ColumnMapping(enum.Enum):
    """How a column of the table is found in a data file."""

    NONE = "none"
    NAME = "name"
    ID = "id"


def mapping_of(protocol: Protocol, metadata: Metadata) -> ColumnMapping:
    """Return a table's mapping; its property counts only where the protocol has the feature. Raises `Unsupported`."""
    version, features = protocol.min_reader_version, protocol.reader_features or ()
    if version < 2 or (version > 2 and COLUMN_MAPPING not in features):
        return ColumnMapping.NONE
    text = metadata.configuration.get(MODE, "none").lower()
    try:
        return ColumnMapping(text)
    except ValueError as error:
        raise Unsupported(f"the table's column mapping is {text!r}; this library supports none, name and id") from error


def physical_schema(schema_string: str, mapping: ColumnMapping) -> pa.Schema:
    """Return the table's schema with the names that its columns have in files, and variants as they are stored.

    Raises `Corrupt` or `Unsupported`.
    """
    return arrow_schema(schema_string, _IDENTIFY[mapping])


def identities(physical: pa.Schema) -> set[tuple[str, int]]:
    """Return the names and ids of all columns of a physical schema, nested ones too, that have an id."""
    pairs: set[tuple[str, int]] = set()

    def visit(fields: list[pa.Field]) -> None:
        for field in fields:
            identity = (field.metadata or {}).get(FIELD_ID)
            if identity is not None:
                pairs.add((field.name, int(identity)))
            visit([field.type.field(at) for at in range(field.type.num_fields)])

    visit(list(physical))
    return pairs


def misnamed(name: str, identity: int | None, expected: set[tuple[str, int]]) -> bool:
    """Whether a file's field is one of the expected by its name or by its id, but not by both."""
    if (name, identity) in expected:
        return False
    return any(name == known or identity == number for known, number in expected)


def physical_path(logical: pa.Schema, physical: pa.Schema, path: ColumnPath) -> ColumnPath | None:
    """Return a column's path under the names of a physical schema; None for a column that is not there."""
    names: list[str] = []
    ours: pa.Schema | pa.DataType = logical
    theirs: pa.Schema | pa.DataType = physical
    for name in path:
        at = ours.get_field_index(name) if isinstance(ours, (pa.Schema, pa.StructType)) else -1
        if at < 0:
            return None
        names.append(theirs.field(at).name)
        ours, theirs = ours.field(at).type, theirs.field(at).type
    return tuple(names)


def _by_name(field: Json) -> tuple[str, dict[bytes, bytes] | None]:
    identity = (field.get("metadata") or {}).get(ID)
    return _physical_name(field), None if identity is None else _field_id(identity)


def _by_id(field: Json) -> tuple[str, dict[bytes, bytes] | None]:
    return _physical_name(field), _field_id((field.get("metadata") or {})[ID])


def _by_own_name(field: Json) -> tuple[str, None]:
    return field["name"], None


_IDENTIFY: dict[ColumnMapping, Identify] = {
    ColumnMapping.NONE: _by_own_name, ColumnMapping.NAME: _by_name, ColumnMapping.ID: _by_id,
}  # fmt: skip


def _physical_name(field: Json) -> str:
    name = (field.get("metadata") or {}).get(NAME, field["name"])
    if not isinstance(name, str):
        raise TypeError(f"{NAME} of column {field['name']} is {name!r}, which is not a string")
    return name


def _field_id(identity: object) -> dict[bytes, bytes]:
    if not isinstance(identity, int):
        raise TypeError(f"{ID} is {identity!r}, which is not a whole number")
    return {FIELD_ID: str(identity).encode()}


MAX_ID = "delta.columnMapping.maxColumnId"
"""The highest id that a column of the table has ever had, so that none is given twice."""
_SPECIAL = frozenset(" ,;{}()\n\t=")
"""Delta forbids these in names without column mapping. Source: delta-spark, `SchemaUtils.checkFieldNames`."""
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


def needs_mapping(schema_string: str) -> bool:
    """Whether a column, or a field in one, has a name that Delta allows only with column mapping."""
    return any(not _is_plain(field["name"]) for _, _, field in _visited(schema_fields(schema_string)))


def plain_names(seed: str) -> Naming:
    """Return what names the columns of a new table: those that any file may have stay, others get fresh names."""
    fresh = fresh_names(seed)
    return lambda path: path[-1] if _is_plain(path[-1]) else fresh(path)


def _is_plain(name: str) -> bool:
    return _SPECIAL.isdisjoint(name)


def mapped(metadata: Metadata, like: Metadata | None = None, names: Naming = own_names) -> Metadata:
    """Return a table with column mapping; one without it gets mapping by name, so that its files stay as they are.

    Columns that have the same name in the files of `like`, a version of the same table, have the same ids. `names`
    are those of the columns in files.
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
    return identified(replace(metadata, schema_string=_text(fields), configuration=configuration), names, known)


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
            number = (known or {}).get((*start, given[NAME]))
            last += number is None
            given[ID] = last if number is None else number
        field["metadata"] = given
    configuration = {**metadata.configuration, MAX_ID: str(last)}
    return replace(metadata, schema_string=_text(fields), configuration=configuration)


def restored(metadata: Metadata, now: Metadata) -> Metadata:
    """Return the metadata of an earlier version as a table takes it back that has column mapping by now, if it has."""
    if not is_mapped(now.configuration):
        return metadata
    mapped_now = mapped(metadata, like=now)
    last = max(_last_id(mapped_now), _last_id(now))
    return replace(mapped_now, configuration={**mapped_now.configuration, MAX_ID: str(last)})


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
