"""Folding: what a table's merge query (`alluvia.merge_query`) makes of its rows, in optimize and when they are read.

What is folded is dropped and added in one commit, and the query gives the same over rows and over folded rows, so
`<table>_final` does not depend on what was folded when. Only a table with a merge query loads DuckDB for it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from alluvia.delta.arguments import check_names
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.log.actions import Metadata
from alluvia.delta.properties import MERGE_QUERY, read_properties
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid
from alluvia.operations.reading.relations import Evaluate, Files, Relation

FINAL = "_final"
"""What a query adds to a table's name for its rows as the merge query folds them."""


def check_declared(metadata: Metadata, own: Callable[[], pa.Table | None] = lambda: None) -> None:
    """Raise `Invalid` for a merge query that a table cannot have; `own` returns some of its rows."""
    if read_properties(metadata.configuration).merge_query:
        from alluvia.operations.merge_query.merge_query_checks import check_merge_query

        check_merge_query(metadata, own())


def check_edit(snapshot: Snapshot, what: str, columns: Sequence[str] | None) -> None:
    """Raise `Invalid` for an edit of a table with a merge query whose outcome would depend on what was merged.

    `columns` are those that decide which rows are deleted; None for an edit that does more than delete.
    """
    if not snapshot.settings.merge_query:
        return
    keys = fold_keys(snapshot)
    if columns is None:
        raise Invalid(
            f"{what}: table {snapshot.name} has a merge query, so rows may have been merged already: "
            f"append new rows, which {MERGE_QUERY} folds with those that are there"
        )
    other = next((name for name in columns if name not in keys), None)
    if other is not None:
        raise Invalid(
            f"{what}: rows of {snapshot.name} may have been merged already, and {other} may have other values since: "
            f"use only columns that its merge query keeps, which are {', '.join(keys) or 'none'}"
        )


def fold_keys(snapshot: Snapshot) -> tuple[str, ...]:
    """Return the columns that rows must share to be folded together, and that the folded row has unchanged."""
    from alluvia.engine.queries.merge_query import read_merge_query

    return read_merge_query(snapshot.settings.merge_query).keys(snapshot.schema)


def folded(read: Files, prefix: str = "") -> Relation:
    """Return the rows of some files of a table, folded; the names of its inputs and views begin with `prefix`."""
    from alluvia.engine.queries.merge_query import read_merge_query

    source, query = f"{prefix}source", read_merge_query(read.snapshot.settings.merge_query)
    schema = read.snapshot.schema
    return Relation({source: read}, {f"{prefix}folded": query.folded(source, schema)}, query.keys(schema))


def final(
    snapshot: Snapshot, evaluate: Evaluate, columns: Sequence[str] | None = None, where: str | None = None
) -> pa.Table:
    """Return the folded rows of a version for which an SQL condition holds, the columns asked for in that order.

    Only files are read that can hold such rows, by the condition's part on columns that folding keeps. Raises `Invalid`
    for a table without a merge query, an unknown column, or if `where` is not a condition.
    """
    if not snapshot.settings.merge_query:
        raise Invalid(f"table {snapshot.name} has no {MERGE_QUERY}: read it with scan(…)")
    if columns is not None:
        check_names("columns", columns)
    wanted = Scan(snapshot, columns=columns).schema
    relation = folded(Files(snapshot, list(snapshot.files)))
    matching: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    if where is not None:
        from alluvia.engine.conditions.condition import condition

        parsed = condition(where, snapshot.schema)
        relation, matching = relation.narrowed(parsed.predicate), parsed.filter

    def take(_: pa.Schema, batches: Iterator[pa.RecordBatch]) -> pa.Table:
        schema = pa.schema([field.with_nullable(True) for field in snapshot.schema])
        tables = [pa.Table.from_batches([batch]).cast(schema) for batch in batches]
        rows = pa.concat_tables([schema.empty_table(), *tables])
        kept = rows if matching is None else pa.Table.from_batches(map(matching, rows.to_batches()), schema)
        return kept.select(wanted.names).cast(wanted)

    return evaluate(relation, take)
