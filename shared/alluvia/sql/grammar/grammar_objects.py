"""CREATE and DROP of schemas, branches, tags and streams, PUBLISH BRANCH and COMMENT ON, from their tokens. Pure."""

from __future__ import annotations

from typing import Any

from alluvia.errors import Invalid
from alluvia.operations.transactions.lake_commit import ISOLATION, SERIALIZABLE
from alluvia.sql.grammar import nodes
from alluvia.sql.grammar.cursor import Cursor
from alluvia.sql.grammar.grammar_options import read_comment_text

_NAME = "the name of a branch"
_INTO = ("main", "lake")


def read_schema(cursor: Cursor) -> nodes.CreateSchema:
    """Read CREATE SCHEMA [IF NOT EXISTS] s, from SCHEMA on."""
    cursor.expect("schema")
    if_not_exists = cursor.accept("if", "not", "exists")
    name = cursor.schema()
    if not cursor.ended:
        raise Invalid(
            f"CREATE SCHEMA … {cursor.word().upper()} is not supported: a schema has a name alone; tokens say who may "
            "use it"
        )
    return nodes.CreateSchema(name, if_not_exists)


def read_drop_schema(cursor: Cursor) -> nodes.DropSchema:
    """Read DROP SCHEMA [IF EXISTS] s [CASCADE | RESTRICT], from SCHEMA on."""
    cursor.expect("schema")
    if_exists = cursor.accept("if", "exists")
    name = cursor.schema()
    cascade = cursor.accept("cascade")
    if not cascade:
        cursor.accept("restrict")
    return nodes.DropSchema(name, if_exists, cascade)


def read_branch(cursor: Cursor) -> nodes.CreateBranch:
    """Read CREATE BRANCH [IF NOT EXISTS] x [AT (TAG => 'release')] [RETAIN 7 DAYS], from BRANCH on."""
    cursor.expect("branch")
    if_not_exists = cursor.accept("if", "not", "exists")
    name = read_keeper_name(cursor, _NAME)
    begin: dict[str, str] = {}
    if cursor.accept("at"):
        cursor.expect("(")
        unit = cursor.word()
        if unit not in ("timestamp", "offset", "tag"):
            raise cursor.wrong("TIMESTAMP => '…', OFFSET => '1 hour ago' or TAG => 'release'")
        cursor.expect(unit, "=>")
        begin[unit] = cursor.string("the name of a tag" if unit == "tag" else "a time")
        cursor.expect(")")
    retain = read_retain(cursor, "branch") if cursor.accept("retain") else None
    return nodes.CreateBranch(name, if_not_exists, **begin, retain=retain)


def read_drop_branch(cursor: Cursor) -> nodes.DropBranch:
    """Read DROP BRANCH [IF EXISTS] x, from BRANCH on."""
    cursor.expect("branch")
    if_exists = cursor.accept("if", "exists")
    return nodes.DropBranch(read_keeper_name(cursor, _NAME), if_exists)


def read_publish(cursor: Cursor) -> nodes.PublishBranch:
    """Read PUBLISH BRANCH x [ISOLATION LEVEL SNAPSHOT] [DRY RUN].

    MERGE BRANCH [DRY RUN] x [INTO main], as Nessie and Dremio have it, is the same.
    """
    is_merge = cursor.accept("merge")
    if not is_merge:
        cursor.expect("publish")
    cursor.expect("branch")
    dry_run = is_merge and cursor.accept("dry", "run")
    name = read_keeper_name(cursor, _NAME)
    if is_merge and cursor.accept("into") and read_keeper_name(cursor, "main") not in _INTO:
        raise Invalid("MERGE BRANCH … INTO: a branch is published to the lake that it was cut from: write INTO main")
    isolation = read_isolation(cursor)
    return nodes.PublishBranch(name, isolation, dry_run or cursor.accept("dry", "run"))


def read_isolation(cursor: Cursor) -> str:
    """Read [ISOLATION LEVEL …]."""
    if not cursor.accept("isolation"):
        return SERIALIZABLE
    cursor.expect("level")
    isolation = cursor.identifier("SERIALIZABLE, WRITE_SERIALIZABLE or SNAPSHOT").lower()
    if isolation not in ISOLATION:
        known = ", ".join(ISOLATION).upper()
        raise Invalid(f"ISOLATION LEVEL {isolation.upper()} is not supported: use one of {known}")
    return isolation


