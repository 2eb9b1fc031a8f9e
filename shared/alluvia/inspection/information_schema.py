"""`information_schema`, for tools that look there: tables, views, columns and schemas as the caller may see them.

It has the columns of DuckDB's. Tables without a schema are in `main`, and a name that is put together from the parts
(`main.events`, `bronze.events`) means the table.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from alluvia.delta.snapshot import Snapshot
from alluvia.engine.duck.relation import duckdb_type
from alluvia.engine.queries.functions import INFORMATION_SCHEMA
from alluvia.errors import AlluviaError, Corrupt, Forbidden, Invalid, TableNotFound, Unsupported
from alluvia.inspection.asking import Asked, batches_of, may_match
from alluvia.inspection.columns import notes_of
from alluvia.operations.catalog.catalog import shows_comments
from alluvia.operations.catalog.schemas import visible_schemas
from alluvia.operations.catalog.views import VIEWS, View
from alluvia.table_names import DATABASE, SCHEMA, name_in_schema, schema_of

Row = dict[str, object]
_TEXT, _NUMBER, _FLAG = pa.string(), pa.int32(), pa.bool_()


def _texts(*names: str) -> list[tuple[str, pa.DataType]]:
    return [(name, _TEXT) for name in names]


_NAME = _texts("table_catalog", "table_schema", "table_name")
TABLES = pa.schema(
    [
        *_NAME,
        *_texts("table_type", "self_referencing_column_name", "reference_generation"),
        *_texts("user_defined_type_catalog", "user_defined_type_schema", "user_defined_type_name"),
        *_texts("is_insertable_into", "is_typed", "commit_action", "TABLE_COMMENT"),
    ]
)
SCHEMATA = pa.schema(
    [
        *_texts("catalog_name", "schema_name", "schema_owner", "default_character_set_catalog"),
        *_texts("default_character_set_schema", "default_character_set_name", "sql_path"),
    ]
)
VIEW_TEXTS = pa.schema(
    [
        *_NAME,
        *_texts("view_definition", "check_option", "is_updatable", "is_insertable_into"),
        *_texts("is_trigger_updatable", "is_trigger_deletable", "is_trigger_insertable_into"),
    ]
)
COLUMNS = pa.schema(
    [
        *_NAME,
        *(("column_name", _TEXT), ("ordinal_position", _NUMBER)),
        *_texts("column_default", "is_nullable", "data_type"),
        *(("character_maximum_length", _NUMBER), ("character_octet_length", _NUMBER)),
        *(("numeric_precision", _NUMBER), ("numeric_precision_radix", _NUMBER), ("numeric_scale", _NUMBER)),
        *(("datetime_precision", _NUMBER), ("interval_type", _TEXT), ("interval_precision", _NUMBER)),
        *_texts("character_set_catalog", "character_set_schema", "character_set_name"),
        *_texts("collation_catalog", "collation_schema", "collation_name"),
        *_texts("domain_catalog", "domain_schema", "domain_name", "udt_catalog", "udt_schema", "udt_name"),
        *_texts("scope_catalog", "scope_schema", "scope_name"),
        *(("maximum_cardinality", pa.int64()), ("dtd_identifier", _TEXT)),
        *(("is_self_referencing", _FLAG), ("is_identity", _FLAG)),
        *_texts("identity_generation", "identity_start", "identity_increment", "identity_maximum"),
        *_texts("identity_minimum", "identity_cycle", "is_generated", "generation_expression"),
        *(("is_updatable", _FLAG), ("COLUMN_COMMENT", _TEXT)),
    ]
)
AT_ONCE = 256
_BITS = {"TINYINT": 8, "SMALLINT": 16, "INTEGER": 32, "BIGINT": 64, "FLOAT": 24, "DOUBLE": 53}
_LONG = {"TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE"}


def schemata(asked: Asked) -> Iterator[pa.RecordBatch]:
    """Yield the schemas that the caller may know of, and this one."""
    names = [*visible_schemas(asked.catalog), INFORMATION_SCHEMA]
    rows = [{"catalog_name": DATABASE, "schema_name": name} for name in names]
    return batches_of((row for row in rows if may_match(asked.predicate, "schema_name", row["schema_name"])), SCHEMATA)


def tables(asked: Asked) -> Iterator[pa.RecordBatch]:
    """Yield the tables and views that may be read, by name. No table is opened for it, but for its comment."""
    rows: list[Row] = []
    names = _tables(asked)
    if may_match(asked.predicate, "table_type", "BASE TABLE"):
        comments = _table_comments(asked, names) if asked.names("TABLE_COMMENT") else {}
        rows = [
            {
                **_named(name),
                "table_type": "BASE TABLE",
                "is_insertable_into": "YES",
                "TABLE_COMMENT": comments.get(name),
            }
            for name in names
        ]
    if may_match(asked.predicate, "table_type", "VIEW"):
        views = _views(asked, set(names))
        rows += [
            {
                **_named(view.name),
                "table_type": "VIEW",
                "is_insertable_into": "NO",
                "TABLE_COMMENT": view.comment if shows_comments(asked.catalog, view.name) else None,
            }
            for view in views
        ]
    rows.sort(key=lambda row: (row["table_schema"] != SCHEMA, str(row["table_schema"]), str(row["table_name"])))
    return batches_of(({**row, "is_typed": "NO"} for row in rows), TABLES)


def views(asked: Asked) -> Iterator[pa.RecordBatch]:
    """Yield the views that may be read, with their texts."""
    answers = dict.fromkeys(VIEW_TEXTS.names[5:], "NO")
    return batches_of(
        (
            {
                **_named(view.name),
                "view_definition": f"CREATE VIEW {view.name} AS {view.query}",
                "check_option": "NONE",
                **answers,
            }
            for view in _views(asked, set())
        ),
        VIEW_TEXTS,
    )


def columns(asked: Asked) -> Iterator[pa.RecordBatch]:
    """Yield the columns of tables and views, as far as they may be seen, in order.

    Costs one look at each table, and a process that plans each view. What cannot be opened is left out.
    """
    names = _tables(asked)
    for snapshot in _snapshots(asked, names):
        yield from batches_of(_of_table(asked, snapshot), COLUMNS)
    for view in _views(asked, set(names)):
        asked.check_time()
        try:
            schema = asked.view_columns(view.name)
        except (Invalid, TableNotFound, Forbidden):  # its tables are gone, or not for this caller
            continue
        rows = _of_schema(asked, view.name, schema)
        comments = view.column_comments if shows_comments(asked.catalog, view.name) else {}
        yield from batches_of(
            ({**row, "COLUMN_COMMENT": comments.get(str(row["column_name"]))} for row in rows), COLUMNS
        )


def _table_comments(asked: Asked, names: Sequence[str]) -> dict[str, str | None]:
    """Return the comments of tables that a caller sees as a whole."""
    seen = [name for name in names if shows_comments(asked.catalog, name)]
    return {snapshot.name: snapshot.comment for snapshot in _snapshots(asked, seen)}


def _snapshots(asked: Asked, names: Sequence[str]) -> Iterator[Snapshot]:
    """Open tables, and leave out those that cannot be."""
    for start in range(0, len(names), AT_ONCE):
        asked.check_time()
        for snapshot in asked.catalog.store.map(lambda name: _opened(asked, name), names[start : start + AT_ONCE]):
            if snapshot is not None:
                yield snapshot


def _tables(asked: Asked) -> list[str]:
    if not may_match(asked.predicate, "table_catalog", DATABASE):
        return []
    return [name for name in asked.catalog.tables() if _may_be_named(asked, name)]


def _may_be_named(asked: Asked, name: str) -> bool:
    return all(may_match(asked.predicate, column, value) for column, value in _named(name).items())


def _views(asked: Asked, taken: set[str]) -> Iterator[View]:
    """Yield the views that may be read; a table of a view's name comes before it."""
    for name in asked.catalog.store.list_folders(VIEWS):
        if name not in taken and _may_be_named(asked, name):
            view = asked.catalog.find_view(name)
            if view is not None:
                yield view


