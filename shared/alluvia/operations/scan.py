"""Read rows: the files that can match, one after another, as Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from alluvia.store import Store
from alluvia.table.arguments import check_names
from alluvia.table.scan import Scan
from alluvia.table.snapshot import Snapshot


def scan(
    snapshot: Snapshot, store: Store, columns: Sequence[str] | None = None, where: str | None = None
) -> pa.RecordBatchReader:
    """Return the rows of a snapshot for which an SQL condition holds, the columns asked for in that order.

    One GET a file, when its turn comes. Raises `Invalid` for an unknown column or for a condition that is none,
    `Corrupt` where a file is missing or unreadable.
    """
    if columns is not None:
        check_names("columns", columns)
    wanted = read = Scan(snapshot, columns=columns)
    names = wanted.schema.names
    matching: Callable[[pa.RecordBatch], pa.RecordBatch] | None = None
    if where is not None:
        from alluvia.expressions.condition import condition  # loads DuckDB

        parsed = condition(where, snapshot.schema)
        read = Scan(snapshot, parsed.predicate, [*names, *(name for name in parsed.columns if name not in names)])
        matching = parsed.filter

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in rows:
            kept = batch if matching is None else matching(batch)
            if len(kept):
                yield kept.select(names)

    rows = read.read(store)
    return pa.RecordBatchReader.from_batches(wanted.schema, batches())
