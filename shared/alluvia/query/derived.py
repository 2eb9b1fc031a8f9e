"""Names in a query that stand for relations made of tables, such as `<rollup>_live`, and streams.

A table of such a name wins. The relation's SQL is made below this layer, and runs as confined as the
query: its views are made after the database is shut.

A query of a stream in a transaction moves the stream (`operations/transactions/lake_transaction.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from alluvia.delta.properties import MERGE_QUERY
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.conditions.constants import Constants
from alluvia.engine.queries.references import At, Reference, References
from alluvia.errors import Forbidden, Invalid, TableNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import Catalog
from alluvia.operations.merge_query.folding import FINAL, folded
from alluvia.operations.reading.relations import Evaluate, Files, LocalRows, Relation
from alluvia.query.limits import PlannedReads, QueryLimits
from alluvia.query.permitted import visible
from alluvia.query.scans import snapshots


def find_derived(
    catalog: Catalog,
    references: References,
    constants: Constants,
    newest: Mapping[str, Snapshot],
    evaluate: Evaluate,
    streams: StreamReading,
) -> dict[Reference, tuple[pa.Schema, Relation]]:
    """Return what the names stand for that no table has, with the columns of each; other names are left out.

    `newest` are the versions that the query reads of its tables; what `streams` reads goes to a folder that takes files
    of the relations' own. Raises what `plan_scans` does.
    """
    relations: dict[Reference, tuple[pa.Schema, Relation]] = {}
    read = dict(newest)
    for number, reference in enumerate(references.tables):
        name = reference.table
        if name is None or name in newest or reference.call is not None:
            continue
        prefix = f"derived_{number}_"
        relation = _final(catalog, reference, constants, read, prefix)
        if relation is None and reference.at == At() and not reference.is_function:
            from alluvia.rollups.asking import derived  # loads the change feed, which other queries do not need

            relation = derived(catalog, name, newest, evaluate, streams.folder, prefix)
            relation = relation or streams.relation(name, prefix)
        if relation is not None:
            relations[reference] = relation
    return relations


def _final(
    catalog: Catalog, reference: Reference, constants: Constants, read: dict[str, Snapshot], prefix: str
) -> tuple[pa.Schema, Relation] | None:
    """Return what `<table>_final` stands for; None for any other name. Raises what `final_snapshot` does."""
    snapshot = final_snapshot(catalog, reference, constants, read)
    return None if snapshot is None else (snapshot.schema, _folded_visible(catalog, snapshot, constants, prefix))


def final_snapshot(
    catalog: Catalog, reference: Reference, constants: Constants, read: dict[str, Snapshot]
) -> Snapshot | None:
    """Return the version of a table whose folded rows `<table>_final` stands for; None for any other name.

    `read` has, by name, the newest versions that the query reads, and gets those that are looked up.
    """
    name = (reference.table or "").removesuffix(FINAL)
    if name in ("", reference.table) or (reference.at != At() and reference.table in catalog):
        return None
    try:
        if not catalog.handle(name).newest().settings.merge_query:
            return None
    except TableNotFound:
        return None
    table = replace(reference, table=name)
    snapshot = snapshots(catalog, [table], constants, read)[table]
    if not snapshot.settings.merge_query:
        raise Invalid(
            f"{reference.shown}: version {snapshot.version} of {name} had no {MERGE_QUERY}; read {name} itself"
        )
    return snapshot


def _folded_visible(catalog: Catalog, snapshot: Snapshot, constants: Constants, prefix: str) -> Relation:
    """Return a version's rows, folded; those that may be seen, where that is the same before and after."""
    seen = visible(catalog, snapshot, constants.now_us)
    if seen is None:
        return folded(Files(snapshot, list(snapshot.files)), prefix)
    relation = folded(Files(snapshot, list(snapshot.files), shown=seen.shown), prefix)
    if seen.shown.columns != tuple(snapshot.schema.names) or not set(seen.filtered_by) <= set(relation.passing):
        raise Forbidden(f"this caller may read {snapshot.name} only in part, and its merge query would reveal the rest")
    return relation.narrowed(seen.predicate)


@dataclass(frozen=True, slots=True)
class StreamReading:
    """Reads streams for one query into files: none in a dry run, and only columns unless `with_rows` is true."""

    catalog: Catalog
    make_folder: Callable[[], Path]
    limits: QueryLimits
    reads: PlannedReads
    dry_run: bool
    with_rows: bool

    @property
    def folder(self) -> Path:
        """Return the folder, which is made at its first use."""
        return self.make_folder()

    def relation(self, name: str, prefix: str) -> tuple[pa.Schema, Relation] | None:
        """Return what a name stands for, with its columns; None if it is not a stream's.

        Names of inputs and views begin with `prefix`. Raises what `Catalog.read_stream` does, and `QueryTooCostly`.
        """
        stream = self.catalog.find_stream(name)
        if stream is None:
            return None
        if self.catalog.rights is not None:
            self.catalog.rights.check_sees_all(f"stream {name}", (stream.source,))
        if self.dry_run:
            raise Invalid(f"a dry run reads no rows, so it cannot read stream {name}: send the query without dry_run")
        from alluvia.arrow_parquet import pq  # queries without streams do without
        from alluvia.operations.streams.stream_batches import columns_of

        batch = self.catalog.read_stream(name) if self.with_rows else None  # else it would count as read
        schema = columns_of(self.catalog, stream) if batch is None else batch.schema
        path = self.folder / f"{prefix}stream.parquet"
        with pq.ParquetWriter(path, schema, store_schema=False) as writer:
            if batch is not None:
                self.reads.add_changes(stream.source, batch.bytes)
                for rows in batch.batches():
                    self.limits.check()
                    writer.write_batch(rows)
        own = f"{prefix}rows"
        return schema, Relation({own: LocalRows(path, schema)}, {f"{prefix}result": f"FROM alluvia.{own}"})
