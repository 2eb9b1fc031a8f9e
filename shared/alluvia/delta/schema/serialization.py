"""Schemas: convert between Delta's JSON and Arrow's types. Pure. Source: Delta protocol, "Schema Serialization"."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import orjson
import pyarrow as pa

from alluvia.delta.schema.comments import given_comment, with_comment
from alluvia.delta.schema.nesting import NESTING_MAX, check_new, has_type, not_readable
from alluvia.delta.schema.types import is_bytes, is_text, normal_name, split_types
from alluvia.delta.schema.variants import STORED, VARIANT
from alluvia.errors import Corrupt, Invalid, Unsupported

Json = dict[str, Any]
Identify = Callable[[Json], tuple[str, dict[bytes, bytes] | None]]

SCHEMAS_KEPT = 1024
"""How many schemas a process keeps parsed, by their text: each request needs that of its table, whichever it is."""
_VOID = ("void", "null")
_NESTED = re.compile(r"(array|map|struct)\s*<(.*)>", re.DOTALL | re.IGNORECASE)
_PRIMITIVES: dict[str, pa.DataType] = {
    "string": pa.string(),
    "long": pa.int64(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "byte": pa.int8(),
    "float": pa.float32(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
_DECIMAL = re.compile(r"^decimal\(\s*(\d+)\s*,\s*(\d+)\s*\)$")
_SIMPLE: list[tuple[Any, str]] = [
    (is_text, "string"),
    (lambda t: pa.types.is_int64(t) or pa.types.is_uint32(t), "long"),
    (lambda t: pa.types.is_int32(t) or pa.types.is_uint16(t), "integer"),
    (lambda t: pa.types.is_int16(t) or pa.types.is_uint8(t), "short"),
    (pa.types.is_int8, "byte"),
    (lambda t: pa.types.is_float32(t) or pa.types.is_float16(t), "float"),
    (pa.types.is_float64, "double"),
    (pa.types.is_boolean, "boolean"),
    (is_bytes, "binary"),
    (pa.types.is_date, "date"),
]


def parse_type(text: str) -> pa.DataType:
    """Return the Arrow type of a type's name, as `type_name` writes it, or of SQL's name of a primitive type.

    Raises `Invalid` for an unknown one, and for one that is nested more deeply than a new column may be.
    """
    return _parsed(text, NESTING_MAX)


def _parsed(text: str, levels: int) -> pa.DataType:
    nested = _NESTED.fullmatch(text.strip())
    if nested is None:
        return primitive_type(text)
    if not levels:
        raise Invalid(f"a type is nested more than {NESTING_MAX} levels deep: flatten it, or use string for JSON text")
    name, parts = nested[1].lower(), split_types(nested[2])
    if name == "array" and len(parts) == 1:
        return pa.list_(_parsed(parts[0], levels - 1))
    if name == "map" and len(parts) == 2:
        return pa.map_(_parsed(parts[0], levels - 1), _parsed(parts[1], levels - 1))
    fields = [[each.strip() for each in part.partition(":")] for part in parts]
    if name != "struct" or not all(field and kind for field, _, kind in fields):
        raise Invalid(f"unknown type {text.strip()!r:.200}: use array<type>, map<type,type> or struct<name:type,…>")
    return pa.struct([(field, _parsed(kind, levels - 1)) for field, _, kind in fields])


def primitive_type(text: str) -> pa.DataType:
    """Return the Arrow type of a primitive type's name: Delta's, such as `long` or `decimal(10,2)`, or SQL's."""
    return _primitive(normal_name(text))


def _primitive(text: str) -> pa.DataType:
    if text in _PRIMITIVES:
        return _PRIMITIVES[text]
    if (match := _DECIMAL.match(text)) and 1 <= int(match[1]) <= 38 and int(match[2]) <= int(match[1]):
        return pa.decimal128(int(match[1]), int(match[2]))
    raise Invalid(
        f"unknown type {text!r:.100}: use one of {', '.join(_PRIMITIVES)}, decimal(p,s), array<type>, map<type,type> "
        "or struct<name:type,…>"
    )


