"""A script cut into its statements, as its lines come: what `psql -f` and `duckdb` do with a file. Pure.

A statement ends with `;` outside of quotes and comments, by the rules of `engine.queries.tokens`. A statement
has a limit of size, but a script may have any number of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

_NEXT = re.compile(
    r"""(?P<comment>--[^\r\n]*+)
    | (?P<open>/\*)
    | (?P<escaped>[eE]')
    | (?P<number>(?:\d[\d_]*+)?\.?\d[\d_]*+(?:[eE][-+]?\d++)?)
    | (?P<word>[^\W\d][\w$]*+)
    | (?P<quote>['"])
    | (?P<dollar>\$(?:[^\W\d]\w*+)?\$)
    | (?P<parameter>\$\w++)
    | (?P<end>;)
    | (?P<other>\S)""",
    re.VERBOSE,
)
_ESCAPED_END = re.compile(r"(?:[^'\\]|\\.|'')*+'(?!')", re.DOTALL)
_COMMENT = re.compile(r"/\*|\*/")


class ScriptPart(NamedTuple):
    """A statement without its `;`, or a dot command; the line and the column of its first word, counted from 1."""

    text: str
    line: int
    column: int

    @property
    def is_dot_command(self) -> bool:
        """Whether it is a command such as `.tables`, and no SQL."""
        return self.text.startswith(".")


def script_parts(lines: Iterable[str]) -> Iterator[ScriptPart]:
    """Yield the statements and dot commands of a script, each as soon as the line that completes it is there.

    A dot command is a line that begins with a dot, outside of a statement. The last statement needs no `;`.
    """
    reader = _Reader()
    for number, line in enumerate(lines, 1):
        if not reader.within and re.match(r"\s*\.[A-Za-z]", line):
            yield ScriptPart(line.strip(), number, 1 + len(line) - len(line.lstrip()))
        else:
            yield from reader.take(line, number)
    yield from reader.ended()


class _Reader:
    """The parts that are open where a line ends: a statement, and a quote or a comment in it."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._at = (0, 0)
        self._closing: re.Pattern[str] | None = None
        self._depth = 0
        self.begun = False

    @property
    def within(self) -> bool:
        """Whether a statement or a comment is open."""
        return self.begun or self._depth > 0

    def take(self, line: str, number: int) -> Iterator[ScriptPart]:
        first, at = 0, 0
        while at < len(line):
            if self._depth:
                at = self._comment(line, at)
                continue
            if self._closing is not None:
                closed = self._closing.match(line, at)
                if closed is None:
                    break
                self._closing, at = None, closed.end()
                continue
            found = _NEXT.search(line, at)
            if found is None:
                break
            at = found.end()
            if found.lastgroup == "end":
                self._kept.append(line[first : found.start()])
                yield from self.ended()
                first = at
            elif found.lastgroup == "open":
                self._depth = 1
            elif found.lastgroup != "comment":
                if not self.begun:
                    first, self.begun = found.start(), True
                    self._kept, self._at = [], (number, first + 1)
                self._closing = _closing(found)
        self._kept.append(line[first:])

    def ended(self) -> Iterator[ScriptPart]:
        """Yield the statement that ends here, if one has begun."""
        if self.begun:
            yield ScriptPart("".join(self._kept).rstrip(), *self._at)
        self._kept, self.begun = [], False

    def _comment(self, line: str, at: int) -> int:
        mark = _COMMENT.search(line, at)
        if mark is None:
            return len(line)
        self._depth += 1 if mark[0] == "/*" else -1
        return mark.end()


def _closing(found: re.Match[str]) -> re.Pattern[str] | None:
    """Return what ends the quote that a token opens, matched from behind it; None for any other token."""
    if found.lastgroup == "escaped":
        return _ESCAPED_END
    if found.lastgroup in ("quote", "dollar"):
        return re.compile(f".*?{re.escape(found[0])}", re.DOTALL)
    return None
