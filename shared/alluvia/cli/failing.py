"""The error message of a failed command: one line, in the terms of the command line, that names the table. Pure."""

from __future__ import annotations

import re

from alluvia.errors import AlluviaError, Invalid, TableExists, TableNotFound

_WORDS = (
    (re.compile(r"^from_version:"), "--from:"),
    (re.compile(r"\bpass exist_ok=True"), "give --exist-ok"),
    (re.compile(r"\bundrop\('([^']*)'\)"), r"`alluvia undrop \1`"),
    (re.compile(r"\bevolve\(add=…\)"), "`alluvia evolve --add NAME:TYPE`"),
    (re.compile(r"\bevolve\(…\)"), "`alluvia evolve --property NAME=VALUE`"),
)
"""What the library says to those who call it from Python, and what to type instead."""


def reason(error: BaseException, table: str | None = None) -> str:
    """Return an error as one line; with the table in front, if it has one and the line does not name it."""
    text = " ".join(message(error).split())
    return text if table is None or _names(text, table) else f"table {table}: {text}"


def message(error: BaseException) -> str:
    """Return an error as it is, with the lines that show where in a text it is."""
    text = str(error)
    if not isinstance(error, AlluviaError | OSError):
        text = f"unexpected {type(error).__name__}{': ' if text else ''}{text} (--debug shows where)"
    for pattern, words in _WORDS:
        text = pattern.sub(words, text)
    return text or type(error).__name__


def is_about_table(error: BaseException) -> bool:
    """Whether an error tells how a table is, and not what was asked of it, which its user has before them."""
    return isinstance(error, AlluviaError) and not isinstance(error, Invalid | TableExists | TableNotFound)


def _names(text: str, table: str) -> bool:
    name = re.escape(table)
    return re.search(rf"'{name}'|\btable {name}(?!\w)|(?<![\w/]){name}/", text) is not None