def read_tag(cursor: Cursor, *, or_replace: bool) -> nodes.CreateTag:
    """Read CREATE TAG x [ON TABLE t] [VERSION AS OF n | TIMESTAMP AS OF '…'] [RETAIN '30d'], from TAG on."""
    cursor.expect("tag")
    name, table = read_keeper_name(cursor, "the name of a tag"), _table(cursor)
    version = timestamp = retain = None
    if table is not None and cursor.accept("version"):
        cursor.accept("as", "of")
        version = cursor.number("a version")
    elif cursor.accept("timestamp"):
        cursor.accept("as", "of")
        timestamp = cursor.string("a timestamp")
    if cursor.accept("retain"):
        retain = read_retain(cursor, "tag")
    return nodes.CreateTag(name, table, version, timestamp, retain, or_replace)


def read_drop_tag(cursor: Cursor) -> nodes.DropTag:
    """Read DROP TAG [IF EXISTS] x [ON TABLE t], from TAG on."""
    cursor.expect("tag")
    if_exists = cursor.accept("if", "exists")
    return nodes.DropTag(read_keeper_name(cursor, "the name of a tag"), _table(cursor), if_exists)


def read_keeper_name(cursor: Cursor, what: str) -> str:
    """Take the name of a tag or a branch, as text where it has characters that a name in SQL has not."""
    return cursor.string(what) if cursor.is_text else cursor.identifier(what).lower()


def _table(cursor: Cursor) -> str | None:
    if not cursor.accept("on"):
        return None
    cursor.accept("table")
    return cursor.table()


def read_retain(cursor: Cursor, what: str) -> str:
    """Take what comes after RETAIN: how long a tag or a branch is kept, as text or as a number and a unit."""
    if cursor.is_text:
        return cursor.string(f"how long the {what} is kept")
    number = cursor.number(f"how long the {what} is kept, as in RETAIN 30 DAYS")
    unit = cursor.word()
    if unit.removesuffix("s") not in ("minute", "hour", "day", "week"):
        raise cursor.wrong("MINUTES, HOURS, DAYS or WEEKS")
    cursor.expect(unit)
    return f"{number} {unit}"


def read_stream(cursor: Cursor) -> nodes.CreateStream:
    """Read CREATE STREAM s ON TABLE t [AT (…)] [APPEND_ONLY = TRUE] [SHOW_INITIAL_ROWS = TRUE], from STREAM on."""
    cursor.expect("stream")
    if_not_exists = cursor.accept("if", "not", "exists")
    name = cursor.table("the name of a stream")
    cursor.expect("on")
    if cursor.word() == "view":
        raise Invalid("CREATE STREAM … ON VIEW is not supported: name a table that the view reads")
    cursor.accept("table")
    source = cursor.table()
    begin = _at(cursor) if cursor.accept("at", "(") else {}
    flags: dict[str, bool] = {}
    while not cursor.ended:
        flag = cursor.word()
        if flag not in ("append_only", "show_initial_rows") or flag in flags:
            raise cursor.wrong("APPEND_ONLY = TRUE or SHOW_INITIAL_ROWS = TRUE")
        cursor.expect(flag, "=")
        flags[flag] = cursor.word() == "true"
        if not cursor.accept("true"):
            cursor.expect("false")
    return nodes.CreateStream(
        name,
        source,
        if_not_exists,
        **begin,
        initial_rows=flags.get("show_initial_rows", False),
        appends_only=flags.get("append_only", False),
    )


def _at(cursor: Cursor) -> dict[str, Any]:
    unit = cursor.word()
    if unit not in ("version", "timestamp", "offset"):
        raise cursor.wrong("VERSION => n, TIMESTAMP => '…' or OFFSET => '1 hour ago'")
    cursor.expect(unit, "=>")
    value = cursor.number("a version") if unit == "version" else cursor.string("a time")
    cursor.expect(")")
    return {unit: value}


def read_comment(cursor: Cursor) -> tuple[str, nodes.Node]:
    """Read COMMENT ON TABLE t, COLUMN t.c or VIEW v IS '…' or NULL."""
    cursor.expect("comment")
    cursor.expect("on")
    kind = cursor.word()
    if not kind:
        raise cursor.wrong("TABLE, VIEW or COLUMN")
    if kind not in ("table", "column", "view"):
        raise Invalid(f"COMMENT ON {kind.upper()} is not supported: only TABLE, VIEW and COLUMN have comments")
    cursor.expect(kind)
    name, column = cursor.column_of_table() if kind == "column" else (cursor.table(f"the name of a {kind}"), None)
    cursor.expect("is")
    return "comment", nodes.Comment(kind, name, None if cursor.accept("null") else read_comment_text(cursor), column)
