"""Other names for methods of Alluvia, so that an error can name the right one. Pure.

The names are those of deltalake, pyiceberg and duckdb, and earlier ones of our own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from alluvia.nearest_name import did_you_mean

MODULE = {
    "DeltaTable": "alluvia.open_table(uri)",
    "load_catalog": "alluvia.connect(uri)",
    "write_deltalake": "alluvia.open_table(uri).append(rows)",
}
LAKE = {
    "create_table_if_not_exists": "lake.create_table(name, schema, exist_ok=True)",
    "discard_branch": "lake.drop_branch(name)",
    "create_materialized_view": "lake.create_rollup(name, query)",
    "execute": "lake.sql(query)",
    "list_tables": "lake.tables()",
    "load_table": "lake.table(name)",
    "publish": "lake.publish_query(name, query)",
    "query": "lake.sql(query)",
    "register_table": "lake.convert(path, name)",
    "table_exists": "name in lake",
    "untag": "lake.drop_tag(name)",
    "unpublish": "lake.unpublish_query(name)",
    "views": 'lake.sql("SHOW VIEWS")',
}
TABLE = {
    "add_columns": "table.evolve(add={…})",
    "alter": "table.evolve(…)",
    "arrow": "table.to_arrow()",
    "cleanup_metadata": "table.vacuum()",
    "create_checkpoint": "table.checkpoint()",
    "current_snapshot": "table.snapshot()",
    "df": "table.to_pandas()",
    "expire_snapshots": "table.vacuum()",
    "file_uris": "table.files",
    "get_add_actions": "table.files",
    "insert": "table.append(rows)",
    "load_as_version": "table.snapshot(version) or table.scan(version=…)",
    "load_cdf": "table.changes(from_version)",
    "merge": "table.upsert(rows, on=[…]) for SQL's MERGE INTO, table.optimize() to compact files",
    "metadata": "table.snapshot(), which has its schema, properties and partition_columns",
    "overwrite": "table.delete('true'), then table.append(rows)",
    "pl": "table.to_polars()",
    "properties": "table.snapshot().properties",
    "protocol": "table.snapshot().protocol",
    "snapshots": "table.history()",
    "to_pyarrow_dataset": "table.scan()",
    "to_pyarrow_table": "table.to_arrow()",
    "untag": "table.drop_tag(name)",
    "update_schema": "table.evolve(add={…})",
    "write": "table.append(rows)",
}

SERVED = {
    "attach": "ATTACH 's3://b/t' AS t",
    "branch": "CREATE BRANCH fix",
    "branches": "SHOW BRANCHES",
    "changes": "FROM changes('events', 1)",
    "clone": "CREATE TABLE copy SHALLOW CLONE events",
    "create_stream": "CREATE STREAM s ON TABLE events",
    "create_table": "CREATE TABLE t (n BIGINT)",
    "delete": "DELETE FROM events WHERE b = 2",
    "detach": "DETACH t",
    "drop_branch": "DROP BRANCH fix",
    "drop_stream": "DROP STREAM s",
    "drop_table": "DROP TABLE events",
    "evolve": "ALTER TABLE events ADD COLUMN n BIGINT",
    "files": "FROM files('events')",
    "final": "FROM events_final",
    "history": "FROM history('events')",
    "optimize": "OPTIMIZE events",
    "publish_query": "PUT /v1/queries/{query}",
    "set_comment": "COMMENT ON TABLE events IS 'what it holds'",
    "snapshot": "DESCRIBE DETAIL events",
    "streams": "SHOW STREAMS",
    "undrop": "UNDROP TABLE events",
    "unpublish_query": "DELETE /v1/queries/{query}",
    "update": "UPDATE events SET a = 1 WHERE b = 2",
    "upsert": "MERGE INTO t USING s ON t.a = s.a WHEN MATCHED THEN DELETE",
    "version": "DESCRIBE DETAIL events",
}
"""Statements and routes in place of methods that the client of a server lacks."""

SERVED_CALLS = {
    "to_pandas": "table.to_arrow().to_pandas()",
    "to_polars": "polars.from_arrow(table.to_arrow())",
    "transaction": 'lake.sql("BEGIN; INSERT INTO a VALUES (1); DELETE FROM b WHERE n = 1; COMMIT")',
}
"""Calls that the client has in place of methods that it lacks."""


def at_server(name: str) -> str:
    """Return how a method of lakes and tables is reached by way of a server."""
    itself = "open the lake itself, as in alluvia.connect('s3://bucket/lake')"
    if name in SERVED_CALLS:
        return f"use {SERVED_CALLS[name]}"
    use = SERVED.get(name)
    if use is None:
        return itself
    return f"send {use}, or {itself}" if "/v1/" in use else f'send SQL, as in lake.sql("{use}"), or {itself}'


def no_attribute(owner: str, name: str, known: Mapping[str, str], names: Iterable[str]) -> AttributeError:
    """Return the error for a name that `owner` does not have, with what to call where `known` has it.

    `names` are those that it has: the nearest is suggested.
    """
    use = f"; use {known[name]}" if name in known else ""
    if not use and not name.startswith("_"):  # such names are looked for by copy, pickle and notebooks
        near = did_you_mean(name, (each for each in names if not each.startswith("_")))
        use = f"; {near}" if near else ""
    return AttributeError(f"{owner} has no {name!r}{use}", name=name)


def compact(*_arguments: object, **_options: object) -> None:
    """Stand in for deltalake's `table.optimize.compact()` and `.z_order()`. Raises `TypeError`."""
    raise TypeError("optimize is a method: call table.optimize(); it sorts by the table's sort_by or cluster_by")
