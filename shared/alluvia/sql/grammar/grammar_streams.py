"""CREATE STREAM, from its tokens. Pure."""

from __future__ import annotations

from typing import Any

from alluvia.errors import Invalid
from alluvia.sql.grammar import nodes
from alluvia.sql.grammar.tokens import Cursor


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
