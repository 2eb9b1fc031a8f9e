"""Where files of a source are: URIs, and the stores behind them.

`*` and `?` stand for characters within a level, `[a-z]` for one of some (`[!a-z]` for one of the others), `{a,b}` for
one of several patterns, and a level `**` for any number of levels.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote

from alluvia.clock import Clock
from alluvia.errors import Invalid
from alluvia.store import Store, open_store
from alluvia.store.uris import plain_uri

_WILD = re.compile(r"[*?\[{]")
_PIECE = re.compile(r"(?:(?<=/)|^)\*\*(?:/|$)|\[[!^]?\]?[^\]/]*\]|.", re.DOTALL)
_FORMS = {"*": "[^/]*", "?": "[^/]", "**/": "(?:[^/]+/)*", "**": ".+"}
_IN_CLASS = str.maketrans({char: f"\\{char}" for char in "\\[&|~"})


def fixed_part(pattern: str) -> str:
    """Return the part of a pattern before its first wildcard, cut after a slash: what a listing can start from."""
    wildcard = _WILD.search(pattern)
    return pattern if wildcard is None else pattern[: pattern.rfind("/", 0, wildcard.start()) + 1]


def compiled(pattern: str) -> re.Pattern[str]:
    """Return what fully matches the keys that fit a pattern, and those in a folder that fits. Raises `Invalid`."""
    forms, depth = [], 0
    for piece in _PIECE.findall(pattern.rstrip("/")):
        form, depth = _form(piece, depth)
        forms.append(form)
    if depth:
        raise Invalid(f"source {pattern!r} has a {{ without its }}")
    try:
        return re.compile("".join([*forms, "(?:/.*)?"]), re.DOTALL)
    except re.error as error:
        raise Invalid(f"source {pattern!r} is not a pattern: {error}") from error


def _form(piece: str, depth: int) -> tuple[str, int]:
    """Return what a piece of a pattern is as a regular expression, and how many braces are open after it."""
    if len(piece) > 2 and piece[0] == "[":
        negated = piece[1] in "!^"
        return f"[{'^/' if negated else ''}{piece[1 + negated : -1].translate(_IN_CLASS)}]".replace("[]", "[\\]"), depth
    if piece == "{":
        return "(?:", depth + 1
    if depth and piece in ("}", ","):
        return (")", depth - 1) if piece == "}" else ("|", depth)
    return _FORMS.get(piece) or re.escape(piece), depth


LOCAL = "file:///"


@dataclass(frozen=True, slots=True)
class SourceUri:
    """Where to look: a store's URI, and in it a key, a folder, or a pattern of keys."""

    root: str
    path: str


def parse(source: str) -> SourceUri:
    """Understand `s3://bucket/key`, `s3a://…`, `file:///path` or a path; raise `Invalid` for anything else.

    No `?` or `#` ends a path: the one is a wildcard, and both are characters of names.
    """
    source = plain_uri(source)
    scheme, separator, rest = source.partition("://")
    if not separator:
        return _local(source)
    bucket, _, path = rest.partition("/")
    if scheme == "file" and bucket in ("", "localhost"):
        return _local(unquote(f"/{path}"))
    if scheme not in ("s3", "s3a", "s3n") or not bucket or not path:
        raise Invalid(f"source {source!r} must be s3://bucket/path, s3a://bucket/path, file:///path, or a path")
    return SourceUri(f"s3://{bucket}", path)


def _local(path: str) -> SourceUri:
    if not path:
        raise Invalid("source is empty: give a file, a directory, a glob or an s3 URI")
    try:
        absolute = Path(path).expanduser().resolve()
    except (RuntimeError, OSError) as error:  # of links that lead to each other, by version of Python
        raise Invalid(f"source {path!r} cannot be followed: {error}") from error
    return SourceUri(LOCAL, absolute.as_posix().lstrip("/"))


class Stores:
    """The stores of a source, each opened once; `options` are those of stores on S3."""

    def __init__(self, clock: Clock, options: Mapping[str, str]) -> None:
        self._clock = clock
        self._options = options
        self._opened: dict[str, Store] = {}

    def open(self, root: str) -> Store:
        """Return the store whose URI is `root`."""
        if root not in self._opened:
            options = self._options if root.startswith("s3:") else {}
            self._opened[root] = open_store(root, self._clock, **options)
        return self._opened[root]


class Found(NamedTuple):
    """Some files of a source, as columns: the URIs of their stores, keys, sizes in bytes, and etags or ""."""

    roots: list[str]
    keys: list[str]
    sizes: list[int]
    etags: list[str]
