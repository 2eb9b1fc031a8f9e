"""Create a rollup, and find the rollups of a lake or of one source.

A mark, an empty object under the lake's root, names each rollup and its source, so that an operation that has changed
or wants to drop a source finds its rollups with one LIST. It is written before the rollup and stays: the table itself
decides.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from alluvia.commit.handle import TableHandle
from alluvia.delta.properties import MERGE_QUERY, ROLLUP, check_derived
from alluvia.delta.schema.names import fold
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid, TableExists, TableNotFound
from alluvia.operations.catalog.catalog import NewTable, WritableCatalog, rejects_handle
from alluvia.operations.planning.layout import check_ttl
from alluvia.operations.reading.relations import Evaluate, Files
from alluvia.operations.tables.create import create, plan_create
from alluvia.rollups.asking import FRESHNESS, LIVE
from alluvia.rollups.definition import Definition, RollupQuery, definition_of, keys_of, read_query
from alluvia.rollups.result_columns import result_columns
from alluvia.table_names import REJECTS, TABLE_NAME

MARKS = "_alluvia/rollups/"


def create_rollup(
    catalog: WritableCatalog,
    name: str,
    query: str,
    evaluate: Evaluate,
    partition_by: Sequence[str] = (),
    sort_by: Sequence[str] | None = None,
    properties: Mapping[str, str] | None = None,
    cluster_by: Sequence[str] = (),
) -> TableHandle:
    """Create an empty rollup. Raises `Invalid` for a query that cannot be kept, `TableNotFound`, `TableExists`."""
    handle = catalog.handle(name)
    if not TABLE_NAME.fullmatch(name):
        raise Invalid(f"table name {name!r}: a rollup cannot be a table of rejected events")
    parsed = read_query(query)
    given = dict(properties or {})
    if MERGE_QUERY in given:
        raise Invalid(f"property {MERGE_QUERY}: a rollup cannot have one: only its refresh writes it")
    source = catalog.handle(parsed.source).newest()
    columns = parsed.columns_used(source.schema)
    schema = _schema(parsed, source, evaluate)
    keys = keys_of(parsed, source.schema, schema.names)
    for key in keys:
        if pa.types.is_nested(schema.field(key).type):
            raise Invalid(f"a rollup cannot be grouped by {key}, which is nested: group by its fields")
    _check_free(catalog, name)
    if sort_by is None:
        sort_by = () if cluster_by else keys
    new = NewTable(schema, partition_by, sort_by, given, cluster_by)
    metadata = plan_create(new, catalog.clock.new_id(), catalog.clock.now_ms())
    definition = Definition(parsed.source, query, keys, columns)
    metadata = replace(metadata, configuration={**metadata.configuration, ROLLUP: definition.to_text()})
    check_derived(metadata.configuration)
    check_ttl(metadata)
    catalog.store.put(_mark(parsed.source, name), b"1")
    if not create(handle, metadata, exist_ok=True, rejects=rejects_handle(catalog, name)):
        raise TableExists(f"table {name!r} already exists: choose another name, or drop it first")
    return handle


def rollups_of(catalog: WritableCatalog, source: str | None = None, *, nested: bool = False) -> list[str]:
    """Return the rollups of one source, or of all, each after the rollup that is its own source.

    With `nested`, those of the source's rollups are among them, and so on: one LIST more for each rollup. Takes one
    LIST, and a look at the log of each.
    """
    prefix = MARKS if source is None else _mark(source, "")
    names = sorted({one.key.rpartition("/")[2] for one in catalog.store.list(prefix)})
    sources = {name: each for name in names if (each := _source_of(catalog, name)) and source in (None, each)}
    ordered = [name for name in sources if sources[name] not in sources]
    for name in ordered:  # which grows meanwhile
        below = rollups_of(catalog, name) if nested else [each for each in sources if sources[each] == name]
        ordered += [each for each in below if each not in ordered]
    return ordered


def check_no_rollups(catalog: WritableCatalog, source: str) -> None:
    """Raise `Invalid`, naming them, if there are rollups of a table that is to be dropped, or of its rejects.

    One LIST where there are none.
    """
    if next(iter(catalog.store.list(MARKS + source)), None) is None:
        return
    for name in (source, f"{source}/{REJECTS}"):
        if rollups := rollups_of(catalog, name):
            raise Invalid(
                f"table {name} is the source of {', '.join(rollups)}: "
                f"drop {'it' if len(rollups) == 1 else 'them'} first"
            )


def check_not_used(catalog: WritableCatalog, source: str, columns: Sequence[str]) -> None:
    """Raise `Invalid`, naming them, if a rollup of a table needs one of some columns that are to go. One LIST."""
    for name in rollups_of(catalog, source):
        used = {fold(each): each for each in definition_of(catalog.handle(name).newest()).columns}
        for column in columns:
            if fold(column) in used:
                raise Invalid(f"column {used[fold(column)]} cannot be renamed or dropped: the rollup {name} uses it")


def _source_of(catalog: WritableCatalog, name: str) -> str | None:
    try:
        return definition_of(catalog.handle(name).newest()).source
    except (TableNotFound, Invalid):  # dropped, or another table by now
        return None


def _mark(source: str, name: str) -> str:
    return f"{MARKS}{source.replace('/', '.')}/{name}"


def _check_free(catalog: WritableCatalog, name: str) -> None:
    for suffix in (LIVE, FRESHNESS):
        if name + suffix in catalog:
            raise TableExists(
                f"table {name}{suffix} exists, and queries of the rollup use that name: choose another name"
            )
        if name.endswith(suffix):
            raise Invalid(
                f"table name {name!r}: names that end in {suffix} are for queries of rollups; choose another name"
            )


def _schema(query: RollupQuery, source: Snapshot, evaluate: Evaluate) -> pa.Schema:
    """Return the columns that the query gives. Raises `Invalid`, naming one that a table cannot have."""
    aliases = {fold(node["alias"]) for node in query.root["select_list"]}
    schema, rows = result_columns({"source": Files(source, [])}, query.over("source"), aliases, evaluate, "the rollup")
    if not query.root["group_expressions"] and rows != 1:
        raise Invalid("a rollup's query must have aggregates, such as count(*), or a GROUP BY")
    return schema
