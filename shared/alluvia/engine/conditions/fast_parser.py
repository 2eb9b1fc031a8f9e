"""Read the simplest conditions and values without DuckDB, into the very tree that its parser makes of them. Pure.

DuckDB takes 40 MB and a tenth of a second to load, which most conditions are not worth: comparisons of columns with
whole numbers and texts, IN, BETWEEN, IS NULL, arithmetic, AND, OR and NOT. Any text with more in it is left to DuckDB.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from alluvia.engine.queries.engine_tree import LOCATION, negated
from alluvia.engine.queries.parse import Node

LENGTH_MAX = 4096
DEPTH_MAX = 16
"""Of parentheses and NOT."""
KEYWORDS = frozenset(
    {
        "all", "analyse", "analyze", "and", "anti", "any", "array", "as", "asc", "asof", "asymmetric", "at",
        "authorization", "between", "bigint", "binary", "bit", "boolean", "both", "by", "case", "cast", "char",
        "character", "check", "coalesce", "collate", "collation", "column", "columns", "concurrently", "constraint",
        "create", "cross", "dec", "decimal", "default", "deferrable", "desc", "describe", "distinct", "do", "else",
        "end", "except", "exists", "extract", "false", "fetch", "float", "for", "foreign", "freeze", "from", "full",
        "generated", "glob", "group", "grouping", "grouping_id", "having", "ilike", "in", "initially", "inner",
        "inout", "int", "integer", "intersect", "interval", "into", "is", "isnull", "join", "lambda", "lateral",
        "leading", "left", "like", "limit", "map", "national", "natural", "nchar", "none", "not", "notnull", "null",
        "nullif", "numeric", "offset", "on", "only", "or", "order", "out", "outer", "overlaps", "overlay", "pivot",
        "pivot_longer", "pivot_wider", "placing", "position", "positional", "precision", "primary", "qualify",
        "real", "references", "returning", "right", "row", "select", "semi", "setof", "show", "similar", "smallint",
        "some", "struct", "substring", "summarize", "symmetric", "table", "tablesample", "then", "time",
        "timestamp", "to", "trailing", "treat", "trim", "true", "try_cast", "tuple", "union", "unique", "unpack",
        "unpivot", "using", "values", "varchar", "variadic", "verbose", "when", "where", "window", "with",
        "xmlattributes", "xmlconcat", "xmlelement", "xmlexists", "xmlforest", "xmlnamespaces", "xmlparse", "xmlpi",
        "xmlroot", "xmlserialize", "xmltable",
    }
)  # fmt: skip
"""The words that are not always a column's name where they stand without quotes: `duckdb_keywords()`."""
_TOKEN = re.compile(
    r"""[ \t\r\n]*(?:
    (?P<number>[0-9]+)(?![\w.])
    | (?P<text>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")+")
    | (?P<word>[A-Za-z_][A-Za-z0-9_]*)(?![\w$'"])
    | (?P<sign>[-+*/<>=~!@\#%^&|`?]+|[(),])
    | (?P<end>\Z))""",
    re.VERBOSE,
)
_COMPARISONS = {
    "=": "COMPARE_EQUAL",
    "==": "COMPARE_EQUAL",
    "<>": "COMPARE_NOTEQUAL",
    "!=": "COMPARE_NOTEQUAL",
    "<": "COMPARE_LESSTHAN",
    "<=": "COMPARE_LESSTHANOREQUALTO",
    ">": "COMPARE_GREATERTHAN",
    ">=": "COMPARE_GREATERTHANOREQUALTO",
}


class _NotPlainError(Exception):
    """The text holds more than what is read here."""


def plain_condition(text: str) -> Node | None:
    """Return the tree of a condition, without positions; None where DuckDB must read it."""
    return _read(text, lambda reader: reader.condition(DEPTH_MAX))


def plain_value(text: str) -> Node | None:
    """Return the tree of a value, such as `value + 1`, without positions; None where DuckDB must read it."""
    return _read(text, lambda reader: reader.sum())


def _read(text: str, what: Callable[[_Reader], Node]) -> Node | None:
    if len(text) > LENGTH_MAX:
        return None
    try:
        reader = _Reader(_tokens(text))
        tree = what(reader)
        reader.take("end")
    except _NotPlainError:
        return None
    return tree


def _tokens(text: str) -> list[tuple[str, str]]:
    tokens: list[tuple[str, str]] = []
    at = 0
    while not tokens or tokens[-1][0] != "end":
        token = _TOKEN.match(text, at)
        if token is None or token.lastgroup is None or "\0" in token[0] or not token[0].isascii():
            raise _NotPlainError
        kind, shown = token.lastgroup, token[token.lastgroup]
        word = shown.lower()
        tokens.append((word, shown) if kind == "sign" or (kind == "word" and word in KEYWORDS) else (kind, shown))
        at = token.end()
    return tokens


