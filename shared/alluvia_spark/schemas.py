"""A table's columns as Spark's types. Delta's schemas are Spark's own JSON, with metadata that is Delta's."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StructField, StructType, VariantType

from alluvia.errors import Invalid, Unsupported
from alluvia.table.schema.column_mapping import ID, NAME, ColumnMapping
from alluvia.table.schema.serialization import Json, schema_fields
from alluvia.table.snapshot import Snapshot

FIELD_ID = "parquet.field.id"
_VOID = ("void", "null")


def shown_schema(snapshot: Snapshot) -> StructType:
    """Return the columns as users of the table see them."""
    return _read(snapshot, lambda field: (field["name"], {}))


def stored_schema(snapshot: Snapshot) -> StructType:
    """Return the columns, field by field, with the names that they have in files, and their ids where those count."""
    if snapshot.mapping is ColumnMapping.NONE:
        return shown_schema(snapshot)

    def identify(field: Json) -> tuple[str, Json]:
        metadata = field.get("metadata") or {}
        ids = {FIELD_ID: metadata[ID]} if snapshot.mapping is ColumnMapping.ID else {}
        return str(metadata.get(NAME, field["name"])), ids

    return _read(snapshot, identify)


def _read(snapshot: Snapshot, identify: Any) -> StructType:
    fields = schema_fields(snapshot.state.metadata.schema_string)
    return StructType.fromJson({"type": "struct", "fields": _fields(fields, identify)})


def _fields(fields: list[Json], identify: Any) -> list[Json]:
    found = []
    for field in fields:
        if field["type"] not in _VOID:
            name, metadata = identify(field)
            found.append({**field, "name": name, "type": _kind(field["type"], identify), "metadata": metadata})
    return found


def _kind(kind: str | Json, identify: Any) -> str | Json:
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        return {"type": "struct", "fields": _fields(kind["fields"], identify)}
    parts = [name for name in ("elementType", "keyType", "valueType") if name in kind]
    return {**kind, **{name: _kind(kind[name], identify) for name in parts}}


def all_nullable(schema: StructType) -> StructType:
    """Return columns of which nothing says that they hold no nulls, as Spark reads files."""
    return StructType([StructField(each.name, nullable(each.dataType), metadata=each.metadata) for each in schema])


def nullable(kind: DataType) -> DataType:
    """Return a type in which nothing says that there are no nulls."""
    if isinstance(kind, StructType):
        return all_nullable(kind)
    if isinstance(kind, ArrayType):
        return ArrayType(nullable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(nullable(kind.keyType), nullable(kind.valueType))
    return kind


def written_schema(columns: StructType) -> pa.Schema:
    """Return the columns of a DataFrame as a table is given them: all nullable, as Delta on Spark makes them.

    That a DataFrame has no nulls (those of literals and ranges say so) does not mean that the next one has none. Raises
    `Unsupported`, naming the column, for a variant, and `Invalid` for a repeated name and for a map of no type.
    """
    _check_written(columns, "")
    return to_arrow_schema(all_nullable(columns))


def _check_written(kind: DataType, path: str) -> None:
    if isinstance(kind, VariantType):
        raise Unsupported(f"column {path} is a variant, which this library reads but does not write: use to_json")
    if isinstance(kind, StructType):
        seen = set[str]()
        for field in kind:
            name = f"{path}.{field.name}" if path else field.name
            if field.name.lower() in seen:
                raise Invalid(f"column {name} is repeated (names must differ by more than case): rename or drop one")
            seen.add(field.name.lower())
            _check_written(field.dataType, name)
    elif isinstance(kind, ArrayType):
        _check_written(kind.elementType, f"{path}.element")
    elif isinstance(kind, MapType):
        if isinstance(kind.keyType, NullType):
            raise Invalid(f"column {path} is a map without types: CAST it, as to map<string, string>")
        _check_written(kind.keyType, f"{path}.key")
        _check_written(kind.valueType, f"{path}.value")
