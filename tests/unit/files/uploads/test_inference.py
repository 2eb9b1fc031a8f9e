"""The types that are inferred lose nothing: whatever a column holds, its values give the text back."""

from __future__ import annotations

import io
import json
import math
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alluvia.delta.schema.types import type_name
from alluvia.errors import Invalid
from alluvia.files.file_text import buffered
from alluvia.files.json_rows import JsonRows
from alluvia.files.limits import NAMES_MAX, Misfit
from alluvia.files.text_values import TextType, typed
from alluvia.files.uploads.schemas import declared_schema
from alluvia.json_values.jsontext import ExactNumber, exact_number

NUMBERS = ["0", "-0", "7", "007", "+5", "-12", "9223372036854775807", "9223372036854775808", "1.5", "1.50", ".5", "5."]
NUMBERS += ["1e5", "1E-400", "1e400", "0.1", "12345678901234567.89", "9007199254740993", "NaN", "inf", " 1", "1 "]
TIMES = ["2026-01-02", "2026-02-30", "0000-01-01", "2026-01-02T03:04:05Z", "2026-01-02 03:04:05.123456+02:00"]
TIMES += ["2026-01-02T03:04:05", "2026-01-02T03:04:05.1234567", "2026-01-02T24:00:00", "20260102", "2026-1-2"]
WORDS = ["true", "False", "TRUE", "t", "yes", "NA", "null", "", "x", "é", "1,5", "0x10"]
TEXTS = st.sampled_from([*NUMBERS, *TIMES, *WORDS]) | st.from_regex(r"-?[0-9]{1,19}(\.[0-9]{1,3})?", fullmatch=True)


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        (["1", "-20", ""], pa.int64()),
        (["9223372036854775807", "-9223372036854775808"], pa.int64()),
        (["9223372036854775808"], pa.string()),
        (["007"], pa.string()),
        (["1", "007"], pa.string()),
        (["+5"], pa.string()),
        (["-0"], pa.float64()),
        (["1", "2.50"], pa.float64()),
        (["9007199254740993", "0.5"], pa.string()),
        (["0.30000000000000004"], pa.float64()),
        (["12345678901234567.89"], pa.string()),
        (["1e400"], pa.string()),
        (["true", "FALSE", None], pa.bool_()),
        (["true", "1"], pa.string()),
        (["2026-01-02"], pa.date32()),
        (["2026-02-30"], pa.string()),
        (["2026-01-02T03:04:05Z", "2026-01-02 03:04:05.5+01:00"], pa.timestamp("us", "UTC")),
        (["2026-01-02T03:04:05Z", "2026-01-02T03:04:05"], pa.string()),
        (["2026-01-02T03:04", "2026-01-02 03:04:05"], pa.timestamp("us")),
        (["2026-01-02T03:04:05.1234567Z"], pa.string()),
        ([None, ""], pa.string()),
        (["NaN"], pa.string()),
        (["0000-01-01", "0000-01-01"], pa.string()),
        (["0000-12-31 10:00"], pa.string()),
        (["0001-01-01", "9999-12-31"], pa.date32()),
    ],
)
def test_types_of_texts(texts: list[str | None], kind: pa.DataType) -> None:
    column = TextType()
    column.see(pa.array(texts, pa.string()))
    assert column.kind() == kind


@given(st.lists(TEXTS, min_size=1, max_size=6), st.integers(1, 6))
def test_an_inferred_type_holds_every_text(texts: list[str], cut: int) -> None:
    """Whatever is inferred from all, in however many batches, each value says what its text said."""
    column = TextType()
    column.see(pa.array(texts[:cut], pa.string()))
    column.see(pa.array(texts[cut:], pa.string()))
    kind = column.kind()
    array, reasons = typed(pa.array(texts, pa.string()), pa.field("a", kind))
    assert not reasons
    for text, value in zip(texts, array.to_pylist(), strict=True):
        assert _says(kind)(value, text), (kind, text, value)


