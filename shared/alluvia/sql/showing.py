"""SHOW of schemas, tables, views, streams and definitions, and DESCRIBE DETAIL and HISTORY, as rows."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace

import pyarrow as pa

from alluvia.access.rights import READ
from alluvia.delta.partitioning.spec import PartitionField
from alluvia.delta.promoted_fields import PROPERTIES
from alluvia.delta.properties import KNOWN, PIPELINE, ROLLUP
from alluvia.delta.schema.list_sizes import list_sizes, size_constraint
from alluvia.delta.schema.types import type_name
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.duck.literals import quote_name, quote_text
from alluvia.errors import Invalid
from alluvia.operations.catalog.catalog import Catalog, shows_comments
from alluvia.operations.catalog.schemas import no_schema, visible_schemas
from alluvia.operations.catalog.views import View, find_view, list_views
from alluvia.operations.tables.create import NOT_GIVEN
from alluvia.query.permitted import permitted
from alluvia.sql.grammar.nodes import Show
from alluvia.sql.scope import SqlScope
from alluvia.table_names import REJECTS, name_in_schema, schema_of

_MOMENT = pa.timestamp("us", tz="UTC")
_HISTORY = pa.schema(
    [
        ("version", pa.int64()),
        ("timestamp", _MOMENT),
        ("operation", pa.string()),
        ("parameters", pa.string()),
        ("metrics", pa.string()),
        ("engine", pa.string()),
        ("files_added", pa.int64()),
        ("files_removed", pa.int64()),
        ("readable", pa.bool_()),
        ("transaction", pa.string()),
    ]
)
_VIEWS = pa.schema(
    [
        ("name", pa.string()),
        ("query", pa.string()),
        ("version", pa.int64()),
        ("created_at", _MOMENT),
        ("comment", pa.string()),
    ]
)
_STREAMS = pa.schema(
    [
        ("name", pa.string()),
        ("source", pa.string()),
        ("position", pa.int64()),
        ("source_version", pa.int64()),
        ("versions_behind", pa.int64()),
        ("initial_rows", pa.bool_()),
        ("appends_only", pa.bool_()),
        ("moved_at", _MOMENT),
        ("stale_after", _MOMENT),
    ]
)
_DETAIL = pa.schema(
    [
        ("name", pa.string()),
        ("location", pa.string()),
        ("version", pa.int64()),
        ("committed_at", _MOMENT),
        ("files", pa.int64()),
        ("bytes", pa.int64()),
        ("partition_by", pa.list_(pa.string())),
        ("sort_by", pa.list_(pa.string())),
        ("cluster_by", pa.list_(pa.string())),
        ("properties", pa.map_(pa.string(), pa.string())),
        ("min_reader_version", pa.int64()),
        ("min_writer_version", pa.int64()),
        ("features", pa.list_(pa.string())),
        ("comment", pa.string()),
    ]
)


def show(scope: SqlScope, node: Show) -> pa.Table:
    """Return the rows that answer a statement."""
    if node.what == "show schemas":
        return pa.table({"name": pa.array(visible_schemas(_catalog(scope)), pa.string())})
    if node.what == "show tables":
        return pa.table({"name": pa.array(_tables_in(scope, node.name), pa.string())})
    if node.what == "show views":
        return _views(scope)
    if node.what == "show streams":
        return _streams(scope)
    view = find_view(scope.lake.store, node.name) if not scope.has(node.name) else None
    if node.what == "show create" and view is not None:
        return _one("create_statement", create_view_statement(view))
    if view is not None:
        raise Invalid(f"{node.name} is a view: SHOW CREATE VIEW {node.name} shows its query")
    if node.what == "describe history":
        return _history(scope, node)
    snapshot = scope.newest(node.name)
    if node.what == "describe detail":
        return _detail(scope, snapshot)
    return _one("create_statement", create_statement(snapshot))


def create_view_statement(view: View) -> str:
    """Return the statements that create a view like this one, with its comments."""
    create = f"CREATE VIEW {view.name}{_comment(view.comment)} AS {view.query}"
    if not view.column_comments:
        return create
    columns = [
        f"COMMENT ON COLUMN {view.name}.{quote_name(column)} IS {quote_text(text)}"
        for column, text in view.column_comments.items()
    ]
    return ";\n".join([create, *columns])


def _catalog(scope: SqlScope) -> Catalog:
    return permitted(scope.catalog, scope.rights)


def _tables_in(scope: SqlScope, schema: str) -> list[str]:
    """Return the tables of a schema that may be read, by their names within it."""
    if schema not in visible_schemas(_catalog(scope)):
        raise no_schema(schema)
    names = _catalog(scope).tables()
    return [name_in_schema(name) for name in names if schema_of(name) == schema]


def _views(scope: SqlScope) -> pa.Table:
    rows = [
        {
            "name": view.name,
            "query": view.query,
            "version": view.version,
            "created_at": pa.scalar(view.created_ms * 1000, _MOMENT).as_py(),
            "comment": view.comment if shows_comments(_catalog(scope), view.name) else None,
        }
        for view in list_views(scope.lake.store, lambda name: scope.rights is None or scope.rights.may(READ, name))
    ]
    return pa.Table.from_pylist(rows, _VIEWS)


def _streams(scope: SqlScope) -> pa.Table:
    shown = [each for each in scope.lake.streams() if scope.rights is None or scope.rights.may(READ, each.source)]
    return pa.Table.from_pylist([{name: getattr(each, name) for name in _STREAMS.names} for each in shown], _STREAMS)


def _one(column: str, text: str) -> pa.Table:
    return pa.table({column: pa.array([text], pa.string())})


def _history(scope: SqlScope, node: Show) -> pa.Table:
    rows = [
        {
            "version": each.version,
            "timestamp": each.timestamp,
            "operation": each.operation,
            "parameters": json.dumps(each.parameters),
            "metrics": json.dumps(each.metrics),
            "engine": each.engine,
            "files_added": each.files_added,
            "files_removed": each.files_removed,
            "readable": each.readable,
            "transaction": each.transaction,
        }
        for each in scope.lake.table(node.name).history(node.limit)
    ]
    return pa.Table.from_pylist(rows, _HISTORY)


def _detail(scope: SqlScope, snapshot: Snapshot) -> pa.Table:
    settings, protocol = snapshot.settings, snapshot.protocol
    files, size = snapshot.totals
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    row = {
        "name": snapshot.name,
        "location": scope.lake.catalog.handle(snapshot.name).attached_place
        or f"{scope.lake.uri.rstrip('/')}/{snapshot.name}",
        "version": snapshot.version,
        "committed_at": pa.scalar(snapshot.timestamp_ms * 1000, _MOMENT).as_py(),
        "files": files,
        "bytes": size,
        "partition_by": list(settings.partition_by) or list(snapshot.partition_columns),
        "sort_by": list(settings.sort_by),
        "cluster_by": list(settings.cluster_by),
        "properties": sorted(snapshot.properties.items()),
        "min_reader_version": protocol.min_reader_version,
        "min_writer_version": protocol.min_writer_version,
        "features": sorted(features),
        "comment": snapshot.comment,
    }
    return pa.Table.from_pylist([row], _DETAIL)


def create_statement(snapshot: Snapshot) -> str:
    """Return the statement that creates a table like this one, without rows."""
    if ROLLUP in snapshot.properties:
        raise Invalid(f"table {snapshot.name} is a rollup, which lake.create_rollup creates: see its property {ROLLUP}")
    if PIPELINE in snapshot.properties:
        raise Invalid(f"table {snapshot.name} belongs to a pipeline, which declares it: see its property {PIPELINE}")
    if snapshot.name.endswith(f"/{REJECTS}"):
        raise Invalid(f"{snapshot.name.replace('/', '.')} is a table of rejects, which ingestion creates")
    if snapshot.has_variants and snapshot.variant != PROPERTIES:
        raise Invalid(f"table {snapshot.name} has a column of the type VARIANT, which CREATE TABLE cannot make")
    settings = snapshot.settings
    plain = [field.name for field in snapshot.schema if _takes_size(field.type)]
    sizes = list_sizes(settings.constraints, plain)
    sized = dict(size_constraint(name, size) for name, size in sizes.items())
    comments = snapshot.column_comments
    lines = [
        f"  {quote_name(field.name)} {_sized(field, sizes)}{'' if field.nullable else ' NOT NULL'}"
        f"{_comment(comments.get(field.name))}"
        for field in snapshot.schema
    ]
    lines += [
        f"  CONSTRAINT {quote_name(name)} CHECK ({_lines(text)})"
        for name, text in settings.constraints.items()
        if sized.get(name) != text
    ]
    parts = [f"CREATE TABLE {snapshot.name} (\n" + ",\n".join(lines) + f"\n){_comment(snapshot.comment)}"]
    if snapshot.partition_spec.fields:
        parts.append(f"PARTITION BY ({', '.join(map(_field, snapshot.partition_spec.fields))})")
    if settings.sort_by:
        parts.append(f"SORT BY ({', '.join(map(quote_name, settings.sort_by))})")
    if settings.cluster_by:
        parts.append(f"CLUSTER BY ({', '.join(map(quote_name, settings.cluster_by))})")
    own = {
        name: value
        for name, value in sorted(snapshot.properties.items())
        if name not in NOT_GIVEN and (name in KNOWN or not name.startswith(("alluvia.", "delta.")))
    }
    if own:
        shown = ", ".join(f"{quote_text(name)} = {quote_text(value)}" for name, value in own.items())
        parts.append(f"TBLPROPERTIES ({shown})")
    return "\n".join(parts)


def _comment(text: str | None) -> str:
    return "" if text is None else f" COMMENT {quote_text(text)}"


def _field(field: PartitionField) -> str:
    return str(replace(field, column=quote_name(field.column)))


def _lines(text: str) -> str:
    """Return a condition on lines of its own if a comment in it might reach beyond its end."""
    return f"\n{text}\n" if "--" in text else text


def sql_type(kind: pa.DataType) -> str:
    """Return a type as CREATE TABLE takes it."""
    if pa.types.is_struct(kind):
        return f"STRUCT({', '.join(f'{quote_name(field.name)} {_part(field)}' for field in kind.fields)})"
    if pa.types.is_map(kind):
        return f"MAP({sql_type(kind.key_type)}, {_part(kind.item_field)})"
    if pa.types.is_list(kind):
        nullable = kind.value_field.nullable
        return f"{sql_type(kind.value_type)}[]" if nullable else f"ARRAY({_part(kind.value_field)})"
    return {"long": "BIGINT", "short": "SMALLINT", "byte": "TINYINT"}.get(name := type_name(kind), name.upper())


def _takes_size(kind: pa.DataType) -> bool:
    """Whether a column of a type can be made with the size of its lists."""
    return isinstance(kind, pa.ListType) and kind.value_field.nullable and not pa.types.is_nested(kind.value_type)


def _sized(field: pa.Field, sizes: Mapping[str, int]) -> str:
    shown = sql_type(field.type)
    return f"{shown.removesuffix('[]')}[{sizes[field.name]}]" if field.name in sizes else shown


def _part(field: pa.Field) -> str:
    return f"{sql_type(field.type)}{'' if field.nullable else ' NOT NULL'}"
