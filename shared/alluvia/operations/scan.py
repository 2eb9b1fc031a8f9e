"""Reading rows: the files that can match, one after another, as Arrow batches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa

from alluvia.errors import Invalid
from alluvia.store import Store
from alluvia.table.arguments import check_names
from alluvia.table.reader import read_file
from alluvia.table.skipping.predicate import Predicate, Unknown
from alluvia.table.snapshot import Snapshot

RowFilter = Callable[[pa.RecordBatch], pa.RecordBatch]


def scan(
    snapshot: Snapshot,
    store: Store,
    columns: Sequence[str] | None = None,
    predicate: Predicate | None = None,
    row_filter: RowFilter | None = None,
    filter_columns: Sequence[str] = (),
) -> pa.RecordBatchReader:
    """Return the rows of a snapshot, the columns asked for in that order.

    `predicate` leaves files out, `row_filter` rows; it is given batches with the columns asked for and
    `filter_columns`. One GET a file, when its turn comes. Raises `Invalid` for an unknown column, `Corrupt` where a
    file is missing or unreadable.
    """
    if columns is not None:
        check_names("columns", columns)
    wanted = list(snapshot.schema.names if columns is None else columns)
    unknown = sorted(set(wanted) - set(snapshot.schema.names))
    if unknown or len(set(wanted)) < len(wanted):
        msg = f"columns: {unknown[0]!r} is not in the table" if unknown else "columns: a name is repeated"
        raise Invalid(msg)
    read = [*wanted, *(name for name in filter_columns if name not in wanted)]
    schema = pa.schema([snapshot.schema.field(name) for name in read])
    files = snapshot.prune(predicate or Unknown())

    def batches() -> Iterator[pa.RecordBatch]:
        for file in files:
            for batch in read_file(snapshot, store, file, schema):
                kept = batch if row_filter is None else row_filter(batch)
                if len(kept):
                    yield kept.select(wanted)

    return pa.RecordBatchReader.from_batches(pa.schema([snapshot.schema.field(name) for name in wanted]), batches())
