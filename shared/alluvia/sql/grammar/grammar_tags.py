"""CREATE TAG and DROP TAG, from their tokens. Pure."""

from __future__ import annotations

from alluvia.sql.grammar import nodes
from alluvia.sql.grammar.tokens import Cursor


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