def _named(name: str) -> Row:
    return {"table_catalog": DATABASE, "table_schema": schema_of(name), "table_name": name_in_schema(name)}


def _opened(asked: Asked, name: str) -> Snapshot | None:
    try:
        snapshot = asked.catalog.handle(name).newest()
        _ = snapshot.schema
    except (TableNotFound, Corrupt, Forbidden, Invalid, Unsupported):
        return None
    return snapshot


def _of_table(asked: Asked, snapshot: Snapshot) -> Iterator[Row]:
    notes = notes_of(snapshot, asked.catalog)
    for row in _of_schema(asked, snapshot.name, asked.seen(snapshot)):
        default, comment = notes.get(str(row["column_name"]), (None, None))
        yield {**row, "column_default": default, "COLUMN_COMMENT": comment}


def _of_schema(asked: Asked, name: str, schema: pa.Schema) -> Iterator[Row]:
    for position, field in enumerate(schema, 1):
        if may_match(asked.predicate, "column_name", field.name):
            yield {
                **_named(name),
                "column_name": field.name,
                "ordinal_position": position,
                "is_nullable": "YES" if field.nullable else "NO",
                **_typed(field.type),
            }


def _typed(kind: pa.DataType) -> Row:
    try:
        name = duckdb_type(kind)
    except (KeyError, AlluviaError):  # of a view's column: a type that no table has
        return {"data_type": str(kind).upper()}
    if pa.types.is_decimal(kind):
        sizes: tuple[int | None, ...] = (kind.precision, 10, kind.scale)
    else:
        sizes = (_BITS[name], 2, 0) if name in _BITS else (None, None, None)
    numbers = zip(("numeric_precision", "numeric_precision_radix", "numeric_scale"), sizes, strict=True)
    return {"data_type": _LONG.get(name, name), **dict(numbers)}
