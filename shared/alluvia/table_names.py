"""What the tables of a lake may be called. Pure."""

from __future__ import annotations

import re

REJECTS = "_rejects"
"""The table of a table's rejected events: `events/_rejects` as a path, `events._rejects` in SQL."""
TABLE_NAME = re.compile(r"[a-z][a-z0-9_]{0,127}")
TABLE_OR_REJECTS = re.compile(rf"{TABLE_NAME.pattern}(/{REJECTS})?")
STREAMS = "_alluvia/streams/"
"""The logs of streams, from the lake's root: tables without rows, which no table's name can mean."""
STREAM_LOG = re.compile(rf"{STREAMS}{TABLE_NAME.pattern}")
REJECTS_IN_SQL = re.compile(rf"{TABLE_NAME.pattern}\.{REJECTS}")
MAIN = "lake"
"""What the lake itself is called where names of branches are given."""
NO_BRANCHES = (MAIN, "main", "memory", "information_schema")
"""What no branch can be called, since names in queries begin so that mean something else."""
_BRANCH = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")


def on_branch(branch: str, table: str) -> str | None:
    """Return the name that a query has for a table on a branch; None for what cannot be a branch's name."""
    known = branch == MAIN or branch not in NO_BRANCHES
    return f"{branch}:{table}" if known and _BRANCH.fullmatch(branch) else None


def split_branch(name: str) -> tuple[str, str]:
    """Return the branch of a name that a query has for a table, empty for none, and the table's own name."""
    branch, _, table = name.rpartition(":")
    return branch, table
