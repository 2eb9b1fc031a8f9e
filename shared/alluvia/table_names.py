"""What the tables of a lake may be called. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from alluvia.errors import Invalid

REJECTS = "_rejects"
"""The table of a table's rejected events: `events/_rejects` as a path, `events._rejects` in SQL."""
MAIN = "lake"
"""What the lake itself is called where names of branches are given."""
DATABASE, SCHEMA = "memory", "main"
"""The database that DuckDB has for a query, and the schema of tables that are in no other one."""
NO_BRANCHES = (MAIN, SCHEMA, DATABASE, "information_schema")
"""What no branch can be called, since names in queries begin so that mean something else."""
NO_SCHEMAS = (*NO_BRANCHES, "pg_catalog", "system", "temp")
"""Names that no schema can have: engines and tools have schemas and databases of these names themselves."""
PLAIN_NAME = re.compile(r"[a-z][a-z0-9_]{0,127}")
"""The name of a table within its schema, and of a stream, which lies in no schema."""
SCHEMA_NAME = re.compile(rf"(?!(?:{'|'.join(NO_SCHEMAS)})(?![a-z0-9_]))[a-z][a-z0-9_]{{0,62}}")
"""Shorter than that of a table, so that file systems take both together as the name of a folder."""
TABLE_NAME = re.compile(rf"(?:{SCHEMA_NAME.pattern}\.)?{PLAIN_NAME.pattern}")
"""`events`, or `bronze.events` in the schema `bronze`. The folder of a table in the lake has its name."""
TABLE_OR_REJECTS = re.compile(rf"{TABLE_NAME.pattern}(/{REJECTS})?")
NAME_RULE = "up to 128 lower-case letters, digits and underscores, starting with a letter"
"""The rule that errors state for a table's name within its schema, and for a stream's."""
SCHEMA_RULE = "up to 63 lower-case letters, digits and underscores, starting with a letter"
TABLE_RULE = f"{NAME_RULE}; or put a schema of up to 63 in front, as in bronze.events"
STREAMS = "_alluvia/streams/"
"""The logs of streams, from the lake's root: tables without rows, which no table's name can mean."""
STREAM_LOG = re.compile(rf"{STREAMS}{PLAIN_NAME.pattern}")
_BRANCH = re.compile(r"[a-z0-9][a-z0-9_.-]{0,63}")


def check_name(name: object) -> None:
    """Raise `Invalid` for what cannot be a table's name."""
    if not isinstance(name, str) or not TABLE_OR_REJECTS.fullmatch(name):
        raise Invalid(f"table name {name!r:.100}: use {TABLE_RULE}")


def on_branch(branch: str, table: str) -> str | None:
    """Return the name that a query has for a table on a branch; None where no branch can have the name."""
    known = branch == MAIN or branch not in NO_BRANCHES
    return f"{branch}:{table}" if known and _BRANCH.fullmatch(branch) else None


def schema_of(table: str) -> str:
    """Return the schema that a table is in, by its own name, also with a branch in front."""
    schema, _, _ = split_branch(table)[1].rpartition(".")
    return schema or SCHEMA


def in_schema(schema: str, table: str) -> str:
    """Return the library's name of a table in a schema: `events` in `main`, `bronze.events` in `bronze`."""
    return table if schema in ("", SCHEMA) else f"{schema}.{table}"


def name_in_schema(table: str) -> str:
    """Return a table's name within its schema: `events` for `bronze.events`, `events/_rejects` for its rejects."""
    return split_branch(table)[1].rpartition(".")[2]


def new_name(table: str) -> str:
    """Return the library's name of a table that is to be created.

    Raises `Invalid` for one of rejected events: ingestion creates it with columns of its own, and needs these.
    """
    name = folder_name(table)
    if name.endswith(f"/{REJECTS}"):
        raise Invalid(f"table {sql_name(name)} cannot be created: ingestion creates tables of rejects")
    return name


def in_order(names: Iterable[str]) -> list[str]:
    """Return names of tables in order: those in `main`, and then those of each other schema."""
    return sorted(names, key=lambda name: (name.rpartition(".")[0], name))


def sql_name(table: str) -> str:
    """Return a table's name in SQL, unquoted: `bronze.events._rejects` for `bronze.events/_rejects`."""
    return table.replace("/", ".")


def lake_names(parts: Sequence[str], *, dotted: bool = False) -> tuple[str, ...]:
    """Return the lake's names for the meanings of a name in SQL, by its folded parts; the first existing one counts.

    These are `t`, `main.t`, `s.t`, `memory.s.t`, `branch.t`, `branch.main.t` and `branch.s.t`, each also with
    `._rejects` behind. `x.t` is a table in the schema `x`, or else one on the branch `x`. With `dotted`, a branch may
    have dots in its name. There are none for a name that no table can have, as one with an empty part.
    """
    *before, table = parts
    if not all(parts):
        return ()
    if table == REJECTS and before:
        *before, last = before
        table = f"{last}/{REJECTS}"
    if "." in table:  # no quotes make it the name of a table in a schema
        return ()
    if before[:1] == [DATABASE]:
        if before[1:] and before[1] not in NO_BRANCHES:
            return tuple(filter(TABLE_OR_REJECTS.fullmatch, [in_schema(".".join(before[1:]), table)]))
        before = before[1:]
    within_main = before[-1:] == [SCHEMA]
    if within_main:
        before.pop()
    readings: list[tuple[list[str], str]] = [(before, table)]  # branches, and what lies on them
    if before and not within_main:
        in_own_schema = before[:-1], in_schema(before[-1], table)
        # Of `a.b.t` as a text, the branch `a.b` came before schemas did.
        readings = [*readings, in_own_schema] if len(before) > 1 and dotted else [in_own_schema, *readings]
    names = []
    for branch, name in readings:
        if TABLE_OR_REJECTS.fullmatch(name) and (dotted or len(branch) < 2):
            names.append(on_branch(".".join(branch), name) if branch else name)
    return tuple(name for name in names if name is not None)


def split_branch(name: str) -> tuple[str, str]:
    """Return the branch of a name that a query has for a table, empty for none, and the table's own name."""
    branch, _, table = name.rpartition(":")
    return branch, table


def folder_name(name: str) -> str:
    """Return the library's name for a table's name in SQL: `t/_rejects` for `t._rejects`, `t` for `main.t`.

    Others are not changed.
    """
    named = next(iter(lake_names(name.split("."))), name)
    return name if ":" in named else named
