"""What a caller may see of a table at some version: columns, and the rows for which its row filters hold.

A row filter is part of the relation that stands for the table in a query, and a wall within it: DuckDB evaluates no
part of the query on a row before the filter has let it through, so not even an error tells of other rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from alluvia.delta.lineage import is_dropped
from alluvia.delta.skipping.predicate import Predicate
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.conditions.predicates import all_of
from alluvia.errors import Forbidden, Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import Catalog
from alluvia.operations.reading.hidden_columns import hidden_columns, newest_versions
from alluvia.operations.reading.relations import ShownPart

if TYPE_CHECKING:
    from alluvia.engine.conditions.condition import Condition


@dataclass(frozen=True, slots=True)
class Visible:
    """`shown` of a table, the columns that its filters read, and what they need of files."""

    shown: ShownPart
    filtered_by: tuple[str, ...]
    predicate: Predicate


def visible(catalog: Catalog, snapshot: Snapshot, now_us: int) -> Visible | None:
    """Return what may be seen of a version; None: all of it. `now_us` is the query's time, in µs since the Unix epoch.

    Raises `Forbidden` where nothing would be left to see, or a row filter does not fit the version.
    """
    restriction = None if catalog.rights is None else catalog.rights.restriction(snapshot.name)
    if not restriction:
        return None
    newest = newest_versions(catalog, snapshot.name)
    hidden = hidden_columns(snapshot, newest, restriction.hide)
    columns = [name for name in snapshot.schema.names if name not in hidden]
    if not columns:
        raise Forbidden(f"this caller may see no column of {snapshot.name}")
    filters = [_filter(text, snapshot) for text in restriction.where]
    used = tuple(dict.fromkeys(name for each in filters for name in each.columns))
    _check_same(used, snapshot, [one for one in newest if not is_dropped(one.properties)])
    where = tuple(
        text if each.never_fails(snapshot.schema) else f"TRY(\n{text}\n)"
        for text, each in zip(restriction.where, filters, strict=True)
    )
    predicate = all_of(each.predicate_at(snapshot.schema, now_us) for each in filters)
    return Visible(ShownPart(tuple(columns), where), used, predicate)


def visible_schema(catalog: Catalog, snapshot: Snapshot) -> pa.Schema:
    """Return the columns that a catalog's caller may see of a version; none if it may see nothing of it."""
    try:
        seen = visible(catalog, snapshot, catalog.clock.now_ms() * 1000)
    except Forbidden:
        return pa.schema([])
    return snapshot.schema if seen is None else seen.shown.schema(snapshot)


def _filter(text: str, snapshot: Snapshot) -> Condition:
    from alluvia.engine.conditions.condition import condition  # most callers have no row filter

    try:
        return condition(text, snapshot.schema)
    except Invalid as error:
        raise _unfit(snapshot) from error


def _check_same(used: Sequence[str], snapshot: Snapshot, newest: Sequence[Snapshot]) -> None:
    """Raise `Forbidden` where a filter's columns are others in this version than they are now."""
    for name in used:
        for one in newest:
            if name not in one.schema.names or one.physical_name(name) != snapshot.physical_name(name):
                raise _unfit(snapshot)


def _unfit(snapshot: Snapshot) -> Forbidden:
    return Forbidden(f"the row filter of this caller does not fit version {snapshot.version} of {snapshot.name}")
