"""CREATE TAG and DROP TAG, from their tokens. Pure."""

from __future__ import annotations

from alluvia.sql import nodes
from alluvia.sql.tokens import Cursor


def read_tag(cursor: Cursor, *, or_replace: bool) -> nodes.CreateTag:
    """Read CREATE TAG x [ON TABLE t] [VERSION AS OF n | TIMESTAMP AS OF '…'] [RETAIN '30d'], from TAG on."""
    cursor.expect("tag")
    name, table = _name(cursor), _table(cursor)
    version = timestamp = retain = None
    if table is not None and cursor.accept("version"):
        cursor.accept("as", "of")
        version = cursor.number("a version")
    elif cursor.accept("timestamp"):
        cursor.accept("as", "of")
        timestamp = cursor.string("a timestamp")
    if cursor.accept("retain"):
        retain = _retain(cursor)
    return nodes.CreateTag(name, table, version, timestamp, retain, or_replace)


def read_drop_tag(cursor: Cursor) -> nodes.DropTag:
    """Read DROP TAG [IF EXISTS] x [ON TABLE t], from TAG on."""
    cursor.expect("tag")
    if_exists = cursor.accept("if", "exists")
    return nodes.DropTag(_name(cursor), _table(cursor), if_exists)


def _name(cursor: Cursor) -> str:
    """Take a name, as text where it has characters that a name in SQL has not."""
    return cursor.string("the name of a tag") if cursor.is_text else cursor.identifier("the name of a tag").lower()


def _table(cursor: Cursor) -> str | None:
    if not cursor.accept("on"):
        return None
    cursor.accept("table")
    return cursor.table()


def _retain(cursor: Cursor) -> str:
    if cursor.is_text:
        return cursor.string("how long the tag is kept")
    number = cursor.number("how long the tag is kept, as in RETAIN 30 DAYS")
    unit = cursor.word()
    if unit.removesuffix("s") not in ("minute", "hour", "day", "week"):
        raise cursor.wrong("MINUTES, HOURS, DAYS or WEEKS")
    cursor.expect(unit)
    return f"{number} {unit}"
