"""PIVOT without a list of values: find the values, and write the query that names them. Pure.

DuckDB runs such a PIVOT as several statements. The first makes an enum of the values. Here a query reads the values,
and the PIVOT gets them as IN (…).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from alluvia.engine.duck.literals import quote_text
from alluvia.engine.queries.tokens import CLOSING, OPENING, Token, whole_tokens
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass

VALUES_MAX = 1000
"""More values of one PIVOT must be named: each is a column."""
_PIVOTS = ("pivot", "pivot_wider")
_AFTER_ON = frozenset({"using", "group", "order", "limit", "offset", "union", "intersect", "except"})


@dataclass(frozen=True, slots=True)
class OpenPivot:
    """An expression without values in a PIVOT: its end in the text, its SQL, and the SQL of its rows."""

    end: int
    expression: str
    source: str
    names: str

    @property
    def start(self) -> int:
        """Return where the expression starts in the text."""
        return self.end - len(self.expression)

    @property
    def values_query(self) -> str:
        """Return the query for its values, as texts, in their order."""
        item = f"(\n{self.expression}\n)"
        return (
            f"{self.names} SELECT v FROM (SELECT DISTINCT {item} AS k, {item}::VARCHAR AS v FROM {self.source} "  # noqa: S608
            f"WHERE {item} IS NOT NULL) ORDER BY k LIMIT {VALUES_MAX + 1}"
        )

    def condition(self, values: Sequence[str]) -> str:
        """Return the expression with its values. Raises `Invalid` if there are none, or more than columns may be."""
        if not values or len(values) > VALUES_MAX:
            held = f"more than {VALUES_MAX} values" if values else "no value in any row"
            raise Invalid(f"PIVOT … ON {self.expression}: it has {held}: name those to show, as in IN ('a', 'b')")
        return f"({self.expression}) IN ({', '.join(map(quote_text, values))})"


def open_pivots(text: str) -> list[OpenPivot]:
    """Return the expressions without values of a query's PIVOTs, in order; none of a query that has parameters."""
    if not isinstance(text, str) or "pivot" not in text.lower():
        return []
    tokens = whole_tokens(text)
    if any(token.kind == "parameter" for token in tokens):
        return []
    return [pivot for at in _statements(tokens) for pivot in _of(text, tokens, at)]


def _statements(tokens: Sequence[Token]) -> Iterator[int]:
    """Yield the number of each token PIVOT that begins a query, alone, in parentheses, or after WITH."""
    depth = 0
    for at, token in enumerate(tokens):
        depth += (token.word in OPENING) - (token.word in CLOSING)
        if token.word in _PIVOTS and (
            at == 0
            or tokens[at - 1].word in ("(", "explain", "describe", "summarize")
            or (depth == 0 and tokens[0].word == "with" and tokens[at - 1].word == ")")
        ):
            yield at


def _of(text: str, tokens: Sequence[Token], at: int) -> Iterator[OpenPivot]:
    names = text[: tokens[at].start] if tokens[0].word == "with" and at else ""
    names = names if names.rstrip().endswith(")") else ""
    on = _until(tokens, at + 1, frozenset({"on"}))
    if on in (at + 1, len(tokens)) or tokens[on].word != "on":
        return
    source = text[tokens[at + 1].start : tokens[on - 1].end]
    first, end = on + 1, _until(tokens, on + 1, _AFTER_ON)
    while first < end:
        comma = min(_until(tokens, first, frozenset({","})), end)
        if not _has_values(tokens[first:comma]) and comma > first:
            yield OpenPivot(tokens[comma - 1].end, text[tokens[first].start : tokens[comma - 1].end], source, names)
        first = comma + 1


def _until(tokens: Sequence[Token], at: int, words: frozenset[str]) -> int:
    """Return the number of the first token, from one on, of some words outside of brackets, or of a bracket's end."""
    depth = 0
    while at < len(tokens):
        word = tokens[at].word
        if (depth == 0 and word in words) or (depth == 0 and word in CLOSING):
            break
        depth += (word in OPENING) - (word in CLOSING)
        at += 1
    return at


def _has_values(tokens: Sequence[Token]) -> bool:
    depth = 0
    for token in tokens:
        if depth == 0 and token.word == "in":
            return True
        depth += (token.word in OPENING) - (token.word in CLOSING)
    return False
