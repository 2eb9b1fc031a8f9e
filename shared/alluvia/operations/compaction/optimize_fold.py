"""Fold the rows of the files that optimize merges with the table's merge query, into a file of our own.

The query is a user's: it runs in a query's process, as confined as any query, over the files and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from alluvia.arrow_parquet import pq
from alluvia.delta.log.actions import AddFile
from alluvia.delta.properties import MERGE_QUERY
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.duck.failures import QueryTooCostly
from alluvia.engine.duck.literals import quote_name
from alluvia.engine.duck.relation import relation_sql
from alluvia.engine.queries.merge_query import read_merge_query
from alluvia.errors import Invalid, Unavailable
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.merge_query.folding import folded
from alluvia.operations.planning.layout import row_check
from alluvia.operations.reading.relations import Evaluate, Files

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

Evaluation = Callable[[int | None], Evaluate]
"""Returns a function that computes relations within that many MB of memory."""


@dataclass(frozen=True, slots=True)
class Folded:
    """What folding did: `rows` there were before, and whether there are others now."""

    rows: int
    changed: bool


def fold_rows(
    connection: DuckDBPyConnection,
    evaluate: Evaluate,
    read: Files,
    folder: Path,
    views: tuple[str, str],
) -> Folded:
    """Make the second view, of the folded rows of the first one, which are those of some files of one partition.

    Raises `Invalid`, naming the property, where the query fails on them or gives rows that the table cannot have, and
    `Unavailable` where they need more memory than there is.
    """
    snapshot, (stored, result) = read.snapshot, views
    path = folder / "folded.parquet"
    try:
        evaluate(folded(read), lambda _, batches: _write(snapshot, batches, path))
    except QueryTooCostly as error:
        raise Unavailable(f"merging {len(read.files)} files: {error}") from error
    except Invalid as error:
        raise Invalid(f"property {MERGE_QUERY} of {snapshot.name}: its rows cannot be merged: {error}") from error
    own = AddFile(path.name, {}, 0, 0, data_change=False)
    connection.execute(f"CREATE VIEW {result} AS {relation_sql(snapshot.schema, (), [own], [str(path)])}")
    _check_partition(connection, snapshot, stored, result)
    before, after = (_count(connection, view) for view in views)
    if before != after or read_merge_query(snapshot.settings.merge_query).picks_rows:
        return Folded(before, before != after)
    other = f"SELECT EXISTS (FROM {stored} EXCEPT ALL FROM {result})"  # noqa: S608
    [(changed,)] = connection.execute(other).fetchall()
    return Folded(before, bool(changed))


def _write(snapshot: Snapshot, batches: Iterator[pa.RecordBatch], path: Path) -> None:
    schema = pa.schema([field.with_nullable(True) for field in snapshot.schema])
    check = row_check(snapshot.settings.constraints, snapshot.schema)
    with pq.ParquetWriter(path, schema, store_schema=False) as writer:
        for batch in batches:
            rows = pa.Table.from_batches([batch]).cast(schema)
            for field in snapshot.schema:
                if not field.nullable and rows[field.name].null_count:
                    raise Invalid(f"column {field.name} must not be null")
            if check is not None:
                check(rows)
            writer.write_table(rows)


def _check_partition(connection: DuckDBPyConnection, snapshot: Snapshot, stored: str, result: str) -> None:
    """Raise `Invalid` if rows left the partition whose values the log has for the files."""
    names = ", ".join(map(quote_name, snapshot.partition_columns))
    if not names:
        return
    moved = f"SELECT {names} FROM {result} EXCEPT (SELECT {names} FROM {stored} LIMIT 1) LIMIT 1"  # noqa: S608
    if connection.execute(moved).fetchall():
        raise Invalid(
            f"property {MERGE_QUERY} of {snapshot.name}: it changes {names}, by which the table is partitioned"
        )


def _count(connection: DuckDBPyConnection, view: str) -> int:
    [(rows,)] = connection.execute(f"SELECT count(*) FROM {view}").fetchall()  # noqa: S608
    return int(rows)
