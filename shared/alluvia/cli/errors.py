"""What the command line says about errors: one line in its own terms, and what to type where no lake is."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from urllib.parse import unquote, urlsplit

from alluvia.cli.terminal.terminal import escaped
from alluvia.errors import AlluviaError, Invalid, TableExists, TableNotFound

_WORDS = (
    (re.compile(r"^from_version:"), "--from:"),
    (re.compile(r"\bpass exist_ok=True"), "give --exist-ok"),
    (re.compile(r"\bpass force=True"), "give --force"),
    (re.compile(r"\bundrop\('([^']*)'\)"), r"`alluvia undrop \1`"),
    (re.compile(r"\bevolve\(add=…\)"), "`alluvia evolve --add NAME:TYPE`"),
    (
        re.compile(r"\blake\.branch\('([^']*)'\) cuts it, lake\.branches\(\) lists"),
        r"`alluvia branch create \1` creates it, `alluvia branch list` lists",
    ),
    (re.compile(r"\bevolve\(…\)"), "`alluvia evolve --property NAME=VALUE`"),
    (re.compile(r"\bpass it in parameters"), "give it with --param"),
)
"""What the library says to those who call it from Python, and what to type instead."""


_EXCERPT = re.compile(r"\n\n(LINE \d+: .*)\n( *)\^\Z")
"""A line of a query, and a caret below the character that an error is about."""


def reason(error: BaseException, table: str | None = None) -> str:
    """Return an error as one line, with the table in front, if it has one and the line does not name it.

    Two more lines show the place in a query, if the error has one.
    """
    said = message(error)
    excerpt = _EXCERPT.search(said)
    text = " ".join(said[: excerpt.start() if excerpt else None].split())
    text = text if table is None or _names(text, table) else f"table {table}: {text}"
    return f"{text}\n{excerpt[0].lstrip()}" if excerpt else text


def message(error: BaseException) -> str:
    """Return an error as it is, with the lines that show where in a text it is."""
    text = str(error)
    if isinstance(error, OSError) and error.filename and error.strerror and error.filename2 is None:
        text = f"{error.filename}: {error.strerror}"
    if not isinstance(error, AlluviaError | OSError):
        text = f"unexpected {type(error).__name__}{': ' if text else ''}{text} (--debug shows where)"
    for pattern, words in _WORDS:
        text = pattern.sub(words, text)
    return _EXCERPT.sub(_aligned, text) or type(error).__name__


def _aligned(excerpt: re.Match[str]) -> str:
    """Return an excerpt with the caret in its place on a terminal, where characters differ in width."""
    from alluvia.cli.terminal.layout import cell_width

    line, column = excerpt[1].replace("\t", " "), len(excerpt[2])
    return f"\n\n{line}\n{' ' * cell_width(escaped(line[:column]))}^"


def is_about_table(error: BaseException) -> bool:
    """Whether an error tells how a table is, and not what was asked of it, which its user has before them."""
    return isinstance(error, AlluviaError) and not isinstance(error, Invalid | TableExists | TableNotFound)


def _names(text: str, table: str) -> bool:
    name = re.escape(table)
    return re.search(rf"'{name}'|\btable {name}(?!\w)|(?<![\w/]){name}/", text) is not None


def folder_of(uri: str) -> Path | None:
    """Return the folder of a local lake; None for other lakes."""
    if uri.startswith("file:/"):
        return Path(unquote(urlsplit(uri).path))
    return Path(uri).expanduser() if uri and "://" not in uri else None


def check_place(uri: str) -> None:
    """Raise `Invalid` for the address of a server: commands work on the lake itself."""
    if uri.lower().startswith(("http://", "https://")):
        raise Invalid(
            f"--lake {uri.partition('?')[0]}: commands work on the lake itself, such as s3://bucket/prefix or a "
            "folder; ask a server by its HTTP routes, or in Python with alluvia.connect"
        )


def check_folder(folder: Path, uri: str, *, new: bool) -> None:
    """Raise `Invalid`, saying what to type, where no lake is in a folder; a new one may be where nothing is."""
    if folder.is_dir():
        if (folder / "_delta_log").is_dir():
            msg = f"{uri} is a table, not a lake: the lake is the folder that contains it; try --lake {_parent(folder)}"
            raise Invalid(msg)
        return
    if folder.exists():
        raise Invalid(f"{uri} is a file, not a folder: --lake must be a folder, which is created if it does not exist")
    file = next((each for each in folder.parents if each.exists() and not each.is_dir()), None)
    if file is not None:
        raise Invalid(f"{uri} cannot be a lake: {file} is a file, not a folder")
    if not new:
        raise Invalid(f"there is no lake at {uri} yet: {how_to_begin(uri)}")


def is_empty(folder: Path) -> bool:
    """Whether a folder holds no table, dropped or not. Asked before the library is loaded, which takes longer."""
    logs = ("_delta_log", "_rejects/_delta_log")
    return not any((each / log).is_dir() for each in folder.iterdir() for log in logs)


def how_to_begin(uri: str) -> str:
    """Return what to type for a first table."""
    lake = "" if uri == "./lake" else f" --lake {shlex.quote(uri)}"
    make = f"`alluvia create{lake} TABLE` or `alluvia ingest{lake} TABLE FILE`"
    return f"{make} creates a table; `alluvia demo{lake}` fills a lake"


def _parent(folder: Path) -> str:
    return shlex.quote(str(folder.absolute().parent))