@lru_cache(maxsize=SCHEMAS_KEPT)
def arrow_schema(schema_string: str, identify: Identify | None = None) -> pa.Schema:
    """Return the Arrow schema of a table from its `schemaString`. Raises `Corrupt` or `Unsupported`.

    `identify` gives a field's name and its Arrow metadata; without it fields have the names that users see. Variants
    have the type that they are stored in with it, and are text without. Columns of the type `void`, which hold nothing,
    are left out, as the reference implementation does.
    """
    fields = schema_fields(schema_string)
    if (reason := not_readable(fields)) is not None:
        raise Unsupported(reason)
    try:
        return pa.schema(_arrow_fields(fields, identify or _displayed))
    except (ValueError, KeyError, TypeError, AttributeError, pa.ArrowException) as error:
        raise Corrupt(f"the table's schemaString cannot be read: {type(error).__name__}: {error}") from error


def schema_fields(schema_string: str) -> list[Json]:
    """Return the fields of a `schemaString`, parsed. Raises `Corrupt`."""
    if not schema_string:
        raise Corrupt("the table's metaData has no schemaString, so its columns are not known")
    try:
        fields = orjson.loads(schema_string)["fields"]
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"the table's schemaString cannot be read: {type(error).__name__}: {error}") from error
    if not isinstance(fields, list) or not all(isinstance(field, dict) for field in fields):
        raise Corrupt("the table's schemaString cannot be read: its fields are not a list of objects")
    return fields


def _displayed(field: Json) -> tuple[str, None]:
    return field["name"], None


def _arrow_fields(fields: list[Json], identify: Identify) -> list[pa.Field]:
    arrow_fields = []
    for field in fields:
        if field["type"] in _VOID:
            continue
        name, metadata = identify(field)
        kind = _arrow_type(field["type"], field["name"], identify)
        arrow_fields.append(pa.field(name, kind, _flag(field, "nullable"), metadata))
    names = [field.name.lower() for field in arrow_fields]
    if len(set(names)) < len(names):
        msg = f"a column name is repeated: {', '.join(sorted({name for name in names if names.count(name) > 1}))}"
        raise ValueError(msg)
    return arrow_fields


def _arrow_type(kind: str | Json, name: str, identify: Identify) -> pa.DataType:
    if kind == VARIANT:
        return pa.string() if identify is _displayed else STORED
    if isinstance(kind, str):
        try:
            return _primitive("decimal(10,0)" if kind == "decimal" else kind)
        except Invalid as error:
            raise Unsupported(f"column {name} has the type {kind!r}, which this version cannot read") from error
    if kind["type"] == "struct":
        return pa.struct(_arrow_fields(kind["fields"], identify))
    if kind["type"] == "array":
        element = _arrow_type(kind["elementType"], name, identify)
        return pa.list_(pa.field("element", element, _flag(kind, "containsNull")))
    if kind["type"] == "map":
        key, value = (_arrow_type(kind[part], name, identify) for part in ("keyType", "valueType"))
        return pa.map_(pa.field("key", key, nullable=False), pa.field("value", value, _flag(kind, "valueContainsNull")))
    raise Unsupported(f"column {name} has the type {kind['type']!r}, which this version cannot read")


def _flag(body: Json, name: str) -> bool:
    if type(body[name]) is not bool:
        raise ValueError(f"{name} is {str(body[name])[:100]!r}, neither true nor false")
    return bool(body[name])


def schema_string(schema: pa.Schema) -> str:
    """Return a `schemaString` for an Arrow schema, with the `comment` that the metadata of a field may have.

    Raises `Invalid`, naming the column, for a type that Delta lacks.
    """
    if not schema.names:
        raise Invalid("schema: a table needs at least one column")
    check_distinct(schema.names)
    return orjson.dumps({"type": "struct", "fields": [_new_field(field) for field in schema]}).decode()


def check_distinct(names: list[str]) -> None:
    """Raise `Invalid` for an empty or repeated column name (names differ by more than case)."""
    seen: set[str] = set()
    for name in names:
        if not name.strip() or name.lower() in seen:
            which = "repeated" if name.strip() else "empty"
            raise Invalid(f"column name {name!r} is {which}: column names must differ, apart from case")
        seen.add(name.lower())


def _new_field(field: pa.Field) -> Json:
    """Return a column in Delta's JSON. Raises `Invalid` for a name or a type that no table may have."""
    check_new(field)
    return with_comment(_delta_field(field, ""), given_comment(field.metadata, field.name))