class _Reader:
    """Reads tokens from the front, each a kind and its text; a sign and a keyword are kinds of their own."""

    def __init__(self, tokens: Sequence[tuple[str, str]]) -> None:
        self._tokens = tokens
        self._at = 0

    def take(self, kind: str) -> str:
        token = self._took(kind)
        if token is None:
            raise _NotPlainError
        return token

    def _took(self, kind: str) -> str | None:
        token, text = self._tokens[self._at]
        if token != kind:
            return None
        self._at += 1
        return text

    def condition(self, depth: int) -> Node:
        return self._joined("or", lambda: self._joined("and", lambda: self._negation(depth)))

    def _joined(self, word: str, part: Callable[[], Node]) -> Node:
        """Read parts with AND or OR between them; DuckDB puts those of the first part at the front of all."""
        parts = [part()]
        while self._took(word) is not None:
            parts.append(part())
        if len(parts) == 1:
            return parts[0]
        kind = f"CONJUNCTION_{word.upper()}"
        children = [child for one in parts for child in (one["children"] if one["type"] == kind else [one])]
        return {"class": "CONJUNCTION", "type": kind, "alias": "", "children": children}

    def _negation(self, depth: int) -> Node:
        if not depth:
            raise _NotPlainError
        if self._took("not") is not None:
            return negated(self._negation(depth - 1))
        if self._took("(") is not None:
            inner = self.condition(depth - 1)
            self.take(")")
            return inner
        return self._test()

    def _test(self) -> Node:
        left = self.sum()
        kind, _ = self._tokens[self._at]
        if kind in _COMPARISONS:
            self._at += 1
            comparison = {"class": "COMPARISON", "type": _COMPARISONS[kind], "alias": ""}
            return {**comparison, "left": left, "right": self.sum()}
        if self._took("is") is not None:
            is_not = self._took("not") is not None
            self.take("null")
            return _operator("OPERATOR_IS_NOT_NULL" if is_not else "OPERATOR_IS_NULL", [left])
        is_not = self._took("not") is not None
        if self._took("in") is not None:
            return _operator("COMPARE_NOT_IN" if is_not else "COMPARE_IN", [left, *self._list()])
        if self._took("between") is not None:
            lower = self.sum()
            self.take("and")
            between = {"class": "BETWEEN", "type": "COMPARE_BETWEEN", "alias": ""}
            test = {**between, "input": left, "lower": lower, "upper": self.sum()}
            return negated(test) if is_not else test
        if is_not:
            raise _NotPlainError
        return left

    def _list(self) -> list[Node]:
        self.take("(")
        literals = [self._literal()]
        while self._took(",") is not None:
            literals.append(self._literal())
        self.take(")")
        return literals

    def sum(self) -> Node:
        return self._chain(("+", "-"), lambda: self._chain(("*", "%"), self._atom))

    def _chain(self, signs: Sequence[str], part: Callable[[], Node]) -> Node:
        tree = part()
        while self._tokens[self._at][0] in signs:
            sign = self.take(self._tokens[self._at][0])
            tree = _arithmetic(sign, tree, part())
        return tree

    def _atom(self) -> Node:
        quoted = self._took("quoted")
        if quoted is not None:
            return _column(quoted[1:-1].replace('""', '"'))
        word = self._took("word")
        return self._literal() if word is None else _column(word)

    def _literal(self) -> Node:
        text = self._took("text")
        if text is not None:
            return _constant("VARCHAR", text[1:-1].replace("''", "'"))
        negative = self._took("-") is not None
        number = int(self.take("number")) * (-1 if negative else 1)
        if abs(number) >= 1 << 63:
            raise _NotPlainError
        return _constant("INTEGER" if abs(number) < 1 << 31 else "BIGINT", number)


def _column(name: str) -> Node:
    return {"class": "COLUMN_REF", "type": "COLUMN_REF", "alias": "", LOCATION: 0, "column_names": [name]}


def _constant(kind: str, value: int | str) -> Node:
    held = {"type": {"id": kind, "type_info": None}, "is_null": False, "value": value}
    return {"class": "CONSTANT", "type": "VALUE_CONSTANT", "alias": "", "value": held}


def _operator(kind: str, children: list[Node]) -> Node:
    return {"class": "OPERATOR", "type": kind, "alias": "", "children": children}


def _arithmetic(sign: str, left: Node, right: Node) -> Node:
    return {
        "class": "FUNCTION",
        "type": "FUNCTION",
        "alias": "",
        "function_name": sign,
        "schema": "",
        "children": [left, right],
        "filter": None,
        "order_bys": {"type": "ORDER_MODIFIER", "orders": []},
        "distinct": False,
        "is_operator": True,
        "export_state": False,
        "catalog": "",
    }
