"""Which columns of a version are hidden from a caller: by any name that they have, have had, or have elsewhere."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress

from alluvia.delta.schema.former_names import Names, former_names, together
from alluvia.delta.schema.names import fold
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import TableNotFound
from alluvia.operations.catalog.catalog import Catalog
from alluvia.table_names import MAIN, split_branch


def newest_versions(catalog: Catalog, name: str) -> list[Snapshot]:
    """Return the versions that say what a table's columns are called now; of one on a branch, the lake's comes second.

    The lake may have dropped it: what was on record then still counts.
    """
    found = [catalog.handle(name).newest()]
    branch, table = split_branch(name)
    if (branch or catalog.origin) not in ("", MAIN):
        with suppress(TableNotFound):  # the branch has created it
            found.append(catalog.handle(f"{MAIN}:{table}").newest(dropped=True))
    return found


def names_known(versions: Sequence[Snapshot]) -> Names:
    """Return the names that columns have in versions of a table, or that are on record there, by those in files.

    Columns that have only the name that they have in files may be left out.
    """
    present = ((one.physical_name(name), name) for one in versions for name in one.schema.names)
    return together(
        *(former_names(one.properties) for one in versions),
        *({stored: (name,)} for stored, name in present if stored != name),
    )


def hidden_columns(snapshot: Snapshot, newest: Sequence[Snapshot], hide: Collection[str]) -> frozenset[str]:
    """Return the columns of a version that have one of the names in `hide` (folded), or had it in any version.

    `newest` are `newest_versions`. A column is known by the name that it has in files. One that is neither in the
    newest version nor on record was dropped by somebody who keeps no record: it may have had any name, so it is hidden.
    """
    if not hide:
        return frozenset()
    versions = (snapshot, *newest)
    there = {newest[0].physical_name(name) for name in newest[0].schema.names}
    there.update(stored for one in versions for stored in former_names(one.properties))
    known = names_known(versions)
    return frozenset(
        name
        for name in snapshot.schema.names
        for stored in (snapshot.physical_name(name),)
        if stored not in there or any(fold(each) in hide for each in (name, stored, *known.get(stored, ())))
    )