def _says(kind: pa.DataType) -> Callable[[Any, str], bool]:
    def holds(value: Any, text: str) -> bool:
        if pa.types.is_string(kind):
            return bool(value == text)
        text = text.strip()
        if not text:
            return value is None
        if pa.types.is_boolean(kind):
            return bool(str(value).lower() == text.lower())
        if pa.types.is_int64(kind):
            return bool(str(value) == text)
        if pa.types.is_float64(kind):
            return Decimal(repr(value)) == Decimal(text) and math.isfinite(value)
        shown = value.isoformat()
        return bool(shown == text or shown[:10] in text or value.utcoffset() is not None)

    return holds


def _rows(data: bytes) -> JsonRows:
    return JsonRows(lambda: buffered(iter([data])), NAMES_MAX)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (b'{"a": 1}\n{"a": null}\n{"b": 1}', "long"),
        (b'{"a": 1}\n{"a": 1.5}', "double"),
        (b'{"a": 9007199254740993}\n{"a": 0.5}', "decimal(17,1)"),
        (b'{"a": 9223372036854775808}', "decimal(19,0)"),
        (b'{"a": 9223372036854775809}', "decimal(19,0)"),
        (b'{"a": 0.12345678901234567890}', "decimal(21,20)"),
        (b'{"a": "2026-01-02"}', "date"),
        (b'{"a": "2026-01-02"}\n{"a": "x"}', "string"),
        (b'{"a": "1"}', "string"),
        (b'{"a": true}', "boolean"),
        (b'{"a": {"x": 1}}\n{"a": {"y": "z"}}', "struct<x:long,y:string>"),
        (b'{"a": [1, null]}\n{"a": []}', "array<long>"),
        (b'{"a": []}', "array<string>"),
        (b'{"a": null}', "string"),
        (b'{"a": ""}\n{"a": "2026-01-02"}', "string"),
        (b'{"a": ["", "2026-01-02"]}', "array<string>"),
    ],
)
def test_types_of_json(text: bytes, kind: str) -> None:
    rows = _rows(text)
    schema = rows.schema({})
    assert type_name(schema.field("a").type) == kind
    assert sum(table.num_rows for table in rows.tables(schema)) == len(text.splitlines())


def _nested(depth: int) -> str:
    """Return a schema of arrays in arrays."""
    inner = '"long"'
    for _ in range(depth):
        inner = f'{{"type": "array", "containsNull": true, "elementType": {inner}}}'
    return f'{{"fields": [{{"name": "a", "type": {inner}, "nullable": true, "metadata": {{}}}}]}}'


