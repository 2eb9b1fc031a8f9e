"""What DuckDB's grammar lacks, in a form that its parser takes, such as `t(version => 3)` for versions of tables. Pure.

- `t AT (VERSION => 3)`, `AT (TIMESTAMP => …)`, `AT (OFFSET => '1 hour ago')`, before or after an alias
- `t VERSION AS OF 3`, `t TIMESTAMP AS OF '…'`, also with FOR
- `t(timestamp => …)`, `t(offset => '1 hour ago')`, whose names are words that DuckDB keeps for itself; likewise those
  of arguments of functions about the lake, such as `files('t', where => 'n > 1')`
- `columns('t')` where a table stands: elsewhere it is DuckDB's expression COLUMNS(…)

No text that DuckDB itself takes is changed, and no byte moves but those of such a clause and an alias before it, so
that positions stay what they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from alluvia.engine.queries.functions import LAKE_FUNCTIONS
from alluvia.engine.queries.tokens import CLOSING, OPENING, Token, whole_tokens

AGO = "ago"
"""What OFFSET is called where it reaches DuckDB, which keeps that word for itself."""
COLUMNS = "_column"
"""What `columns` is called there, which no table can be called."""
ARGUMENTS = {"cond": "where", "low": "from", "hi": "to", "most": "limit", "moment": "timestamp", AGO: AGO}
"""Names of arguments of `LAKE_FUNCTIONS`, by their names in the text for DuckDB."""
_RESERVED = {**{name: label for label, name in ARGUMENTS.items()}, "offset": AGO}
_HINT = re.compile(r"\bof\b|=>|:=|\bcolumns\b", re.IGNORECASE)
_UNITS = {"version": "version", "timestamp": "timestamp", "system_version": "version", "system_time": "timestamp"}
_LABELS = frozenset({"version", "timestamp", "offset", "tag"})
# What stands before a table in a query, and what may follow one that has no alias.
_BEFORE = frozenset({"from", "join", "table", "describe", "desc", "summarize", "into", "update", "using"})
_AFTER = frozenset(
    {
        "where", "group", "order", "having", "limit", "offset", "join", "left", "right", "full", "inner", "outer",
        "cross", "natural", "asof", "positional", "semi", "anti", "on", "using", "union", "intersect", "except",
        "window", "qualify", "select", "tablesample", "pivot", "unpivot", "returning", "when", "set",
    }
)  # fmt: skip


_QUERY, _TABLES, _EXPRESSION = "query", "tables", "expression"
"""What brackets hold, or a text as a whole."""
_QUERY_WORDS = frozenset(
    {"select", "from", "with", "values", "table", "describe", "summarize", "show", "pivot", "unpivot"}
)
_BEFORE_TABLES = frozenset({"from", "join", "lateral", ",", "("})
_AFTER_TABLES = frozenset(
    {
        "select", "where", "group", "having", "order", "window", "qualify", "limit", "offset",
        "union", "intersect", "except", "pivot", "unpivot", "values",
    }
)  # fmt: skip


def in_our_form(text: str) -> str:
    """Return a query's text with the versions of its tables as DuckDB's parser takes them, as many bytes long."""
    if _HINT.search(text) is None:
        return text
    tokens = whole_tokens(text)
    calls = frozenset(_calls_of_columns(tokens))
    parts: list[str] = []
    done = at = 0
    while at < len(tokens):
        if at in calls:
            parts += [text[done : tokens[at].start], COLUMNS]
            done = tokens[at].end
        edit = _as_of(text, tokens, at) or _at_clause(text, tokens, at) or _labelled(text, tokens, at)
        edit = edit or _argument_label(tokens, at)
        if edit is None:
            at += 1
            continue
        start, end, new, at = edit
        parts += [text[done:start], new, " " * (len(text[start:end].encode()) - len(new.encode()))]
        done = end
    return "".join([*parts, text[done:]])


_Edit = tuple[int, int, str, int]
"""Where a change begins and ends, the new text, and the number of the token from which to read on."""


def _words(tokens: Sequence[Token], at: int, count: int) -> list[str]:
    return [token.word for token in tokens[at : at + count]]


def _table(tokens: Sequence[Token], at: int) -> int | None:
    """Return the number of the first token of the name that ends at one, if it is where a table's name stands."""
    while at >= 2 and tokens[at - 1].word == "." and tokens[at - 2].is_name:
        at -= 2
    before = tokens[at - 1].word if at else ""
    return at if at and (before in _BEFORE or before in (",", "(")) else None


def _as_of(text: str, tokens: Sequence[Token], at: int) -> _Edit | None:
    """Read `t [FOR] VERSION AS OF 3` from the last token of the name on."""
    first = at + 1 + (_words(tokens, at + 1, 1) == ["for"])
    words = _words(tokens, first, 3)
    if len(words) < 3 or words[0] not in _UNITS or words[1:] != ["as", "of"] or first + 3 >= len(tokens):
        return None
    value = tokens[first + 3]
    if not tokens[at].is_name or value.kind not in ("text", "number") or _table(tokens, at) is None:
        return None
    shown, unit = text[value.start : value.end], _UNITS[words[0]]
    if unit == "timestamp":
        new = f"({shown})"
    elif value.kind == "number" or shown[1:-1].isdecimal():
        new = f"(version=>{shown.strip(chr(39))})"
    else:
        new = f"(tag=>{shown})"
    return tokens[at].end, value.end, new, first + 4


