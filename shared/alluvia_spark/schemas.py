"""A table's columns as Spark's types. Delta's schemas are Spark's own JSON, with metadata that is Delta's."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import signature
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import ArrayType, DataType, MapType, NullType, StringType, StructField, StructType, VariantType

from alluvia.delta.schema.column_mapping import ID, NAME, ColumnMapping
from alluvia.delta.schema.serialization import Json, schema_fields
from alluvia.delta.schema.types import is_zoned
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid, Unsupported

FIELD_ID = "parquet.field.id"
_VOID = ("void", "null")
_IN_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
"""PySpark 4.3 asks in which zone moments are to be; before, they are in UTC."""


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
    renamed = []
    for field in fields:
        if field["type"] not in _VOID:
            name, metadata = identify(field)
            renamed.append({**field, "name": name, "type": _kind(field["type"], identify), "metadata": metadata})
    return renamed


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


def with_texts(schema: StructType) -> StructType:
    """Return columns with variants as JSON text, as this library reads them. Raises `Unsupported` for nested ones."""
    fields = []
    for each in schema:
        kind = StringType() if isinstance(each.dataType, VariantType) else each.dataType
        if "variant" in kind.simpleString():
            raise Unsupported(f"column {each.name} holds variants inside, which Spark cannot be given by this source")
        fields.append(StructField(each.name, kind))
    return StructType(fields)


def written_schema(columns: StructType) -> pa.Schema:
    """Return the columns of a DataFrame as a table is given them: all nullable, as Delta on Spark makes them.

    That a DataFrame has no nulls (those of literals and ranges say so) does not mean that the next one has none. Raises
    `Unsupported`, naming the column, for a variant, and `Invalid` for a repeated name and for a map of no type.
    """
    _check_written(columns, "")
    return to_arrow_schema(all_nullable(columns), **_IN_UTC)


def spelled(names: Iterable[str], schema: pa.Schema) -> list[str]:
    """Return names of columns as the table spells them: Spark's names are the same in any case."""
    known = {name.lower(): name for name in schema.names}
    return [known.get(name.lower(), name) for name in names]


def fitted(rows: pa.Schema, schema: pa.Schema) -> pa.Schema:
    """Return the columns of rows as the table spells them.

    Raises `Invalid`, naming it, for a `timestamp_ntz` that would become a `timestamp`: in Spark this is the moment that
    the session's time zone makes of it, and only Spark knows that.
    """
    fields = [field.with_name(name) for field, name in zip(rows, spelled(rows.names, schema), strict=True)]
    types = {field.name: field.type for field in schema}
    for field in fields:
        path = _zoneless(field.type, types[field.name]) if field.name in types else None
        if path is not None:
            name = f"{field.name}{path}"
            raise Invalid(
                f"column {name} is timestamp in the table, but the DataFrame has timestamp_ntz: "
                f"use CAST({name} AS TIMESTAMP), which takes it to be in the session's time zone"
            )
    return pa.schema(fields)


def unknown_fields(rows: pa.Schema, schema: pa.Schema) -> list[tuple[str, pa.Field]]:
    """Return the columns of rows that a table does not have, or structs of which have more fields, with what is new."""
    unknown, types = [], {field.name: field.type for field in schema}
    for field in rows:
        path = field.name if field.name not in types else None
        if path is None and (more := _unknown(field.type, types[field.name])) is not None:
            path = f"{field.name}{more}"
        if path is not None:
            unknown.append((path, field))
    return unknown


def _unknown(given: pa.DataType, wanted: pa.DataType) -> str | None:
    """Return where in a column there is a field that the table does not have; None if nowhere."""
    types = pa.types
    if types.is_struct(given) and types.is_struct(wanted):
        ours = {field.name.lower(): field.type for field in wanted}
        for field in given:
            more = "" if field.name.lower() not in ours else _unknown(field.type, ours[field.name.lower()])
            if more is not None:
                return f".{field.name}{more}"
        return None
    if types.is_list(given) and types.is_list(wanted):
        more = _unknown(given.value_type, wanted.value_type)
        return None if more is None else f".element{more}"
    if types.is_map(given) and types.is_map(wanted):
        more = _unknown(given.item_type, wanted.item_type)
        return None if more is None else f".value{more}"
    return None


def _zoneless(given: pa.DataType, wanted: pa.DataType) -> str | None:
    """Return where in a column, "" for the column itself, moments without a zone would get one; None if nowhere."""
    types = pa.types
    if types.is_timestamp(given) and types.is_timestamp(wanted):
        return "" if is_zoned(wanted) and not is_zoned(given) else None
    parts: list[tuple[str, pa.DataType, pa.DataType]] = []
    if types.is_struct(given) and types.is_struct(wanted):
        ours = {field.name: field.type for field in wanted}
        parts = [(field.name, field.type, ours[field.name]) for field in given if field.name in ours]
    elif types.is_list(given) and types.is_list(wanted):
        parts = [("element", given.value_type, wanted.value_type)]
    elif types.is_map(given) and types.is_map(wanted):
        parts = [("key", given.key_type, wanted.key_type), ("value", given.item_type, wanted.item_type)]
    paths = ((name, _zoneless(one, other)) for name, one, other in parts)
    return next((f".{name}{path}" for name, path in paths if path is not None), None)


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
