"""Column mapping: the names and ids that columns have in files, statistics and partition values. Pure.

Source: Delta protocol, "Column Mapping". A physical schema has the shape of the table's own, field by field, with
physical names, and with each column's id as the metadata under which Arrow keeps Parquet's field ids.
"""

from __future__ import annotations

import enum

import pyarrow as pa

from alluvia.delta.log.actions import Metadata, Protocol
from alluvia.delta.log.features import COLUMN_MAPPING
from alluvia.delta.schema.column_path import ColumnPath
from alluvia.delta.schema.serialization import Identify, Json, arrow_schema
from alluvia.errors import Unsupported

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
    found: set[tuple[str, int]] = set()

    def visit(fields: list[pa.Field]) -> None:
        for field in fields:
            identity = (field.metadata or {}).get(FIELD_ID)
            if identity is not None:
                found.add((field.name, int(identity)))
            visit([field.type.field(at) for at in range(field.type.num_fields)])

    visit(list(physical))
    return found


def misnamed(name: str, identity: int | None, expected: set[tuple[str, int]]) -> bool:
    """Whether a file's field is one of the expected by its name or by its id, but not by both."""
    if (name, identity) in expected:
        return False
    return any(name == known or identity == number for known, number in expected)


def physical_path(logical: pa.Schema, physical: pa.Schema, path: ColumnPath) -> ColumnPath | None:
    """Return a column's path under the names of a physical schema; None for a column that is not there."""
    found: list[str] = []
    ours: pa.Schema | pa.DataType = logical
    theirs: pa.Schema | pa.DataType = physical
    for name in path:
        at = ours.get_field_index(name) if isinstance(ours, (pa.Schema, pa.StructType)) else -1
        if at < 0:
            return None
        found.append(theirs.field(at).name)
        ours, theirs = ours.field(at).type, theirs.field(at).type
    return tuple(found)


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
