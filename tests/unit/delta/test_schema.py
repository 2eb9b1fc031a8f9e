from __future__ import annotations

import orjson
import pyarrow as pa
import pytest

from alluvia.delta.schema.serialization import (
    add_fields,
    arrow_schema,
    normal_schema,
    only_adds_nullable,
    parse_type,
    schema_string,
    uses_type,
)
from alluvia.delta.schema.types import type_name
from alluvia.errors import Corrupt, Invalid, Unsupported

PRIMITIVES = [
    ("string", pa.string()),
    ("long", pa.int64()),
    ("integer", pa.int32()),
    ("short", pa.int16()),
    ("byte", pa.int8()),
    ("float", pa.float32()),
    ("double", pa.float64()),
    ("boolean", pa.bool_()),
    ("binary", pa.binary()),
    ("date", pa.date32()),
    ("timestamp", pa.timestamp("us", tz="UTC")),
    ("timestamp_ntz", pa.timestamp("us")),
    ("decimal(10,2)", pa.decimal128(10, 2)),
    ("decimal(38,38)", pa.decimal128(38, 38)),
    ("decimal(1,0)", pa.decimal128(1, 0)),
]
NESTED = [
    (
        {"type": "array", "elementType": "long", "containsNull": True},
        pa.list_(pa.field("element", pa.int64(), nullable=True)),
    ),
    (
        {"type": "array", "elementType": "long", "containsNull": False},
        pa.list_(pa.field("element", pa.int64(), nullable=False)),
    ),
    (
        {"type": "map", "keyType": "string", "valueType": "date", "valueContainsNull": False},
        pa.map_(pa.string(), pa.field("value", pa.date32(), nullable=False)),
    ),
    (
        {
            "type": "struct",
            "fields": [
                {"name": "a", "type": "string", "nullable": False, "metadata": {}},
                {
                    "name": "b",
                    "type": {
                        "type": "array",
                        "elementType": {
                            "type": "map",
                            "keyType": "string",
                            "valueType": "decimal(5,1)",
                            "valueContainsNull": True,
                        },
                        "containsNull": True,
                    },
                    "nullable": True,
                    "metadata": {},
                },
            ],
        },
        pa.struct(
            [
                pa.field("a", pa.string(), nullable=False),
                pa.field("b", pa.list_(pa.field("element", pa.map_(pa.string(), pa.decimal128(5, 1))))),
            ]
        ),
    ),
]


def whole(*fields: object) -> str:
    return orjson.dumps({"type": "struct", "fields": fields}).decode()


def one(kind: object, *, nullable: bool = True) -> str:
    return whole({"name": "c", "type": kind, "nullable": nullable, "metadata": {}})


@pytest.mark.parametrize(("delta", "arrow"), [*PRIMITIVES, *NESTED])
@pytest.mark.parametrize("nullable", [True, False])
def test_every_type_goes_both_ways(delta: object, arrow: pa.DataType, *, nullable: bool) -> None:
    schema = pa.schema([pa.field("c", arrow, nullable)])
    assert orjson.loads(schema_string(schema)) == orjson.loads(one(delta, nullable=nullable))
    assert arrow_schema(one(delta, nullable=nullable)).equals(schema)


@pytest.mark.parametrize(
    ("given", "becomes"),
    [
        (pa.large_string(), pa.string()),
        (pa.dictionary(pa.int32(), pa.string()), pa.string()),
        (pa.string_view(), pa.string()),
        (pa.large_binary(), pa.binary()),
        (pa.binary_view(), pa.binary()),
        (pa.binary(16), pa.binary()),
        (pa.uint8(), pa.int16()),
        (pa.uint16(), pa.int32()),
        (pa.uint32(), pa.int64()),
        (pa.float16(), pa.float32()),
        (pa.date64(), pa.date32()),
        (pa.timestamp("ns", tz="Europe/Berlin"), pa.timestamp("us", tz="UTC")),
        (pa.timestamp("s"), pa.timestamp("us")),
        (pa.large_list(pa.int64()), pa.list_(pa.field("element", pa.int64()))),
        (pa.list_(pa.int64(), 3), pa.list_(pa.field("element", pa.int64()))),
    ],
)
def test_arrows_variants_become_the_one_type_that_delta_has(given: pa.DataType, becomes: pa.DataType) -> None:
    assert normal_schema(pa.schema([("c", given)])).field("c").type.equals(becomes)


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (pa.null(), "column c: all its values are null"),
        (pa.uint64(), "column c: Delta has no type for uint64"),
        (pa.time64("us"), "column c: "),
        (pa.duration("us"), "column c: "),
        (pa.decimal256(50, 2), "column c: "),
        (pa.decimal128(10, -2), "column c: "),
        (pa.struct([("a", pa.uint64())]), "column c.a: "),
        (pa.list_(pa.uint64()), "column c.element: "),
        (pa.map_(pa.string(), pa.uint64()), "column c.value: "),
        (pa.struct([]), "column c: a struct needs"),
    ],
)
def test_a_type_that_delta_lacks_is_refused_by_column(kind: pa.DataType, named: str) -> None:
    with pytest.raises(Invalid, match=named):
        schema_string(pa.schema([("c", kind)]))


