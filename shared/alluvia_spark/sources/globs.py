"""Patterns of keys, as shells and Hadoop have them. Pure.

`*` and `?` stand for characters within a level, `[a-z]` for one of some (`[!a-z]` for one of the others), `{a,b}` for
one of several patterns, and a level `**` for any number of levels.
"""

from __future__ import annotations

import re

from alluvia.errors import Invalid

_WILD = re.compile(r"[*?\[{]")
_PIECE = re.compile(r"(?:(?<=/)|^)\*\*(?:/|$)|\[[!^]?\]?[^\]/]*\]|.", re.DOTALL)
_FORMS = {"*": "[^/]*", "?": "[^/]", "**/": "(?:[^/]+/)*", "**": ".+"}
_IN_CLASS = str.maketrans({char: f"\\{char}" for char in "\\[&|~"})


def fixed_part(pattern: str) -> str:
    """Return the part of a pattern before its first wildcard, cut after a slash: what a listing can start from."""
    found = _WILD.search(pattern)
    return pattern if found is None else pattern[: pattern.rfind("/", 0, found.start()) + 1]


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
