"""Which rights a statement needs. Pure.

What queries read is checked where their tables are resolved (`query.permitted`).
"""

from __future__ import annotations

from alluvia.access.rights import ADMIN, APPEND, READ, WRITE, Rights
from alluvia.sql.grammar import nodes


def check_statement(rights: Rights, kind: str, node: nodes.Node) -> None:
    """Raise `Forbidden`, naming the scope that is missing, for a statement of some kind that is not granted.

    What changes rows, or tells of them otherwise than as rows, needs a table that may be read in full: its conditions,
    counts and errors would tell of rows and columns that may not be read.
    """
    if isinstance(node, nodes.Query | nodes.Control | nodes.RestoreLake):
        return  # which asks about each table that it finds
    if isinstance(node, nodes.CreateBranch | nodes.DropBranch | nodes.PublishBranch) or (
        isinstance(node, nodes.CreateTag | nodes.DropTag) and node.table is None
    ):
        rights.check_all(ADMIN, kind.upper())
        return
    if isinstance(node, nodes.Insert):
        rights.check(APPEND, node.table)
        return
    if isinstance(node, nodes.CreateStream):
        rights.check(READ, node.source)
        rights.check_sees_all(kind.upper(), (node.source,))
    named = nodes.CreateView | nodes.DropView | nodes.CreateStream | nodes.DropStream | nodes.Show
    name = node.name if isinstance(node, named) else node.table
    assert name is not None  # noqa: S101 - what concerns the whole lake is above
    if isinstance(node, nodes.Show):
        if not name:
            return  # it shows what may be read
        rights.check(READ, name)
    elif isinstance(node, nodes.Update | nodes.Delete | nodes.Merge):
        rights.check(WRITE, name)
        rights.check(READ, name)
    else:
        rights.check(ADMIN, name)
        if isinstance(node, nodes.Clone):
            rights.check(READ, node.source)
            rights.check_sees_all(kind.upper(), (node.source,))
    rights.check_sees_all(kind.upper(), (name,))