def _at_clause(text: str, tokens: Sequence[Token], at: int) -> _Edit | None:
    """Read `t AT (OFFSET => …)`, or `t AS e AT (…)`, from the last token before AT on."""
    words = _words(tokens, at + 1, 4)
    if len(words) < 4 or words[:2] != ["at", "("] or words[2] not in _LABELS or words[3] not in ("=>", ":="):
        return None
    end = _closing(tokens, at + 2)
    if end is None or not tokens[at].is_name:
        return None
    native = words[2] in ("version", "timestamp")
    table = _table(tokens, at)
    if table is None:  # an alias stands before it
        name = at - 2 if at >= 2 and tokens[at - 1].word == "as" else at - 1
        if native or name < 0 or not tokens[name].is_name or _table(tokens, name) is None:
            return None
    else:
        name = at
        following = tokens[end + 1] if end + 1 < len(tokens) else None
        if native and (following is None or not following.is_name or following.word in _AFTER):
            return None
    alias = text[tokens[name].end : tokens[at + 1].start]
    return tokens[name].end, tokens[end].end, _argument(text, tokens, at + 2, end) + alias, end + 1


def _labelled(text: str, tokens: Sequence[Token], at: int) -> _Edit | None:
    """Read `t(offset => …)` from the last token of the name on."""
    words = _words(tokens, at + 1, 3)
    if len(words) < 3 or words[0] != "(" or words[1] not in ("offset", "timestamp") or words[2] not in ("=>", ":="):
        return None
    end = _closing(tokens, at + 1)
    if end is None or not tokens[at].is_name or _table(tokens, at) is None:
        return None
    return tokens[at + 1].start, tokens[end].end, _argument(text, tokens, at + 1, end), end + 1


def _argument_label(tokens: Sequence[Token], at: int) -> _Edit | None:
    """Read the `where` of `files('t', where => …)`."""
    label = _RESERVED.get(tokens[at].word)
    if label is None or _words(tokens, at + 1, 1) not in (["=>"], [":="]) or not at or tokens[at - 1].word != ",":
        return None
    opening, depth = at - 1, 0
    while opening > 0 and (depth or tokens[opening].word != "("):
        depth += {")": 1, "(": -1}.get(tokens[opening].word, 0)
        opening -= 1
    if tokens[opening - 1].word not in LAKE_FUNCTIONS or _table(tokens, opening - 1) is None:
        return None
    return tokens[at].start, tokens[at].end, label, at + 1


def _calls_of_columns(tokens: Sequence[Token]) -> Iterator[int]:
    """Yield the number of each token `columns` that begins a call where a table stands: in FROM, or after JOIN.

    An opening bracket begins a query, if a word follows that does, more of a list of tables, if it stands in one, or
    an expression. FROM begins a list in a query alone: not in `extract(year FROM …)`, nor in `IS DISTINCT FROM`.
    """
    if all(token.word != "columns" for token in tokens):
        return
    kind, begun = _QUERY, False
    outer: list[tuple[str, bool]] = []
    for at, token in enumerate(tokens):
        before = tokens[at - 1].word if at else ""
        is_place = begun and before in _BEFORE_TABLES
        if token.word in OPENING:
            outer.append((kind, begun))
            following = tokens[at + 1].word if at + 1 < len(tokens) else ""
            is_query = token.word == "(" and following in _QUERY_WORDS
            kind = _QUERY if is_query else _TABLES if token.word == "(" and is_place else _EXPRESSION
            begun = kind == _TABLES
        elif token.word in CLOSING:
            kind, begun = outer.pop() if outer else (kind, begun)
        elif kind == _QUERY and token.word == "from" and before != "distinct":
            begun = True
        elif kind == _QUERY and token.word in _AFTER_TABLES:
            begun = False
        elif token.word == "columns" and is_place and _words(tokens, at + 1, 1) == ["("]:
            yield at


def _argument(text: str, tokens: Sequence[Token], opening: int, closing: int) -> str:
    """Return what stands in parentheses with the label that a function may have, or none for a moment."""
    label, value = tokens[opening + 1].word, text[tokens[opening + 2].end : tokens[closing].end]
    return {"timestamp": f"({value}", "offset": f"({AGO}=>{value}"}.get(label, f"({label}=>{value}")


def _closing(tokens: Sequence[Token], opening: int) -> int | None:
    depth = 0
    for number in range(opening, len(tokens)):
        depth += {"(": 1, ")": -1}.get(tokens[number].word, 0)
        if depth == 0:
            return number
    return None