def _delta_field(field: pa.Field, path: str) -> Json:
    if "\0" in field.name:
        raise Invalid(f"column {path}{field.name!r} contains a NUL character, which SQL does not allow")
    kind = _delta_type(field.type, f"{path}{field.name}")
    return {"name": field.name, "type": kind, "nullable": field.nullable, "metadata": {}}


def _delta_type(kind: pa.DataType, path: str) -> str | Json:
    if pa.types.is_dictionary(kind):
        return _delta_type(kind.value_type, path)
    for matches, name in _SIMPLE:
        if matches(kind):
            return name
    if pa.types.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if pa.types.is_decimal(kind) and kind.precision <= 38 and 0 <= kind.scale <= kind.precision:
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        if not fields:
            raise Invalid(f"column {path}: a struct needs at least one field")
        check_distinct([field.name for field in fields])
        return {"type": "struct", "fields": [_delta_field(field, f"{path}.") for field in fields]}
    if pa.types.is_map(kind):
        return {
            "type": "map",
            "keyType": _delta_type(kind.key_type, f"{path}.key"),
            "valueType": _delta_type(kind.item_type, f"{path}.value"),
            "valueContainsNull": kind.item_field.nullable,
        }
    if pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        element = _delta_type(kind.value_type, f"{path}.element")
        return {"type": "array", "elementType": element, "containsNull": kind.value_field.nullable}
    reason = "all its values are null: give it a type" if pa.types.is_null(kind) else f"Delta has no type for {kind}"
    raise Invalid(f"column {path}: {reason}")


def normal_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema that a table has once written: Arrow's variants become the one type that Delta has."""
    return arrow_schema(schema_string(schema))


def add_fields(text: str, new: pa.Schema) -> str:
    """Return a `schemaString` with nullable columns added at the end.

    Raises `Invalid`, naming the column, if one exists already or is not nullable.
    """
    whole = orjson.loads(text)
    for field in new:
        if not field.nullable:
            raise Invalid(f"new column {field.name} must be nullable: existing rows have no value for it")
        whole["fields"].append(_new_field(field))
    check_distinct([field["name"] for field in whole["fields"]])
    return orjson.dumps(whole).decode()


def add_nested(text: str, rows: pa.Schema) -> str:
    """Return a `schemaString` with the fields that structs of some rows have besides those of its columns, nullable.

    Columns that it does not have, and those of other types, stay out. Raises `Invalid` for a name that no table may
    have, and for a column that would be nested too deep.
    """
    whole = orjson.loads(text)
    given = {field.name: field for field in rows}
    for each in whole["fields"]:
        if (field := given.get(each["name"])) is not None and _widen(each["type"], field.type, field.name):
            check_new(arrow_schema(orjson.dumps({"type": "struct", "fields": [each]}).decode()).field(0))
    return orjson.dumps(whole).decode()


def _widen(kind: str | Json, given: pa.DataType, path: str) -> bool:
    """Add to the type of a column what structs of rows have besides it. Returns whether there was something."""
    if not isinstance(kind, dict):
        return False
    if kind["type"] == "array" and isinstance(given, (pa.ListType, pa.LargeListType)):
        return _widen(kind["elementType"], given.value_type, f"{path}.element")
    if kind["type"] == "map" and pa.types.is_map(given):
        return _widen(kind["valueType"], given.item_type, f"{path}.value")
    if kind["type"] != "struct" or not pa.types.is_struct(given):
        return False
    known = {each["name"].lower(): each for each in kind["fields"]}
    widened = False
    for field in given:
        there = known.get(field.name.lower())
        if there is None:
            kind["fields"].append(_delta_field(field.with_nullable(True), f"{path}."))
            widened = True
        elif _widen(there["type"], field.type, f"{path}.{field.name}"):
            widened = True
    return widened


def uses_type(text: str, name: str) -> bool:
    """Whether a `schemaString` holds a primitive type anywhere. Raises `Corrupt`."""
    return has_type(schema_fields(text), name)


def only_adds_nullable(before: str, after: str) -> bool:
    """Whether a schema is another with nullable columns added, and other comments, so that rows for it still fit."""
    old, new = ([with_comment(field, None) for field in orjson.loads(text)["fields"]] for text in (before, after))
    return bool(new[: len(old)] == old and all(field["nullable"] for field in new[len(old) :]))
