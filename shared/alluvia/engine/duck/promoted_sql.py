"""Promoted fields in SQL: what `delta.promoted_fields.shown` makes of a file's rows, as DuckDB computes it.

Where a value needs rules that only this library has (a time that is not plain ISO 8601, a number of many digits, an
object in a column of structs), the expression fails with `UNREAD`, and the file is read again by this library.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import orjson
import pyarrow as pa

from alluvia.delta.log.actions import AddFile
from alluvia.delta.promoted_fields import PROPERTIES, Promoted, PromotedField
from alluvia.engine.duck.failures import UNREAD
from alluvia.engine.duck.literals import quote_text

_DIGITS = "[0-9][0-9.]{14,}|[eE][-+]?[0-9]{3}"
"""Digits that a double may not hold, or an exponent beyond its range, anywhere in a text."""
_PLAIN_TIME = r"[1-9]\d{3}-\d\d-\d\d[T ](?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,6})?"
_OFFSET = r"(?:Z|[-+](?:0\d|1[0-4]):[0-5]\d)?"
_LAST_YEAR = "9999-"
_SCALES_US = ((10**11, 1_000_000), (10**14, 1_000), (10**17, 1))


def trust(promoted: Promoted, file: AddFile) -> tuple[bool, ...]:
    """Return of which promoted fields a file has all values that fit in their columns."""
    return tuple(field.is_moved(file) for field in promoted)


def shown_columns(
    promoted: Promoted, trusted: Sequence[bool], stored: Mapping[str, str], kinds: Mapping[str, str]
) -> dict[str, str]:
    """Return the SQL of `properties` and of the promoted columns that are shown in another form than the stored one.

    `stored` has the SQL of stored columns, and `kinds` DuckDB's names of types, both by the table's names.
    """
    text = stored[PROPERTIES]
    columns: dict[str, str] = {}
    for field, moved in zip(promoted, trusted, strict=True):
        if not moved:
            read = _read(field, text, kinds[field.column])
            columns[field.column] = f"coalesce({stored[field.column]}, {read})"
    columns[PROPERTIES] = _spliced(promoted, trusted, stored)
    return columns


def _spliced(promoted: Promoted, trusted: Sequence[bool], stored: Mapping[str, str]) -> str:
    text = stored[PROPERTIES]
    members = []
    in_both = []
    for field, moved in zip(promoted, trusted, strict=True):
        column, given = stored[field.column], _has(field, text)
        member = f"{quote_text(field.member + ':')} || {json_sql(column, field.kind)}"
        members.append(f"CASE WHEN {given} THEN NULL ELSE {member} END" if moved else member)
        if not moved:
            in_both.append(f"({column} IS NOT NULL AND TRY(json_exists({text}, {_path(field)})))")
    front = f"concat_ws(',', {', '.join(members)})"
    given = f"ltrim(coalesce({text}, '{{}}'), ' \t\r\n')"
    rest = f"substr({given}, 2)"
    comma = f"CASE WHEN starts_with(ltrim({rest}, ' \t\r\n'), '}}') THEN '' ELSE ',' END"
    spliced = f"'{{' || {front} || {comma} || {rest}"
    two = f"WHEN {' OR '.join(in_both)} THEN {unread('VARCHAR')} " if in_both else ""
    some = " OR ".join(f"{stored[field.column]} IS NOT NULL" for field in promoted)
    return (
        f"CASE WHEN NOT ({some}) THEN {text} {two}WHEN {front} = '' THEN {text} "
        f"WHEN {text} IS NULL THEN '{{' || {front} || '}}' "
        f"WHEN starts_with({text}, '{{\"') THEN '{{' || {front} || ',' || substr({text}, 2) "
        f"WHEN starts_with({given}, '{{') THEN {spliced} ELSE {text} END"
    )


def _has(field: PromotedField, text: str) -> str:
    """Return the condition that a text spells the value of a field that its column has."""
    return f"(contains({text}, {quote_text(field.member)}) AND TRY(json_exists({text}, {_path(field)})))"


def without_keys(text: str, keys: Collection[str]) -> str:
    """Return the SQL of a shown text without some keys, also in the objects where `properties` keeps other values.

    Other members are written again, as DuckDB reads them. A text that names a key and is not JSON is null.
    """
    names = sorted({orjson.dumps(key).decode() for key in keys})
    named = " OR ".join(f"contains({text}, {quote_text(name)})" for name in [*names, "\\u", "\\/"])
    path = """'$."' || replace(replace(k, '\\', '\\\\'), '"', '\\"') || '"'"""
    member = f"json_extract({text}, {path})"
    listed = ", ".join(quote_text(key) for key in sorted(keys))
    aside = " OR ".join(f"contains(CAST({member} AS VARCHAR), {quote_text(name)})" for name in names)
    kept = f"NOT (k IN ({listed}) OR (regexp_full_match(k, '_+(event|properties)') AND ({aside})))"
    members = f"list_transform(list_filter(json_keys({text}), lambda k: {kept}), lambda k: {_written('k', member)})"
    whole = f"'{{' || array_to_string({members}, ',') || '}}'"
    return (
        f"CASE WHEN NOT ({named}) THEN {text} WHEN TRY(json_type({text})) IS NULL THEN NULL "
        f"WHEN json_type({text}) <> 'OBJECT' THEN {text} ELSE {whole} END"
    )


def _written(key: str, value: str) -> str:
    return f"CAST(to_json({key}) AS VARCHAR) || ':' || CAST({value} AS VARCHAR)"


def unread(kind: str) -> str:
    """Return an expression of a type that leaves a value to this library."""
    return f"CAST(error({quote_text(UNREAD)}) AS {kind})"


def _path(field: PromotedField) -> str:
    """Return the JSON path of a field. DuckDB reads two escapes in a path, and all other characters as they are."""
    key = field.key.replace("\\", "\\\\").replace('"', '\\"')
    return quote_text(f'$."{key}"')


def _read(field: PromotedField, text: str, name: str) -> str:
    """Return the value that a text has for a field, as ingestion would store it; null where there is none that fits."""
    path = _path(field)
    kind, sent = f"json_type({text}, {path})", f"({text} ->> {path})"
    return _guarded(field.kind, kind, sent, text, name)


def _guarded(kind: pa.DataType, json_type: str, sent: str, text: str, name: str) -> str:
    cases = _cases(kind, sent, text, name)
    whens = " ".join(
        f"WHEN TRY({json_type}) IN ({', '.join(map(quote_text, types))}) THEN {value}" for types, value in cases
    )
    return f"CASE {whens} ELSE CAST(NULL AS {name}) END"


_TEXT, _WHOLE, _FRACTION = ("VARCHAR",), ("BIGINT", "UBIGINT"), ("DOUBLE",)
Cases = list[tuple[tuple[str, ...], str]]


def _cases(kind: pa.DataType, sent: str, text: str, name: str) -> Cases:
    """Return the SQL of the column's value for values of some JSON types, by DuckDB's names; others give null."""
    if pa.types.is_string(kind):
        return [(_TEXT, sent)]
    if pa.types.is_boolean(kind):
        return [(("BOOLEAN",), f"CAST({sent} AS BOOLEAN)")]
    if pa.types.is_integer(kind):
        return [(_WHOLE, f"TRY_CAST({sent} AS {name})"), (_FRACTION, _whole(sent, text, name))]
    if pa.types.is_floating(kind):
        return [(_WHOLE, _inexact(sent, text, kind, name)), (_FRACTION, _inexact(sent, text, kind, name))]
    if isinstance(kind, pa.Decimal128Type):
        return [
            (_WHOLE, _decimal(sent, text, kind.scale, name)),
            (_FRACTION + _TEXT, _decimal(sent, text, kind.scale, name)),
        ]
    if pa.types.is_date(kind):
        day = f"regexp_full_match({sent}, {quote_text(r'[0-9]{4}-[0-9]{2}-[0-9]{2}')})"
        return [(_TEXT, f"CASE WHEN {day} AND NOT starts_with({sent}, '0000') THEN TRY_CAST({sent} AS DATE) END")]
    if pa.types.is_timestamp(kind):
        plain = _PLAIN_TIME + (_OFFSET if kind.tz else "")
        value = (
            f"CASE WHEN regexp_full_match({sent}, {quote_text(plain)}) AND NOT starts_with({sent}, '{_LAST_YEAR}') "
            f"THEN TRY_CAST({sent} AS {name}) WHEN NOT regexp_matches({sent}, '[0-9]') THEN NULL "
            f"ELSE {unread(name)} END"
        )
        return [(_TEXT, value), *([(_WHOLE, _epoch(sent, name)), (_FRACTION, unread(name))] if kind.tz else [])]
    if pa.types.is_binary(kind):
        base64 = f"regexp_full_match({sent}, '[A-Za-z0-9+/]*={{0,2}}') AND length({sent}) % 4 = 0"
        return [(_TEXT, f"CASE WHEN {base64} THEN TRY(from_base64({sent})) END")]
    return [(("OBJECT", "ARRAY"), unread(name))]


def _whole(sent: str, text: str, name: str) -> str:
    return (
        f"CASE WHEN regexp_full_match({sent}, '-?[0-9]+') OR NOT regexp_matches({sent}, '^-?[0-9]') THEN NULL "
        f"WHEN regexp_matches({text}, {quote_text(_DIGITS)}) THEN {unread(name)} "
        f"WHEN CAST({sent} AS DOUBLE) = trunc(CAST({sent} AS DOUBLE)) THEN TRY_CAST(CAST({sent} AS DOUBLE) AS {name}) "
        "END"
    )


def _inexact(sent: str, text: str, kind: pa.DataType, name: str) -> str:
    number = f"CAST({sent} AS DOUBLE)"
    value = number
    if pa.types.is_float32(kind):
        nearest = f"CAST(TRY_CAST({number} AS FLOAT) AS DOUBLE)"
        fits = " OR ".join(
            f"CAST(format('{{:.{digits}g}}', {nearest}) AS DOUBLE) = {number}" for digits in (6, 7, 8, 9)
        )
        value = f"CASE WHEN {nearest} = {number} OR {fits} THEN TRY_CAST({number} AS FLOAT) END"
    return (
        f"CASE WHEN NOT regexp_matches({sent}, '^-?[0-9]') THEN NULL "
        f"WHEN regexp_matches({text}, {quote_text(_DIGITS)}) THEN {unread(name)} ELSE {value} END"
    )


def _decimal(sent: str, text: str, scale: int, name: str) -> str:
    plain = f"regexp_full_match({sent}, {quote_text(r'-?[0-9]{1,38}(?:[.][0-9]{1,38})?')})"
    fraction = rf"length(regexp_extract({sent}, '[.]([0-9]*?)0*$', 1)) <= {scale}"
    return (
        f"CASE WHEN NOT regexp_matches({sent}, '^-?[0-9]') THEN NULL "
        f"WHEN NOT {plain} OR regexp_matches({text}, {quote_text(_DIGITS)}) THEN {unread(name)} "
        f"WHEN {fraction} THEN TRY_CAST({sent} AS {name}) END"
    )


def _epoch(sent: str, name: str) -> str:
    number = f"TRY_CAST({sent} AS BIGINT)"
    whens = " ".join(
        f"WHEN abs({number}) < {limit} THEN make_timestamptz({number} * {scale})" for limit, scale in _SCALES_US
    )
    return f"CASE WHEN {number} IS NULL OR {number} < 0 OR {number} > {10**17} THEN {unread(name)} {whens} END"


def json_sql(value: str, kind: pa.DataType, depth: int = 0) -> str:
    """Return the SQL of a value as JSON text, like in results; null for null, and for NaN and infinity."""
    if pa.types.is_floating(kind):
        return f"CASE WHEN isfinite({value}) THEN CAST(to_json(CAST({value} AS DOUBLE)) AS VARCHAR) END"
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind) or pa.types.is_decimal(kind):
        return f"CAST({value} AS VARCHAR)"
    if pa.types.is_binary(kind):
        return f"'\"' || to_base64({value}) || '\"'"
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        zone = "Z" if pa.types.is_timestamp(kind) and kind.tz else ""
        moment = f"make_timestamp(epoch_us({value}))" if pa.types.is_timestamp(kind) else value
        shown = f"'\"' || replace(CAST({moment} AS VARCHAR), ' ', 'T') || '{zone}\"'"
        known = f"year({moment}) BETWEEN 1 AND 9999"
        return f"CASE WHEN {value} IS NULL THEN NULL WHEN {known} THEN {shown} ELSE {unread('VARCHAR')} END"
    if pa.types.is_nested(kind):
        return f"CASE WHEN {value} IS NOT NULL THEN {_nested(value, kind, depth)} END"
    return f"CAST(to_json({value}) AS VARCHAR)"


def _nested(value: str, kind: pa.DataType, depth: int) -> str:
    """Return the SQL of a list, struct or map as JSON text; `depth` is how many lists and maps it is in."""

    def part(of: str, inner: pa.DataType) -> str:
        return f"coalesce({json_sql(of, inner, depth + 1)}, 'null')"

    item = f"e{depth}"
    if pa.types.is_struct(kind):
        members = [
            f"{quote_text(orjson.dumps(field.name).decode() + ':')} || "
            + part(f"struct_extract({value}, {quote_text(field.name)})", field.type)
            for field in kind.fields
        ]
        return "'{' || " + " || ',' || ".join(members) + " || '}'"
    if pa.types.is_map(kind):
        if not pa.types.is_string(kind.key_type):
            return unread("VARCHAR")
        entry = f"CAST(to_json({item}.key) AS VARCHAR) || ':' || {part(f'{item}.value', kind.item_type)}"
        return f"'{{' || array_to_string(list_transform(map_entries({value}), lambda {item}: {entry}), ',') || '}}'"
    element = part(item, kind.field(0).type)
    return f"'[' || array_to_string(list_transform({value}, lambda {item}: {element}), ',') || ']'"
