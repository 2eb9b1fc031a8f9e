"""INSERT and CREATE TABLE … AS: from statements to the operations on tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pyarrow as pa

from alluvia.delta.properties import CONSTRAINT
from alluvia.delta.schema.list_sizes import size_constraint
from alluvia.delta.schema.names import fold
from alluvia.errors import Invalid, TableExists
from alluvia.query.engine import Result
from alluvia.sql.binding import column_of
from alluvia.sql.fitting import fitted, table_schema, with_texts, without_texts
from alluvia.sql.grammar.nodes import CreateTable, Insert
from alluvia.sql.scope import Done, SqlScope


def insert(scope: SqlScope, node: Insert) -> Done:
    """Append the rows of VALUES or a SELECT, as they come."""
    wanted = _wanted(scope, node)
    if node.source is None:
        commit = scope.table(node.table).append([{}])
        return {"rows_inserted": commit.rows, "version": commit.version}
    source, texts = without_texts(node.source, scope.values) if node.is_values else (node.source, {})
    with scope.query(source) as result:
        _check_width(node, wanted, result.schema)
        rows = (
            with_texts(result.read_all(), wanted, texts) if texts else fitted(result, wanted, literals=node.is_values)
        )
        return _appended(scope, node, rows)


def insert_rows(scope: SqlScope, node: Insert, rows: pa.Table) -> Done:
    """Append rows as if they were those of VALUES."""
    wanted = _wanted(scope, node)
    _check_width(node, wanted, rows.schema)
    return _appended(scope, node, fitted(Result(rows.schema, iter(rows.to_batches())), wanted, literals=True))


def _wanted(scope: SqlScope, node: Insert) -> pa.Schema:
    """Return the columns that an INSERT fills. Raises `Invalid`, naming one that is not there, or comes twice."""
    schema = scope.newest(node.table).schema if node.columns is None else scope.columns(node.table, node.columns)
    names, columns = schema.names, dict.fromkeys(schema.names)
    if node.columns is not None:
        names = [column_of(name, columns, node.table) for name in node.columns]
        twice = next((name for name, count in Counter(names).items() if count > 1), None)
        if twice is not None:
            raise Invalid(f"column {twice} is named twice")
    return pa.schema([schema.field(name) for name in names])


def _check_width(node: Insert, wanted: pa.Schema, given: pa.Schema) -> None:
    if len(given) != len(wanted):
        what = "each row of VALUES" if node.is_values else "the SELECT"
        raise Invalid(
            f"INSERT INTO {node.table} takes {len(wanted)} columns ({', '.join(wanted.names)}), but {what} has "
            f"{len(given)}"
        )


def _appended(scope: SqlScope, node: Insert, rows: pa.Table | pa.RecordBatchReader) -> Done:
    commit = scope.table(node.table).append(rows)
    return {"rows_inserted": commit.rows, "version": commit.version}


def create_table(scope: SqlScope, node: CreateTable) -> Done:
    """Create a table; with a query, in one commit with the query's rows."""
    if (node.if_not_exists or (node.query is not None and not node.or_replace)) and scope.has(node.table):
        if not node.if_not_exists:
            raise TableExists(f"table {node.table!r} already exists: choose another name, or DROP TABLE {node.table}")
        return {"table": node.table, "rows_inserted": 0, "version": scope.newest(node.table).version}
    if node.query is None:
        assert node.columns is not None  # noqa: S101 - the grammar asks for one or the other
        created = _create(scope, node, node.columns)
        return {"table": node.table, "rows_inserted": 0, "version": created}
    with scope.query(node.query) as result:
        named = _named(node, result.schema)
        schema = table_schema(named)
        _create(scope, node, schema, _sizes(named))
        commit = scope.table(node.table).append(fitted(result, schema, literals=False))
    return {"table": node.table, "rows_inserted": commit.rows, "version": commit.version}


def _named(node: CreateTable, schema: pa.Schema) -> pa.Schema:
    """Return the columns of a query with the names that the statement gives the first of them, as in DuckDB."""
    if len(node.names) > len(schema):
        raise Invalid(
            f"CREATE TABLE {node.table} names {len(node.names)} columns ({', '.join(node.names)}), but the SELECT has "
            f"{len(schema)}"
        )
    names = [*node.names, *schema.names[len(node.names) :]]
    folded = [fold(name) for name in names]
    counts = Counter(folded)
    twice = next((name for name in names if counts[fold(name)] > 1), None)
    if twice is not None:
        raise Invalid(f"CREATE TABLE {node.table} AS has two columns {twice}: name them apart with AS")
    return pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)])


def _sizes(schema: pa.Schema) -> dict[str, str]:
    """Return the constraints of columns whose lists have one size."""
    sizes = {field.name: field.type.list_size for field in schema if isinstance(field.type, pa.FixedSizeListType)}
    constraints = (size_constraint(name, size) for name, size in sizes.items())
    return {CONSTRAINT + name: text for name, text in constraints}


def _create(scope: SqlScope, node: CreateTable, schema: pa.Schema, constraints: Mapping[str, str] | None = None) -> int:
    scope.creator.create_table(
        node.table,
        schema,
        node.partition_by,
        node.sort_by,
        {**(constraints or {}), **node.properties},
        cluster_by=node.cluster_by,
        comment=node.comment,
        exist_ok=node.if_not_exists,
        replace=node.or_replace,
    )
    return scope.newest(node.table).version
