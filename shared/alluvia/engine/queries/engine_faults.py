"""Queries for which DuckDB 1.5 returns wrong rows: they are refused, or run without the faulty optimizer rule. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from alluvia.engine.queries.parse import Node, walk
from alluvia.engine.queries.time_travel import lexed
from alluvia.errors import Invalid

_DETAIL = "is not supported: DESCRIBE t has the columns, DESCRIBE DETAIL t properties, layout and size"
_HEADS = {
    "show tables like": "SHOW TABLES LIKE is not supported: SELECT name FROM tables() WHERE name LIKE '…'",
    "show tables in": "SHOW TABLES IN is not supported: a lake has one schema, so SHOW TABLES shows all",
    "show columns": "SHOW COLUMNS is not supported: DESCRIBE t, or SELECT * FROM columns('t')",
    "show tblproperties": "SHOW TBLPROPERTIES is not supported: DESCRIBE DETAIL t has the properties",
    "show partitions": "SHOW PARTITIONS is not supported: SELECT * FROM partitions('t')",
    "describe extended": f"DESCRIBE EXTENDED {_DETAIL}",
    "describe formatted": f"DESCRIBE FORMATTED {_DETAIL}",
    "describe table extended": f"DESCRIBE TABLE EXTENDED {_DETAIL}",
    "describe table formatted": f"DESCRIBE TABLE FORMATTED {_DETAIL}",
}
_WITH = {
    "insert": "WITH stands behind the table: INSERT INTO t WITH … SELECT …",
    "update": "WITH … UPDATE is not supported: UPDATE t SET … WHERE id IN (WITH … SELECT …), or MERGE INTO",
    "delete": "WITH … DELETE is not supported: DELETE FROM t WHERE id IN (WITH … SELECT …)",
    "merge": "WITH … MERGE is not supported: MERGE INTO t USING (WITH … SELECT …) AS s ON …",
}


def instead_of(text: str) -> str | None:
    """Return what to write instead of a text that DuckDB's parser has refused; None where nothing is known."""
    tokens = lexed(text)
    words = [token.word for token in tokens]
    start = " ".join(words[:3]).replace("desc ", "describe ") + " "
    head = next((said for begin, said in _HEADS.items() if start.startswith(begin + " ")), None)
    if head is not None:
        return head
    for at, token in enumerate(tokens):
        if words[at : at + 2] == ["before", "("] and words[at + 3 : at + 4] in (["=>"], [":="]):
            return "BEFORE (…) is not supported: AT (VERSION => n) with the version before, or an earlier moment"
        if (
            words[at : at + 3] in (["version", "as", "of"], ["system_version", "as", "of"])
            and "-" in words[at + 3 :][:1]
        ):
            return (
                "VERSION AS OF takes the number of a version, 0 or more, as FROM history('t') shows them; AT (OFFSET "
                "=> '1 hour ago') goes back in time"
            )
        near = text[token.start : token.start + 12]
        if token.word == "@" and at and tokens[at - 1].end == token.start and near[1:2] in ("v", "V"):
            version = near[2:].split()[0] if near[2:].split() else ""
            if version.isdecimal():
                return f"@v{version} is not supported: t VERSION AS OF {version}"
    return None


def instead_of_with(text: str) -> str | None:
    """Return what to write instead of a WITH that no SELECT follows; None for a SELECT, and where nothing is known."""
    depth = 0
    for token in lexed(text):
        depth += {"(": 1, ")": -1}.get(token.word, 0)
        if not depth and token.word in _WITH:
            return _WITH[token.word]
    return None


TOP_N = "top_n"
"""DuckDB's rule that stops early to read rows for ORDER BY with LIMIT.

It keeps the rows that it has so far as a condition on the column below a cast. Where the cast is to a smaller kind of
whole numbers, that condition is wrong, and it leaves out rows that belong to the answer.
"""
_WHOLE = frozenset(f"{sign}{name}" for sign in ("", "U") for name in ("TINYINT", "SMALLINT", "INTEGER", "BIGINT"))
_CONDITIONS = ("where_clause", "having", "qualify", "condition", "when_expr", "filter")


def rules_left_out(root: Node, *, of_views: bool) -> tuple[str, ...]:
    """Return the rules of DuckDB's optimizer that give wrong rows for a query.

    `of_views` says that it reads relations made of other queries, whose casts are not in it.
    """
    kinds = {modifier["type"] for node in walk(root) for modifier in node.get("modifiers") or ()}
    sorts = "ORDER_MODIFIER" in kinds and any(kind.startswith("LIMIT") for kind in kinds)
    casts = of_views or any(node.get("class") == "CAST" and node["cast_type"]["id"] in _WHOLE for node in walk(root))
    return (TOP_N,) if sorts and casts else ()


def check_row_values(root: Node) -> None:
    """Raise `Invalid` for a row of values that is looked for among a subquery's where a null in one may decide.

    DuckDB takes a null in any value of a row for one in all of them, also where another value tells the rows apart.
    A condition that must be true for rows is safe: in it, unknown and false are alike.
    """
    safe = {id(node) for condition in _conditions(root) for node in _parts(condition)}
    for node in walk(root):
        rows = node.get("class") == "SUBQUERY" and node.get("subquery_type") == "ANY" and _is_row(node.get("child"))
        if rows and (id(node) not in safe or node.get("comparison_type") != "COMPARE_EQUAL"):
            raise Invalid(
                "(a, b) NOT IN (SELECT …), and other comparisons of a row of values with those of a subquery, give "
                "wrong answers where one of the values is null: write NOT EXISTS (SELECT 1 FROM … WHERE x = a AND "
                "y = b); (a, b) IN (SELECT …) is possible as a condition that is neither negated nor part of a value"
            )


def _conditions(root: Node) -> Iterator[Node]:
    for node in walk(root):
        for name in _CONDITIONS:
            if isinstance(condition := node.get(name), dict):
                yield condition


def _parts(condition: Node) -> Iterator[Node]:
    """Yield a condition, and those that AND and OR make it of."""
    pending = [condition]
    while pending:
        node = pending.pop()
        yield node
        if node.get("class") == "CONJUNCTION":
            pending.extend(node["children"])


def _is_row(node: object) -> bool:
    return isinstance(node, dict) and node.get("class") == "FUNCTION" and node.get("function_name") == "row"