@pytest.mark.parametrize("names", [[""], ["a", "A"], ["a", "a"], [" "], ["\t"]])
def test_column_names_that_are_empty_or_repeated_are_refused(names: list[str]) -> None:
    fields = [pa.field(name, pa.int64()) for name in names]
    with pytest.raises(Invalid, match="column name"):
        schema_string(pa.schema(fields))
    with pytest.raises(Invalid, match="column name"):
        schema_string(pa.schema([("s", pa.struct(fields))]))


def test_a_schema_needs_a_column() -> None:
    with pytest.raises(Invalid, match="at least one column"):
        schema_string(pa.schema([]))


@pytest.mark.parametrize(
    ("text", "error", "named"),
    [
        ("", Corrupt, "schemaString"),
        ("{}", Corrupt, "schemaString"),
        (whole({"name": "c", "type": "long"}), Corrupt, "nullable"),
        (one("interval"), Unsupported, "column c has the type 'interval'"),
        (one("decimal(39,0)"), Unsupported, "column c"),
        (one({"type": "udt", "fields": []}), Unsupported, "column c has the type 'udt'"),
        (one({"type": "array", "elementType": "geometry", "containsNull": True}), Unsupported, "geometry"),
    ],
)
def test_a_schema_that_cannot_be_read_says_why(text: str, error: type[Exception], named: str) -> None:
    with pytest.raises(error, match=named):
        arrow_schema(text)


def test_a_type_by_name() -> None:
    assert parse_type("decimal( 12 , 3 )") == pa.decimal128(12, 3)
    assert parse_type("INT") == parse_type("integer") == pa.int32()
    for kind in (
        pa.list_(pa.int64()),
        pa.map_(pa.string(), pa.decimal128(5, 2)),
        pa.struct([("a", pa.int64()), ("b c", pa.list_(pa.struct([("d", pa.map_(pa.string(), pa.date32()))])))]),
    ):
        assert parse_type(type_name(kind)) == kind
        assert parse_type(f" {type_name(kind).replace(',', ' , ')} ") == kind
    assert parse_type("ARRAY<VARCHAR>") == pa.list_(pa.string())
    deep = parse_type("array<" * 16 + "long" + ">" * 16)
    assert type_name(deep).count("array") == 16
    with pytest.raises(Invalid, match="more than 16 levels deep"):
        parse_type("array<" * 5000 + "long" + ">" * 5000)
    nested = ("array<>", "array<int8>", "array<long,long>", "map<long>", "struct<a>", "struct<:long>", "struct<>")
    for unknown in ("int8", "decimal", "decimal(0,0)", "decimal(5,6)", "array<long", "", *nested):
        with pytest.raises(Invalid, match="unknown type"):
            parse_type(unknown)


def test_columns_are_added_at_the_end_and_metadata_stays() -> None:
    field = {"name": "a", "type": "long", "nullable": False, "metadata": {"comment": "kept"}}
    added = add_fields(whole(field), pa.schema([("b", pa.string())]))
    assert orjson.loads(added)["fields"] == [field, {"name": "b", "type": "string", "nullable": True, "metadata": {}}]
    with pytest.raises(Invalid, match="column b must be nullable"):
        add_fields(whole(field), pa.schema([pa.field("b", pa.string(), nullable=False)]))
    with pytest.raises(Invalid, match="'A' is repeated"):
        add_fields(whole(field), pa.schema([("A", pa.string())]))


def test_what_counts_as_only_adding_nullable_columns() -> None:
    a, b = ({"name": name, "type": "long", "nullable": True, "metadata": {}} for name in "ab")
    needed = {**b, "nullable": False}
    assert only_adds_nullable(whole(a), whole(a))
    assert only_adds_nullable(whole(a), whole(a, b))
    assert not only_adds_nullable(whole(a), whole(a, needed))
    assert not only_adds_nullable(whole(a), whole(b, a))
    assert not only_adds_nullable(whole(a, b), whole(a))
    assert not only_adds_nullable(whole(a), whole({**a, "type": "string"}))
    assert not only_adds_nullable(whole(a), whole({**a, "nullable": False}))


def test_a_type_is_found_wherever_it_stands_and_not_in_names() -> None:
    def used(kind: pa.DataType) -> bool:
        return uses_type(schema_string(pa.schema([("timestamp_ntz", kind)])), "timestamp_ntz")

    ntz = pa.timestamp("us")
    assert not used(pa.string())
    assert not used(pa.timestamp("us", tz="UTC"))
    for kind in (ntz, pa.list_(ntz), pa.map_(pa.string(), ntz), pa.map_(ntz, pa.string()), pa.struct([("a", ntz)]),
                 pa.list_(pa.struct([("a", pa.list_(ntz))]))):  # fmt: skip
        assert used(kind)
