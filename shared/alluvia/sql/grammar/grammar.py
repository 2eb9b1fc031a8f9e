"""The statements that write, from their tokens. Pure.

What cannot be done is refused by name, with what to do instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from alluvia.errors import Invalid
from alluvia.sql.grammar import nodes
from alluvia.sql.grammar.cursor import TO_WRITE_ON_A_BRANCH, Cursor
from alluvia.sql.grammar.grammar_alter import read_alter
from alluvia.sql.grammar.grammar_objects import (
    read_comment,
    read_drop_branch,
    read_drop_schema,
    read_drop_tag,
    read_isolation,
    read_publish,
)
from alluvia.sql.grammar.grammar_rows import read_delete, read_insert, read_merge, read_truncate, read_update
from alluvia.sql.grammar.grammar_tables import read_create

Reader = Callable[[Cursor], tuple[str, nodes.Node]]

_REFUSED = {
    "grant": "who may read or write is decided by the store's credentials and by the server's settings and tokens",
    "revoke": "who may read or write is decided by the store's credentials and by the server's settings and tokens",
    "copy": "load files with `alluvia ingest` or `alluvia upsert`, and save the rows of a query with `alluvia query`",
    "import": "load files with `alluvia ingest` or `alluvia upsert`",
    "load": "load files with `alluvia ingest` or `alluvia upsert`",
    "export": "save the rows of a query with `alluvia query`",
    "use": "name tables with their schema, as in bronze.orders, and those of a branch as in fix.orders; "
    + TO_WRITE_ON_A_BRANCH,
    "install": "a query runs without extensions",
    "pragma": "limits are set by the server or the caller; properties of a table with ALTER TABLE … SET TBLPROPERTIES",
    "set": "properties of a table are set with ALTER TABLE … SET TBLPROPERTIES, limits by the server or the caller",
    "reset": "properties of a table are removed with ALTER TABLE … UNSET TBLPROPERTIES",
    "prepare": "pass parameters with the statement: ? or $name",
    "execute": "pass parameters with the statement: ? or $name",
    "deallocate": "pass parameters with the statement: ? or $name",
    "call": "there are no procedures: docs/SQL.md lists the statements",
    "analyze": "statistics of every file are written with the file: there is nothing to do",
    "analyse": "statistics of every file are written with the file: there is nothing to do",
    "replace": "use MERGE INTO … WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "upsert": "use MERGE INTO … WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
    "savepoint": "a transaction has no savepoints: use several transactions",
    "release": "a transaction has no savepoints: use several transactions",
    "lock": "nothing is locked: a transaction whose tables changed is tried again",
    "reindex": "there are no indexes: SORT BY or CLUSTER BY the columns that queries ask for",
    "convert": "call lake.convert(path, name)",
    "msck": "the log knows all files of a table: there is nothing to repair",
    "cache": "tables are read where they are: there is nothing to cache",
}


def refuse(cursor: Cursor) -> None:
    """Raise `Invalid` for a statement that is known and cannot be run here; return for any other."""
    word = cursor.word()
    if word in _REFUSED:
        raise Invalid(f"{word.upper()} is not supported: {_REFUSED[word]}")


def _drop(cursor: Cursor) -> tuple[str, nodes.Node]:
    cursor.expect("drop")
    if cursor.word() == "tag":
        return "drop tag", read_drop_tag(cursor)
    if cursor.word() == "branch":
        return "drop branch", read_drop_branch(cursor)
    if cursor.word() == "schema":
        return "drop schema", read_drop_schema(cursor)
    if cursor.accept("stream"):
        there = cursor.accept("if", "exists")
        return "drop stream", nodes.DropStream(cursor.table("the name of a stream"), there)
    view = cursor.accept("view")
    if not view and cursor.word() != "table":
        known = "only SCHEMA, TABLE, VIEW, STREAM, TAG and BRANCH can be dropped"
        raise Invalid(f"DROP {cursor.word().upper()} is not supported: {known}")
    if not view:
        cursor.expect("table")
    if_exists = cursor.accept("if", "exists")
    name = cursor.table("the name of a view" if view else "the name of a table")
    if cursor.word() in ("cascade", "restrict", "purge"):
        raise Invalid(f"DROP … {cursor.word().upper()} is not supported: vacuum deletes files that nothing needs")
    return ("drop view", nodes.DropView(name, if_exists)) if view else ("drop table", nodes.DropTable(name, if_exists))


def _attach(cursor: Cursor) -> tuple[str, nodes.Node]:
    """Read ATTACH 'uri' AS name, as DuckDB has it."""
    cursor.expect("attach")
    lenient = cursor.accept("if", "not", "exists")
    uri = cursor.string("the path or URI of a Delta table")
    cursor.expect("as")
    name = cursor.table()
    if cursor.accept("("):
        more = True
        while more:
            if not cursor.accept("read_only") and not cursor.accept("type", "delta"):
                raise cursor.wrong("TYPE DELTA or READ_ONLY: only Delta tables can be attached")
            more = cursor.accept(",")
        cursor.expect(")")
    return "attach", nodes.Attach(name, uri, lenient)


def _detach(cursor: Cursor) -> tuple[str, nodes.Node]:
    cursor.expect("detach")
    cursor.accept("table")
    lenient = cursor.accept("if", "exists")
    return "detach", nodes.Attach(cursor.table(), None, lenient)


def _refresh(cursor: Cursor) -> tuple[str, nodes.Node]:
    cursor.expect("refresh")
    if cursor.word() == "materialized":
        raise Invalid("REFRESH MATERIALIZED VIEW is not supported: call table.refresh(), or run `alluvia refresh`")
    cursor.accept("external")
    cursor.accept("table")
    return "refresh", nodes.External(cursor.table())


def _undrop(cursor: Cursor) -> tuple[str, nodes.Node]:
    cursor.expect("undrop")
    cursor.accept("table")
    name = cursor.table()
    version = None
    if cursor.accept("to"):
        cursor.expect("version")
        cursor.accept("as", "of")
        version = cursor.number("the version in which it was dropped")
    return "undrop", nodes.Maintain("undrop", name, version=version)


def _optimize(cursor: Cursor) -> tuple[str, nodes.Node]:
    cursor.expect("optimize")
    cursor.accept("table")
    name = cursor.table()
    full = cursor.accept("full") or cursor.accept("final")
    backfill = not full and cursor.accept("backfill")
    if cursor.word() == "where":
        raise Invalid("OPTIMIZE … WHERE is not supported: call table.optimize(partition={…})")
    if cursor.word() == "zorder":
        raise Invalid("OPTIMIZE … ZORDER BY is not supported: ALTER TABLE … CLUSTER BY (…), and then OPTIMIZE … FULL")
    return "optimize", nodes.Maintain("optimize", name, full=full, backfill=backfill)


def _vacuum(cursor: Cursor) -> tuple[str, nodes.Node]:
    cursor.expect("vacuum")
    cursor.accept("table")
    name = cursor.table()
    hours, dry_run = None, False
    while not cursor.ended:
        if cursor.accept("retain"):
            hours = cursor.number("a number of hours")
            if not cursor.accept("hours"):
                cursor.expect("hour")
        else:
            cursor.expect("dry", "run")
            dry_run = True
    return "vacuum", nodes.Maintain("vacuum", name, hours=hours, dry_run=dry_run)


def _restore(cursor: Cursor) -> tuple[str, nodes.Node]:
    cursor.expect("restore")
    if cursor.accept("lake"):
        return "restore lake", _restore_lake(cursor)
    cursor.accept("table")
    name = cursor.table()
    cursor.expect("to")
    if cursor.accept("version"):
        cursor.accept("as", "of")
        return "restore", nodes.Restore(name, cursor.number("a version"), None)
    if cursor.accept("offset"):
        return "restore", nodes.Restore(name, None, None, cursor.string("how long ago"))
    if cursor.accept("tag"):
        return "restore", nodes.Restore(name, None, None, tag=cursor.string("the name of a tag"))
    if not cursor.accept("timestamp"):
        raise cursor.wrong("VERSION AS OF, TIMESTAMP AS OF, OFFSET or TAG")
    cursor.accept("as", "of")
    return "restore", nodes.Restore(name, None, cursor.string("a timestamp"))


def _restore_lake(cursor: Cursor) -> nodes.RestoreLake:
    cursor.expect("to")
    if cursor.accept("offset"):
        node = nodes.RestoreLake(offset=cursor.string("how long ago"))
    elif cursor.accept("tag"):
        node = nodes.RestoreLake(tag=cursor.string("the name of a tag"))
    else:
        if not cursor.accept("timestamp"):
            raise cursor.wrong("TIMESTAMP AS OF, OFFSET or TAG")
        cursor.accept("as", "of")
        node = nodes.RestoreLake(timestamp=cursor.string("a timestamp"))
    return replace(node, dry_run=True) if cursor.accept("dry", "run") else node


def _begin(cursor: Cursor) -> tuple[str, nodes.Node]:
    if cursor.accept("start"):
        cursor.expect("transaction")
    else:
        cursor.expect("begin")
        if not cursor.accept("transaction"):
            cursor.accept("work")
    return "begin", nodes.Control("begin", read_isolation(cursor))


def _commit(cursor: Cursor) -> tuple[str, nodes.Node]:
    cursor.at += 1
    if not cursor.accept("transaction"):
        cursor.accept("work")
    return "commit", nodes.Control("commit")


def _rollback(cursor: Cursor) -> tuple[str, nodes.Node]:
    cursor.at += 1
    if not cursor.accept("transaction"):
        cursor.accept("work")
    if cursor.word() == "to":
        raise Invalid("ROLLBACK TO is not supported: a transaction has no savepoints")
    return "rollback", nodes.Control("rollback")


def _merge(cursor: Cursor) -> tuple[str, nodes.Node]:
    if cursor.word(1) == "branch":
        return "publish branch", read_publish(cursor)
    return read_merge(cursor)


def _publish(cursor: Cursor) -> tuple[str, nodes.Node]:
    return "publish branch", read_publish(cursor)


READERS: Mapping[str, Reader] = {
    "insert": read_insert,
    "update": read_update,
    "delete": read_delete,
    "truncate": read_truncate,
    "merge": _merge,
    "publish": _publish,
    "create": read_create,
    "comment": read_comment,
    "alter": read_alter,
    "drop": _drop,
    "refresh": _refresh,
    "attach": _attach,
    "detach": _detach,
    "undrop": _undrop,
    "optimize": _optimize,
    "vacuum": _vacuum,
    "restore": _restore,
    "begin": _begin,
    "start": _begin,
    "commit": _commit,
    "end": _commit,
    "rollback": _rollback,
    "abort": _rollback,
}
"""What reads a statement, by its first word."""
