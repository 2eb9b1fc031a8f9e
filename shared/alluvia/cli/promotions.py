"""Messages about columns that were added for fields of `properties`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alluvia.cli.terminal.terminal import tell

if TYPE_CHECKING:
    from alluvia.operations.tables.evolve import Evolved


def say_promoted(table: str, evolved: Evolved, *, backfill: bool = False) -> None:
    """Say what a promoted field means for queries, what names it, and how its values get into the column for good."""
    columns = ", ".join(evolved.promoted)
    tell(f"queries find earlier and new events by {columns} and by the same names in properties")
    if evolved.named_in:
        tell(f"named in: {', '.join(evolved.named_in)}")
    if not backfill:
        tell(
            f"alluvia evolve {table} --backfill moves the fields of earlier events to the columns at once; otherwise "
            "merges do so as they go"
        )
