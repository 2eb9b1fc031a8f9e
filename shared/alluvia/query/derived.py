"""Names in a query that are not tables but stand for relations made of tables, such as `<rollup>_live`.

A table of such a name wins. What SQL the relation takes is decided below this layer, and runs as confined as the
query: its views are made after the database is shut.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from alluvia.expressions.references import At, Reference, References
from alluvia.operations.catalog import Catalog
from alluvia.operations.relations import Evaluate, Relation
from alluvia.table.snapshot import Snapshot


def find_derived(
    catalog: Catalog, references: References, newest: Mapping[str, Snapshot], evaluate: Evaluate, folder: Path
) -> dict[Reference, tuple[pa.Schema, Relation]]:
    """Return what the names stand for that no table has, with the columns of each; other names are left out.

    `newest` are the versions that the query reads of its tables, and `folder` takes files of the relations' own.
    """
    found: dict[Reference, tuple[pa.Schema, Relation]] = {}
    for number, reference in enumerate(references.tables):
        name = reference.table
        if name is None or name in newest or reference.at != At() or reference.is_function:
            continue
        from alluvia.rollups.asking import derived  # loads the change feed, which other queries do not need

        relation = derived(catalog, name, newest, evaluate, folder, f"derived_{number}_")
        if relation is not None:
            found[reference] = relation
    return found
