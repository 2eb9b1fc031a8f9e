"""What a query may ask of a rollup besides its rows: its rows as they would be now, and how fresh they are."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import pyarrow as pa

from alluvia.arrow_parquet import pq
from alluvia.clock import datetime_of
from alluvia.delta.properties import ROLLUP
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid, TableNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import Catalog
from alluvia.operations.reading.relations import Evaluate, LocalRows, Relation
from alluvia.rollups.change import PROGRESS, find_change, progress_of
from alluvia.rollups.computing import computing
from alluvia.rollups.definition import definition_of
from alluvia.rollups.refresh import source_of, touched_groups

LIVE, FRESHNESS = "_live", "_freshness"
"""What a query adds to a rollup's name for its rows as they would be now, and for how fresh they are."""
_FRESHNESS_SCHEMA = pa.schema(
    [
        ("source", pa.string()),
        ("version", pa.int64()),
        ("source_version", pa.int64()),
        ("newest_source_version", pa.int64()),
        ("versions_behind", pa.int64()),
        ("as_of", pa.timestamp("us", tz="UTC")),
    ]
)


@dataclass(frozen=True, slots=True)
class Freshness:
    """How fresh a rollup is. `source_version` is the version of its source that it shows; None before a first refresh.

    `as_of` is when the source was read for it. `newest_source_version` and `versions_behind` are None where the source
    is gone.
    """

    source: str
    version: int
    source_version: int | None
    newest_source_version: int | None
    versions_behind: int | None
    as_of: datetime | None


def freshness(catalog: Catalog, rollup: Snapshot, source: Snapshot | None = None) -> Freshness:
    """Return how fresh a rollup is, compared with a version of its source, by default the newest."""
    definition = definition_of(rollup)
    try:
        source = source or source_of(catalog, rollup)[1]
    except Invalid:
        return Freshness(definition.source, rollup.version, None, None, None, None)
    shown = progress_of(rollup, source)
    if shown is None:
        return Freshness(definition.source, rollup.version, None, source.version, source.version + 1, None)
    looked_ms = rollup.state.txns[PROGRESS].last_updated
    as_of = None if looked_ms is None else datetime_of(looked_ms)
    behind = max(0, source.version - shown)
    return Freshness(definition.source, rollup.version, shown, source.version, behind, as_of)


def derived(
    catalog: Catalog, name: str, snapshots: Mapping[str, Snapshot], evaluate: Evaluate, folder: Path, prefix: str
) -> tuple[pa.Schema, Relation] | None:
    """Return what `<rollup>_live` or `<rollup>_freshness` stands for in a query; None for any other name.

    `snapshots` are the versions that the query reads of its tables. Files of the relation's own go to `folder`, and
    the names of its inputs and views begin with `prefix`.
    """
    suffix = next((each for each in (LIVE, FRESHNESS) if name.endswith(each) and name != each), None)
    if suffix is None:
        return None
    try:
        wanted = name.removesuffix(suffix)
        rollup = snapshots.get(wanted) or catalog.handle(wanted).readable()
    except TableNotFound:
        return None
    if ROLLUP not in rollup.properties:
        return None
    source = snapshots.get(definition_of(rollup).source)
    if suffix == LIVE:
        return rollup.schema, live(catalog, rollup, source, evaluate, folder, prefix)
    rows = freshness(catalog, rollup, source)
    path = folder / f"{prefix}freshness.parquet"
    table = pa.Table.from_pylist([{name: getattr(rows, name) for name in _FRESHNESS_SCHEMA.names}], _FRESHNESS_SCHEMA)
    pq.write_table(table, path, store_schema=False)
    own = f"{prefix}rows"
    relation = Relation({own: LocalRows(path, _FRESHNESS_SCHEMA)}, {f"{prefix}result": f"FROM alluvia.{own}"})
    return _FRESHNESS_SCHEMA, relation


def live(
    catalog: Catalog, rollup: Snapshot, source: Snapshot | None, evaluate: Evaluate, folder: Path, prefix: str
) -> Relation:
    """Return the rows that a rollup would have after a refresh, at a version of its source, by default the newest."""
    handle, _ = source_of(catalog, rollup)
    if catalog.rights is not None:
        catalog.rights.check_sees_all(f"{rollup.name}{LIVE}", (rollup.name, handle.name))
    work = computing(rollup, prefix)
    try:
        change = find_change(handle, rollup, source or handle.readable())
        change, groups = touched_groups(work, handle, change, folder, evaluate)
    except Invalid as error:
        raise type(error)(f"what the rollup {rollup.name} lacks cannot be computed: {error}") from error
    if groups is None:
        return work.whole(change.source)
    if not groups.count:
        return work.unchanged(rollup)
    return work.updated(rollup, list(rollup.files), groups, change.source)
