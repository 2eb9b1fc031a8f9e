"""Columns as senders declare them: in Delta's or Arrow's JSON, an object of types, or `name:type` pairs. Pure.

Seafowl takes Arrow's JSON: `{"fields": [{"name": "id", "type": {"name": "int", "bitWidth": 64, "isSigned": true}}]}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pyarrow as pa

from alluvia.delta.arguments import schema_of
from alluvia.delta.schema.nesting import NESTING_MAX, is_deeper, too_deep
from alluvia.delta.schema.serialization import arrow_schema, parse_type
from alluvia.delta.schema.types import split_types
from alluvia.errors import Corrupt, Invalid, Unsupported
from alluvia.files.limits import NAMES_MAX, FileNames

_EXAMPLE = 'such as sku:string,price:decimal(9,2), or {"sku": "string", "price": "decimal(9,2)"}'
_INTEGERS = {
    (8, True): "byte", (16, True): "short", (32, True): "integer", (64, True): "long",
    (8, False): "short", (16, False): "integer", (32, False): "long", (64, False): "decimal(20,0)",
}  # fmt: skip
_FLOATS = {"HALF": "float", "SINGLE": "float", "DOUBLE": "double"}
_PLAIN = {
    "utf8": "string", "largeutf8": "string", "bool": "boolean", "binary": "binary", "largebinary": "binary",
    "date": "date",
}  # fmt: skip


def declared_schema(text: str) -> pa.Schema:
    """Return the columns that a text declares. Raises `Invalid`, naming the column."""
    text = text.strip()
    try:
        schema = _of_json(orjson.loads(text), text) if text.startswith("{") else schema_of(_pairs(text))
    except (orjson.JSONDecodeError, Corrupt, Unsupported) as error:
        raise Invalid(f"schema: {error}") from None
    except Invalid as error:
        raise Invalid(f"schema: {str(error).removeprefix('schema: ')}") from None
    except RecursionError:
        raise Invalid(f"schema: its types are nested more than {NESTING_MAX} levels deep") from None
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, pa.ArrowException) as error:
        raise Invalid(f"schema: expected columns, {_EXAMPLE} ({error!s:.200})") from None
    if not len(schema):
        raise Invalid(f"schema: name at least one column, {_EXAMPLE}")
    FileNames(NAMES_MAX).take_columns(schema.names)
    return schema


def _of_json(value: Any, text: str) -> pa.Schema:
    fields = value.get("fields")
    if not isinstance(fields, list):
        return schema_of(value)
    if all(
        isinstance(field, dict) and isinstance(field.get("type"), dict) and "name" in field["type"] for field in fields
    ):
        return pa.schema([_arrow_field(field) for field in fields])
    for field in fields:
        if isinstance(field, dict) and is_deeper(field, NESTING_MAX):
            raise Invalid(too_deep(str(field.get("name"))))
    return arrow_schema(text)


def _arrow_field(field: Mapping[str, Any]) -> pa.Field:
    name = field.get("name")
    if not isinstance(name, str):
        raise Invalid(f"expected columns, {_EXAMPLE}")
    return pa.field(name, _arrow_type(name, field["type"]), field.get("nullable") is not False)


def _arrow_type(column: str, kind: Mapping[str, Any]) -> pa.DataType:
    name = str(kind["name"]).lower()
    if name == "int":
        width = kind.get("bitWidth")
        type_name = _INTEGERS.get((width, kind.get("isSigned") is not False)) if isinstance(width, int) else None
    elif name == "floatingpoint":
        type_name = _FLOATS.get(str(kind.get("precision", "")).upper())
    elif name == "timestamp":
        type_name = "timestamp" if kind.get("timezone") else "timestamp_ntz"
    elif name == "decimal":
        type_name = f"decimal({kind.get('precision')},{kind.get('scale')})"
    else:
        type_name = _PLAIN.get(name)
    if type_name is None:
        raise Invalid(f"column {column!r:.100}: the type {orjson.dumps(dict(kind)).decode():.200} is not supported")
    return parse_type(type_name)


def _pairs(text: str) -> dict[str, str]:
    kinds: dict[str, str] = {}
    for pair in filter(str.strip, split_types(text, ",\n")):
        head, bracket, inner = pair.partition("<")
        name, colon, kind = (part.strip() for part in head.rpartition(":"))
        kind += bracket + inner
        if not colon or not name or not kind:
            raise Invalid(f"{pair.strip()!r:.100} is not a column: use name:type, {_EXAMPLE}")
        if name in kinds:
            raise Invalid(f"the column {name!r:.100} is declared twice")
        kinds[name] = kind
    return kinds
