"""Messages about columns that were added for fields of `properties`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alluvia.cli.terminal.terminal import tell

if TYPE_CHECKING:
    from alluvia.api.lake import Table
    from alluvia.operations.tables.evolve import Evolved


def say_promoted(table: Table, evolved: Evolved, *, backfill: bool = False) -> None:
    """Say what a promoted field means for queries, what names it, which values it lacks, and how it is backfilled."""
    from alluvia.events.ingest.new_columns import remarks

    columns = ", ".join(evolved.promoted)
    tell(f"queries find earlier and new events by {columns} and by the same names in properties")
    if evolved.named_in:
        tell(f"named in: {', '.join(evolved.named_in)}")
    for each in remarks(table.lake.catalog, table.name, evolved.promoted):
        tell(each)
    if not backfill:
        tell(
            f"alluvia evolve {table.name} --backfill moves the fields of earlier events to the columns at once; "
            "otherwise merges do so as they go"
        )
