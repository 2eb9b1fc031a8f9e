"""What the tables of a lake may be called. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

REJECTS = "_rejects"
"""The table of a table's rejected events: `events/_rejects` as a path, `events._rejects` in SQL."""
TABLE_NAME = re.compile(r"[a-z][a-z0-9_]{0,127}")
TABLE_OR_REJECTS = re.compile(rf"{TABLE_NAME.pattern}(/{REJECTS})?")
STREAMS = "_alluvia/streams/"
"""The logs of streams, from the lake's root: tables without rows, which no table's name can mean."""
STREAM_LOG = re.compile(rf"{STREAMS}{TABLE_NAME.pattern}")
MAIN = "lake"
"""What the lake itself is called where names of branches are given."""
NO_BRANCHES = (MAIN, "main", "memory", "information_schema")
"""What no branch can be called, since names in queries begin so that mean something else."""
DATABASE, SCHEMA = "memory", "main"
"""The database and the schema that DuckDB has for a query. All tables are in them, so names may begin so."""
_BRANCH = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")


def on_branch(branch: str, table: str) -> str | None:
    """Return the name that a query has for a table on a branch; None for what cannot be a branch's name."""
    known = branch == MAIN or branch not in NO_BRANCHES
    return f"{branch}:{table}" if known and _BRANCH.fullmatch(branch) else None


def qualified(parts: Sequence[str]) -> tuple[list[str], str]:
    """Return the branch that a name in SQL has, and the table: `t`, or `t/_rejects`.

    The parts, folded, are those of `t`, `main.t`, `memory.main.t`, `branch.t` or `branch.main.t`, each also with
    `._rejects` behind. The name of a branch may have several parts. Nothing is checked.
    """
    *before, table = parts
    if table == REJECTS and before:
        *before, table = before
        table = f"{table}/{REJECTS}"
    if before[-1:] == [SCHEMA]:
        before.pop()
    return ([] if before == [DATABASE] else before), table


def lake_name(parts: Sequence[str], *, dotted: bool = False) -> str | None:
    """Return the lake's name for a table as SQL names it, by its folded parts; None if it cannot be a table's.

    With `dotted`, a branch may have dots in its name.
    """
    before, table = qualified(parts)
    if not TABLE_OR_REJECTS.fullmatch(table) or (len(before) > 1 and not dotted):
        return None
    return on_branch(".".join(before), table) if before else table


def split_branch(name: str) -> tuple[str, str]:
    """Return the branch of a name that a query has for a table, empty for none, and the table's own name."""
    branch, _, table = name.rpartition(":")
    return branch, table


def folder_name(name: str) -> str:
    """Return the library's name for a table's name in SQL: `t/_rejects` for `t._rejects`, `t` for `main.t`.

    Others are not changed.
    """
    named = lake_name(name.split("."))
    return name if named is None or ":" in named else named