DELTA = (
    '{"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": true, "metadata": {}},'
    ' {"name": "b", "type": "decimal(9,2)", "nullable": true, "metadata": {}}]}'
)
ARROW = (
    '{"fields": [{"name": "a", "type": {"name": "int", "bitWidth": 64, "isSigned": true}, "nullable": true},'
    ' {"name": "b", "type": {"name": "decimal", "precision": 9, "scale": 2}}]}'
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["", "x", "2026-01-02", "2026-01-02T03:04:05Z"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("xyz"), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


@given(st.lists(JSON, min_size=1, max_size=4))
def test_json_of_any_kind_is_held_exactly_or_refused(values: list[object]) -> None:
    data = b"\n".join(_dumped({"k": 1, "a": value}) for value in values)
    rows = _rows(data)
    try:
        schema = rows.schema({})
    except Misfit:
        return
    found = [value for table in rows.tables(schema) for value in table["a"].to_pylist()]
    wanted = [_same(value, _plain(got)) for value, got in zip(values, found, strict=True)]
    assert [_plain(value) for value in found] == wanted


def _dumped(value: object) -> bytes:
    return json.dumps(value).encode()


def _plain(value: Any) -> Any:
    """Return a value without the nulls of a struct's missing fields; times as JSON's text had them."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if hasattr(value, "isoformat"):
        return value.isoformat().replace("+00:00", "Z")
    return value


def _same(value: Any, got: Any) -> Any:
    """Return the JSON value as the column should hold it: the same numbers in whatever type."""
    if isinstance(value, dict):
        kept = {name: each for name, each in value.items() if each is not None}
        return {name: _same(each, got.get(name)) for name, each in kept.items()} if isinstance(got, dict) else kept
    if isinstance(value, list) and isinstance(got, list) and len(value) == len(got):
        return [_same(each, other) for each, other in zip(value, got, strict=True)]
    if isinstance(value, (int, float)) and not isinstance(value, bool) and isinstance(got, (int, float, Decimal)):
        exact = exact_number(str(value)) if isinstance(value, int) else value
        text = exact.text if isinstance(exact, ExactNumber) else repr(exact)
        return got if Decimal(text) == Decimal(repr(got) if isinstance(got, float) else got) else value
    return value


@pytest.mark.parametrize(
    "text",
    [
        "a:long,b:decimal(9,2)",
        "a:bigint\nb:numeric(9,2)\n",
        '{"a": "long", "b": "decimal(9, 2)"}',
        DELTA,
        ARROW,
    ],
)
def test_declared_schemas(text: str) -> None:
    assert declared_schema(text) == pa.schema([("a", pa.int64()), ("b", pa.decimal128(9, 2))])


def test_nested_types_are_declared_as_the_answer_names_them() -> None:
    text = "tags:array<string>, x:y:struct<a:long,b:map<string,decimal(5,2)>>\nn:long"
    inner = pa.struct([("a", pa.int64()), ("b", pa.map_(pa.string(), pa.decimal128(5, 2)))])
    expected = pa.schema([("tags", pa.list_(pa.string())), ("x:y", inner), ("n", pa.int64())])
    assert declared_schema(text) == expected


WORDS_OF_SCHEMAS = [
    "name",
    "type",
    "fields",
    "nullable",
    "metadata",
    "elementType",
    "containsNull",
    "keyType",
    "bitWidth",
]
TYPES_OF_SCHEMAS = ["struct", "array", "map", "long", "decimal", "int", "utf8", "floatingpoint", "a", ""]
SCHEMA_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-1, 64) | st.floats(allow_nan=False) | st.sampled_from(TYPES_OF_SCHEMAS),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(WORDS_OF_SCHEMAS), inner, max_size=4)
        | st.fixed_dictionaries({"name": inner, "type": inner})
        | st.fixed_dictionaries({"fields": st.lists(inner, max_size=2)})
    ),
    max_leaves=8,
)


@settings(max_examples=200)
@given(SCHEMA_JSON)
def test_a_schema_of_any_json_is_one_or_is_refused(value: object) -> None:
    for text in (json.dumps(value), json.dumps({"fields": [{"name": "a", "type": value}]}), json.dumps({"a": value})):
        with suppress(Invalid):
            assert len(declared_schema(text))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            '{"fields": [{"name": "a", "type": {"name": "int", "bitWidth": [64]}}]}',
            'schema: column \'a\': the type {"name":"int","bitWidth":[64]} is not supported',
        ),
        ('{"fields": [{"name": "a", "type": {"name": "decimal", "precision": {}}}]}', "schema: unknown type "),
        ('{"a": "decimal(' + "9" * 5000 + ',1)"}', "schema: "),
        ("a:decimal(" + "9" * 5000 + ",1)", "schema: "),
        ("\ud800:long", "schema: "),
        (_nested(17), "schema: column a is nested more than 16 levels deep: flatten it, or make it JSON text"),
        (_nested(900), "schema: column a is nested more than 16 levels deep: flatten it, or make it JSON text"),
        ("{", "schema: "),
    ],
    ids=range(8),
)
def test_schemas_that_are_none(text: str, error: str) -> None:
    with pytest.raises(Invalid) as found:
        declared_schema(text)
    assert str(found.value).startswith(error)
    assert len(str(found.value)) < 1000


def test_a_stream_is_read_anew_for_each_pass() -> None:
    opened = []

    def open_text() -> io.BufferedReader:
        opened.append(1)
        return buffered(iter([b'{"a": 1}\n', b'{"a": 2}\n']))

    rows = JsonRows(open_text, NAMES_MAX)
    assert sum(map(len, rows.tables(rows.schema({})))) == 2
    assert len(opened) == 2
