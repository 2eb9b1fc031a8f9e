"""The texts of `delta.schema.variants` for files that this library writes, as DuckDB computes them.

Our files call the parts of a variant by their names without marking it as one, so DuckDB sees structs, and reads of
them only the columns that a query needs. `variant_bytes_to_variant` reads the bytes of the other values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import orjson

from alluvia.delta.schema.variant_shredding import Form
from alluvia.engine.duck.literals import quote_name, quote_text
from alluvia.engine.duck.promoted_sql import unread

_DIGITS = "[0-9][0-9.]{17}"
"""Digits that DuckDB's JSON may round, where there is a point among them."""
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_ :@-]*")
_PATH = re.compile(r"\$\.([A-Za-z_][A-Za-z0-9_]*)")


def plain_key(text: str) -> str | None:
    """Return the field of an object that a path of `->>` means; None for another kind of path."""
    match = _PATH.fullmatch(text)
    if match is not None:
        return match[1]
    return text if _KEY.fullmatch(text) else None


def shown_sql_of(column: str, form: Form, fields: Mapping[str, str]) -> str:
    """Return the SQL of all columns of files of a form, with a variant column as text.

    `fields` are further columns, by name, each with the argument of `->>` that finds it in the text.
    """
    keys = [(name, plain_key(path) or path) for name, path in fields.items()]
    parts = [f"{field_sql(column, form, key)} AS {quote_name(name)}" for name, key in keys]
    return ", ".join([f"* REPLACE ({text_sql(column, form)} AS {quote_name(column)})", *parts])


def text_sql(column: str, form: Form) -> str:
    """Return the SQL of the JSON text of a variant column, given the form that it has in files."""
    name = quote_name(column)
    metadata, value = _part(name, "metadata"), _part(name, "value")
    whole = _json(metadata, value)
    if not form:
        return f"CASE WHEN {name} IS NOT NULL THEN {whole} END"
    members = {key: _member(name, key, kind) for key, kind in form}
    front = ", ".join(f"{quote_text(_quoted(key) + ':')} || {text}" for key, text in members.items())
    listed = ", ".join(f"{{'key': {quote_text(key)}, 'value': {text}}}" for key, text in members.items())
    others = f"map_entries(CAST(CAST({whole} AS JSON) AS MAP(VARCHAR, JSON)))"
    every = (
        f"list_sort(list_concat(list_filter([{listed}], lambda m: m.value IS NOT NULL), "
        f"list_transform({others}, lambda m: {{'key': m.key, 'value': coalesce(CAST(m.value AS VARCHAR), 'null')}})))"
    )
    merged = f"list_transform({every}, lambda m: CAST(to_json(m.key) AS VARCHAR) || ':' || m.value)"
    return (
        f"CASE WHEN {name} IS NULL THEN NULL "
        f"WHEN {_part(name, 'typed_value')} IS NULL THEN coalesce({whole}, 'null') "
        f"WHEN {value} IS NULL THEN '{{' || concat_ws(',', {front}) || '}}' "
        f"WHEN regexp_matches({whole}, {quote_text(_DIGITS)}) THEN {unread('VARCHAR')} "
        f"ELSE '{{' || array_to_string({merged}, ',') || '}}' END"
    )


def field_sql(column: str, form: Form, key: str) -> str:
    """Return the SQL of `->>` with a key on the object that a variant column holds."""
    name = quote_name(column)
    metadata, value = _part(name, "metadata"), _part(name, "value")
    kind = dict(form).get(key)
    if kind is None:
        return f"CASE WHEN {value} IS NOT NULL THEN {_json(metadata, value)} ->> {quote_text(f'$.{_quoted(key)}')} END"
    group = _part(_part(name, "typed_value"), key)
    other = f"CASE WHEN {_part(group, 'value')} IS NOT NULL THEN {_json(metadata, _part(group, 'value'))} ->> '$' END"
    if not kind:
        return other
    typed = _part(group, "typed_value")
    shown = typed if kind == "string" else f"CAST({_typed(typed, kind)} AS VARCHAR)"
    return f"coalesce({shown}, {other})"


def _member(name: str, key: str, kind: str) -> str:
    """Return the SQL of a field as JSON text; null where an object does not have it."""
    group = _part(_part(name, "typed_value"), key)
    value = _part(group, "value")
    other = f"CASE WHEN {value} IS NOT NULL THEN {_json(_part(name, 'metadata'), value)} END"
    if not kind:
        return other
    return f"coalesce(CAST({_typed(_part(group, 'typed_value'), kind)} AS VARCHAR), {other})"


def _typed(value: str, kind: str) -> str:
    return value if kind in ("long", "boolean") else f"to_json({value})"


def _json(metadata: str, value: str) -> str:
    return f"CAST(CAST(variant_bytes_to_variant({metadata} || {value}) AS JSON) AS VARCHAR)"


def _part(value: str, name: str) -> str:
    return f"struct_extract({value}, {quote_text(name)})"


def _quoted(key: str) -> str:
    return orjson.dumps(key).decode()
