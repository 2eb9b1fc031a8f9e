"""Answers to tools that explore a lake: its tables, views and types, as the caller may see them.

Tables without a schema are in `main`, as in SQL. Filters may name the one catalog, `memory`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from alluvia.delta.schema.types import type_name
from alluvia.engine.queries.tokens import TEXT_LIMIT_BYTES
from alluvia.errors import Invalid, TableNotFound
from alluvia.flight.handles import HELD_MS_MAX
from alluvia.flight.messages import Message
from alluvia.operations.catalog.catalog import Catalog, shows_comments
from alluvia.operations.catalog.schemas import visible_schemas
from alluvia.operations.catalog.views import VIEWS, View
from alluvia.query.permitted import visible_schema
from alluvia.table_names import DATABASE, in_order, name_in_schema, schema_of
from alluvia.table_names import SCHEMA as MAIN_SCHEMA
from alluvia.version import __version__

SCHEMA = pa.schema(
    [
        pa.field("info_name", pa.uint32(), nullable=False),
        pa.field(
            "value",
            pa.dense_union(
                [
                    pa.field("string_value", pa.string()),
                    pa.field("bool_value", pa.bool_()),
                    pa.field("bigint_value", pa.int64()),
                    pa.field("int32_bitmask", pa.int32()),
                    pa.field("string_list", pa.list_(pa.string())),
                    pa.field("int32_to_int32_list_map", pa.map_(pa.int32(), pa.list_(pa.int32()))),
                ]
            ),
            nullable=False,
        ),
    ]
)
_STRING, _BOOL, _BIGINT, _INT32, _LIST, _MAP = range(6)
_CASE_INSENSITIVE, _NULLS_AT_END, _FULL_OUTER_JOINS, _SERIALIZABLE, _FORWARD_ONLY, _TRANSACTIONS = 1, 3, 2, 4, 1, 1

_TRUE = (4, 9, 11, 506, 515, 516, 518, 520, 521, 523, 524, 539, 563, 572, 574)
_FALSE = (5, 500, 501, 519, 527, 532, 536, 537, 556, 565, 566, 573, 575, 576)
_TEXTS = {
    0: "Alluvia", 1: __version__, 2: pa.__version__, 504: '"', 513: "\\", 514: "",
    529: "schema", 530: "", 531: "",  # nothing is called a procedure or a catalog
}  # fmt: skip
_LISTS = (508, 509, 510, 511, 512)
_NUMBERS = {
    8: _TRANSACTIONS, 100: HELD_MS_MAX, 101: HELD_MS_MAX,
    503: _CASE_INSENSITIVE, 505: _CASE_INSENSITIVE, 507: _NULLS_AT_END,
    522: 0b11, 525: 0b11, 526: 0b1, 528: _FULL_OUTER_JOINS, 533: 0, 534: 0, 535: 0, 538: 0b1111, 540: 0b11,
    564: 1 << _SERIALIZABLE, 567: 1 << _FORWARD_ONLY, 568: 0, 569: 0b10, 570: 0, 571: 0,
}  # fmt: skip
_UNLIMITED = (*range(541, 556), 558, 560, 561)
_SIZES = {
    **dict.fromkeys(_UNLIMITED, 0),
    557: TEXT_LIMIT_BYTES,
    559: 128,
    562: _SERIALIZABLE,  # FlightSql.proto has an int32, the drivers and servers of Apache Arrow this
}
_READ_ONLY, _INGESTS, _DDL_TABLE, _CONVERT = 3, 10, 502, 517


def sql_info(wanted: Iterable[int], *, allow_writes: bool) -> pa.RecordBatch:
    """Return what is wanted, by number; all where that is nothing. Numbers of which nothing is known are left out."""
    known: dict[int, tuple[int, Any]] = {
        **{number: (_STRING, value) for number, value in _TEXTS.items()},
        **dict.fromkeys(_TRUE, (_BOOL, True)),
        **dict.fromkeys(_FALSE, (_BOOL, False)),
        **{number: (_BIGINT, value) for number, value in _SIZES.items()},
        **{number: (_INT32, value) for number, value in _NUMBERS.items()},
        **dict.fromkeys(_LISTS, (_LIST, [])),
        _READ_ONLY: (_BOOL, not allow_writes),
        **dict.fromkeys((_INGESTS, _DDL_TABLE), (_BOOL, allow_writes)),
        _CONVERT: (_MAP, []),
    }
    asked = list(dict.fromkeys(wanted)) or sorted(known)
    return _batch({number: known[number] for number in asked if number in known})


def _batch(infos: Mapping[int, tuple[int, Any]]) -> pa.RecordBatch:
    kind = SCHEMA.field("value").type
    children: list[list[Any]] = [[] for _ in range(kind.num_fields)]
    kinds, offsets = [], []
    for type_code, value in infos.values():
        kinds.append(type_code)
        offsets.append(len(children[type_code]))
        children[type_code].append(value)
    values = pa.UnionArray.from_dense(
        pa.array(kinds, pa.int8()),
        pa.array(offsets, pa.int32()),
        [pa.array(child, kind.field(at).type) for at, child in enumerate(children)],
        [kind.field(at).name for at in range(kind.num_fields)],
    )
    return pa.RecordBatch.from_arrays([pa.array(list(infos), pa.uint32()), values], schema=SCHEMA)


TABLE, VIEW = "TABLE", "VIEW"
TABLES_AT_ONCE = 100
_PREFIX = "ARROW:FLIGHT:SQL:"
_TEXT, _NUMBER = pa.string(), pa.int32()


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


CATALOGS = pa.schema([_required("catalog_name", _TEXT)])
DB_SCHEMAS = pa.schema([("catalog_name", _TEXT), _required("db_schema_name", _TEXT)])
TABLE_TYPES = pa.schema([_required("table_type", _TEXT)])
TABLES = pa.schema(
    [
        *(("catalog_name", _TEXT), ("db_schema_name", _TEXT)),
        *(_required("table_name", _TEXT), _required("table_type", _TEXT)),
    ]
)
TABLES_WITH_COLUMNS = TABLES.append(_required("table_schema", pa.binary()))
PRIMARY_KEYS = pa.schema(
    [
        *(("catalog_name", _TEXT), ("db_schema_name", _TEXT)),
        *(_required("table_name", _TEXT), _required("column_name", _TEXT)),
        *(("key_name", _TEXT), _required("key_sequence", _NUMBER)),
    ]
)
FOREIGN_KEYS = pa.schema(
    [
        *(("pk_catalog_name", _TEXT), ("pk_db_schema_name", _TEXT)),
        *(_required("pk_table_name", _TEXT), _required("pk_column_name", _TEXT)),
        *(("fk_catalog_name", _TEXT), ("fk_db_schema_name", _TEXT)),
        *(_required("fk_table_name", _TEXT), _required("fk_column_name", _TEXT)),
        *(_required("key_sequence", _NUMBER), ("fk_key_name", _TEXT), ("pk_key_name", _TEXT)),
        *(_required("update_rule", pa.uint8()), _required("delete_rule", pa.uint8())),
    ]
)
TYPES = pa.schema(
    [
        *(_required("type_name", _TEXT), _required("data_type", _NUMBER), ("column_size", _NUMBER)),
        *(("literal_prefix", _TEXT), ("literal_suffix", _TEXT)),
        ("create_params", pa.list_(_required("item", _TEXT))),
        *(_required("nullable", _NUMBER), _required("case_sensitive", pa.bool_()), _required("searchable", _NUMBER)),
        *(
            ("unsigned_attribute", pa.bool_()),
            _required("fixed_prec_scale", pa.bool_()),
            ("auto_increment", pa.bool_()),
        ),
        *(("local_type_name", _TEXT), ("minimum_scale", _NUMBER), ("maximum_scale", _NUMBER)),
        *(_required("sql_data_type", _NUMBER), ("datetime_subcode", _NUMBER), ("num_prec_radix", _NUMBER)),
        ("interval_precision", _NUMBER),
    ]
)
_NULLABLE, _SEARCHABLE = 1, 3
_DATETIME = 9
_TYPE_ROWS = (  # name, number in JDBC, size, radix of a number, subcode of a time, quote of a literal
    ("BOOLEAN", -7, 1, None, None, None),
    ("TINYINT", -6, 3, 10, None, None),
    ("BIGINT", -5, 19, 10, None, None),
    ("BLOB", -3, None, None, None, "'"),
    ("DECIMAL", 3, 38, 10, None, None),
    ("INTEGER", 4, 10, 10, None, None),
    ("SMALLINT", 5, 5, 10, None, None),
    ("FLOAT", 7, 24, 2, None, None),
    ("DOUBLE", 8, 53, 2, None, None),
    ("VARCHAR", 12, None, None, None, "'"),
    ("DATE", 91, 10, None, 1, "'"),
    ("TIMESTAMP", 93, 26, None, 3, "'"),
    ("TIMESTAMP WITH TIME ZONE", 93, 32, None, 5, "'"),
)


def tables_schema(asked: Message) -> pa.Schema:
    """Return the columns of the answer to CommandGetTables."""
    return TABLES_WITH_COLUMNS if asked.include_schema else TABLES


def tables(asked: Message, catalog: Catalog, view_columns: Callable[[str], pa.Schema]) -> Iterator[pa.RecordBatch]:
    """Yield what CommandGetTables asks for, by names. `view_columns` returns the columns of a view, by its name."""
    schema = tables_schema(asked)
    types = set(asked.table_types) or {TABLE, VIEW}
    if not _is_our_catalog(asked):
        return
    kinds = {name: TABLE for name in catalog.tables() if TABLE in types and _is_asked(asked, name)}
    views: dict[str, View] = {}
    if VIEW in types:
        folders = (name for name in catalog.store.list_folders(VIEWS) if name not in kinds and _is_asked(asked, name))
        views = {name: view for name in folders if (view := catalog.find_view(name)) is not None}
        kinds |= dict.fromkeys(views, VIEW)
    names = in_order(kinds)
    for start in range(0, len(names), TABLES_AT_ONCE):
        part = names[start : start + TABLES_AT_ONCE]
        if asked.include_schema:
            snapshots = catalog.readable(name for name in part if kinds[name] == TABLE)
            part = [name for name in part if kinds[name] == VIEW or name in snapshots]
        rows: list[dict[str, Any]] = [
            {
                "catalog_name": None,
                "db_schema_name": schema_of(name),
                "table_name": name_in_schema(name),
                "table_type": kinds[name],
            }
            for name in part
        ]
        if asked.include_schema:
            for name, row in zip(part, rows, strict=True):
                columns = (
                    visible_schema(catalog, snapshots[name]) if name in snapshots else _or_nothing(view_columns, name)
                )
                source = snapshots[name] if name in snapshots else views[name]
                comments = source.column_comments if shows_comments(catalog, name) else {}
                row["table_schema"] = bytes(described(name_in_schema(name), columns, comments).serialize())
        yield pa.RecordBatch.from_pylist(rows, schema)


def described(table: str, schema: pa.Schema, comments: Mapping[str, str]) -> pa.Schema:
    """Return columns with what tools ask of each, as metadata."""
    fields = []
    for field in schema:
        told = {"REMARKS": comments[field.name]} if field.name in comments else {}
        told |= {"TABLE_NAME": table, "TYPE_NAME": type_name(field.type), "IS_SEARCHABLE": "1", "IS_READ_ONLY": "0"}
        if pa.types.is_decimal(field.type):
            told |= {"PRECISION": str(field.type.precision), "SCALE": str(field.type.scale)}
        fields.append(field.with_metadata({f"{_PREFIX}{name}": value for name, value in told.items()}))
    return pa.schema(fields)


def db_schemas(asked: Message, catalog: Catalog) -> pa.RecordBatch:
    """Return what CommandGetDbSchemas asks for, without a catalog: schemas in which the caller may do something."""
    names = visible_schemas(catalog) if _is_our_catalog(asked) else []
    rows = [{"catalog_name": None, "db_schema_name": name} for name in names if _is_asked_schema(asked, name)]
    return pa.RecordBatch.from_pylist(rows, DB_SCHEMAS)


def table_types() -> pa.RecordBatch:
    """Return the answer to CommandGetTableTypes."""
    return pa.RecordBatch.from_pydict({"table_type": [TABLE, VIEW]}, TABLE_TYPES)


def _is_our_catalog(asked: Message) -> bool:
    return asked.catalog in ("", DATABASE)


def _is_asked_schema(asked: Message, schema: str) -> bool:
    """Whether a filter lets a schema through. Tables in `main` are also those without a schema."""
    pattern = asked.db_schema_filter_pattern if asked.HasField("db_schema_filter_pattern") else "%"
    return like(schema, pattern) or (schema == MAIN_SCHEMA and like("", pattern))


def _is_asked(asked: Message, name: str) -> bool:
    pattern = asked.table_name_filter_pattern if asked.HasField("table_name_filter_pattern") else "%"
    return _is_asked_schema(asked, schema_of(name)) and like(name_in_schema(name), pattern)


def types(asked: Message) -> pa.RecordBatch:
    """Return what CommandGetXdbcTypeInfo asks for."""
    rows = [
        {
            "type_name": name,
            "data_type": number,
            "column_size": size,
            "literal_prefix": quote,
            "literal_suffix": quote,
            "create_params": ["precision", "scale"] if name == "DECIMAL" else None,
            "nullable": _NULLABLE,
            "case_sensitive": name == "VARCHAR",
            "searchable": _SEARCHABLE,
            "unsigned_attribute": None if radix is None else False,
            "fixed_prec_scale": False,
            "auto_increment": None if radix is None else False,
            "local_type_name": name,
            "minimum_scale": 0 if name == "DECIMAL" else None,
            "maximum_scale": 38 if name == "DECIMAL" else None,
            "sql_data_type": number if subcode is None else _DATETIME,
            "datetime_subcode": subcode,
            "num_prec_radix": radix,
            "interval_precision": None,
        }
        for name, number, size, radix, subcode, quote in _TYPE_ROWS
        if not asked.HasField("data_type") or asked.data_type == number
    ]
    return pa.RecordBatch.from_pylist(rows, TYPES)


def like(text: str, pattern: str) -> bool:
    r"""Whether a text is like a pattern: `%` stands for any characters, `_` for one, `\` takes the next as it is."""
    signs = _signs(pattern)
    at = sign = 0
    star, resumed = -1, 0
    while at < len(text):
        wanted = signs[sign] if sign < len(signs) else None
        if wanted == ("%", False):
            star, resumed = sign, at
            sign += 1
        elif wanted is not None and (wanted == ("_", False) or wanted == (text[at], wanted[1])):
            at, sign = at + 1, sign + 1
        elif star >= 0:
            resumed += 1
            at, sign = resumed, star + 1
        else:
            return False
    return all(each == ("%", False) for each in signs[sign:])


def _signs(pattern: str) -> list[tuple[str, bool]]:
    """Return the characters of a pattern, and whether each is meant as it is."""
    signs, escaped = [], False
    for character in pattern:
        if character == "\\" and not escaped:
            escaped = True
            continue
        signs.append((character, escaped or character not in "%_"))
        escaped = False
    return signs


def _or_nothing(view_columns: Callable[[str], pa.Schema], name: str) -> pa.Schema:
    try:
        return view_columns(name)
    except (Invalid, TableNotFound):  # a view whose tables are gone, or not for this caller, must not hide all others
        return pa.schema([])
