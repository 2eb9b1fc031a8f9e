"""Which table a name in a query means: `x.t` is in the schema `x`, or else on the branch `x`.

CREATE SCHEMA refuses the name of a branch, and CREATE BRANCH that of a schema, so a lake seldom has both. Where two
writers have made both at the same time, a table in the schema comes first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import replace

from alluvia.delta.snapshot import Snapshot
from alluvia.engine.queries.references import At, References
from alluvia.errors import Forbidden, TableNotFound
from alluvia.operations.catalog.catalog import Catalog


def resolve(catalog: Catalog, references: References) -> tuple[References, dict[str, Snapshot]]:
    """Return what a query names, and the newest version of each table that is named without one, at one moment.

    Versions are by name. A missing table is left out: `plan_scans` raises for it.
    """
    newest = newest_snapshots(catalog, references)
    settled_ones = settled(catalog, references, newest)
    if settled_ones is not references:
        newest |= newest_snapshots(catalog, settled_ones, known=newest)
    return settled_ones, newest


def newest_snapshots(
    catalog: Catalog, references: References, known: Mapping[str, Snapshot] | None = None
) -> dict[str, Snapshot]:
    """Return the newest version of each table that is named without one, by name, all at one moment."""
    named = {each.table for each in references.tables if each.table is not None and each.at == At()}
    return catalog.readable(named - (known or {}).keys())


def settled(catalog: Catalog, references: References, there: Collection[str]) -> References:
    """Return what a query names with each name that has several meanings settled, as far as a table or branch is there.

    `there` are tables that are known to be there; those that are named without a version, and that it lacks, are not.
    """
    open_ones = {each.table: each for each in references.tables if each.otherwise and each.table not in there}
    if not open_ones:
        return references
    versioned = [name for name, each in open_ones.items() if name is not None and each.at != At()]
    found = catalog.readable(versioned) if versioned else {}
    meant = {name: _on_branch(catalog, each.otherwise) for name, each in open_ones.items() if name not in found}
    tables = [
        replace(each, table=other, otherwise=()) if (other := meant.get(each.table)) is not None else each
        for each in references.tables
    ]
    return References(tables, references.selects, references.ctes)


def _on_branch(catalog: Catalog, names: Collection[str]) -> str | None:
    """Return the first of some names whose branch is there, and whose table may be read. A GET and a HEAD for each."""
    for name in names:
        with suppress(TableNotFound, Forbidden):
            catalog.handle(name)
            return name
    return None
