"""Reading rows: the files that can match, one after another, as Arrow batches."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from alluvia.errors import Corrupt, Invalid, ObjectNotFound
from alluvia.log.actions import AddFile
from alluvia.store import Store
from alluvia.table.partition import parse_partition_text
from alluvia.table.predicate import Predicate, Unknown
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


def read_file(snapshot: Snapshot, store: Store, file: AddFile, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield a data file's rows with the columns of `schema`: stored, from the log, or null where the file has none."""
    if file.deletion_vector is not None:
        msg = f"{file.path} has a deletion vector, though the table's protocol does not allow one"
        raise Corrupt(msg)
    try:
        parquet = pq.ParquetFile(io.BytesIO(store.get(snapshot.key(file))))
        stored = set(parquet.schema_arrow.names) - set(snapshot.partition_columns)
        present = [name for name in schema.names if name in stored]
        for batch in parquet.iter_batches(columns=present):
            yield _complete(batch, snapshot, file, schema)
    except ObjectNotFound as error:
        msg = f"data file {file.path} of version {snapshot.version} is missing"
        raise Corrupt(msg) from error
    except (pa.ArrowInvalid, OSError) as error:
        msg = f"data file {file.path} cannot be read: {error}"
        raise Corrupt(msg) from error


def _complete(batch: pa.RecordBatch, snapshot: Snapshot, file: AddFile, schema: pa.Schema) -> pa.RecordBatch:
    arrays = []
    for field in schema:
        if field.name in snapshot.partition_columns:
            value = parse_partition_text(file.partition_values.get(field.name), field.type)
            arrays.append(pa.repeat(pa.scalar(value, field.type), len(batch)))
        elif field.name in batch.schema.names:
            arrays.append(batch.column(field.name).cast(field.type))
        else:
            arrays.append(pa.nulls(len(batch), field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
