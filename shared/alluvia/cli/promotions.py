"""Changes of a table's columns, and messages about columns that were added for fields of `properties`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from alluvia.cli.terminal.terminal import tell
from alluvia.cli.verb import Given
from alluvia.errors import Invalid

if TYPE_CHECKING:
    from alluvia.api.lake import Lake, Table
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


def evolve_columns(
    lake: Lake,
    table: str,
    properties: Given | None = None,
    unset: Sequence[str] = (),
    *,
    backfill: bool = False,
    force: bool = False,
    **columns: Any,
) -> dict[str, Any]:
    """Change columns and properties of a table, and report the effect on promoted fields."""
    changed = {**dict.fromkeys(unset), **(properties or {})}
    target = lake.table(table)
    answer: dict[str, Any] = {"table": table}
    if changed or columns:
        dropped = {field.column for field in target.snapshot().promoted} & set(columns.get("drop", ()))
        evolved = target.evolve(properties=changed, force=force, **columns)
        answer["version"] = evolved.version
        if dropped:
            tell(f"values of {', '.join(sorted(dropped))} that were in the column are gone from properties, too")
        if evolved.promoted:
            say_promoted(target, evolved, backfill=backfill)
    elif not backfill:
        raise Invalid(
            "nothing to change: give --add NAME:TYPE, --rename OLD=NEW, --drop NAME, --property, --unset or --backfill"
        )
    if backfill:
        done = target.optimize(backfill=True)
        answer |= {"version": done.version, "files_rewritten": done.files_removed}
    return answer
