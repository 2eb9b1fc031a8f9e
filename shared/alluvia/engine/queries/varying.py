"""Whether a query may answer otherwise when it runs again on the same versions. Pure."""

from __future__ import annotations

from functools import lru_cache

from alluvia.delta.schema.names import fold
from alluvia.engine.queries.functions import VARYING_FUNCTIONS, VARYING_NAMES
from alluvia.engine.queries.parse import parse
from alluvia.engine.queries.tree import Node, walk
from alluvia.errors import Invalid


def varies(root: Node) -> bool:
    """Whether the answer may depend on the time, on chance, or on who asks: where in doubt, it does."""
    return any(_varies(node) for node in walk(root))


def condition_varies(text: str) -> bool:
    """Whether a condition does, given as text."""
    return query_varies(f"SELECT (\n{text}\n)")


@lru_cache(maxsize=256)
def query_varies(text: str) -> bool:
    """Whether a query does, given as text; one that cannot be read does."""
    try:
        return varies(parse(text).root)
    except Invalid:
        return True


def _varies(node: Node) -> bool:
    return node.get("sample") is not None or changes(node)


def changes(node: Node) -> bool:
    """Whether an expression is a call, or a name, of something that changes by itself."""
    kind = node.get("class")
    if kind in ("FUNCTION", "WINDOW"):
        name = fold(node["function_name"])
        return name in VARYING_FUNCTIONS or (name == "age" and len(node["children"]) == 1)
    names: list[str] = node["column_names"] if kind == "COLUMN_REF" else []
    return len(names) == 1 and fold(names[0]) in VARYING_NAMES
