"""Streams in a query: what one has not given, as rows in a file of our own.

In a transaction, that the query was run moves the stream (`operations/transactions/lake_transaction.py`).
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from alluvia.errors import Invalid
from alluvia.operations.catalog.catalog import Catalog
from alluvia.operations.reading.relations import LocalRows, Relation
from alluvia.query.limits import PlannedReads, QueryLimits


class StreamReading:
    """Reads streams for one query, into files in `folder`: none in a dry run, and columns alone unless `with_rows`."""

    def __init__(
        self,
        catalog: Catalog,
        folder: Path,
        limits: QueryLimits,
        reads: PlannedReads,
        *,
        dry_run: bool,
        with_rows: bool,
    ) -> None:
        self.folder = folder
        self._catalog = catalog
        self._limits = limits
        self._reads = reads
        self._dry_run = dry_run
        self._with_rows = with_rows

    def relation(self, name: str, prefix: str) -> tuple[pa.Schema, Relation] | None:
        """Return what a name stands for, with its columns; None if it is not a stream's.

        Names of inputs and views begin with `prefix`. Raises what `Catalog.read_stream` does, and `QueryTooCostly`.
        """
        stream = self._catalog.find_stream(name)
        if stream is None:
            return None
        if self._catalog.rights is not None:
            self._catalog.rights.check_sees_all(f"stream {name}", (stream.source,))
        if self._dry_run:
            raise Invalid(f"a dry run reads no rows, so it cannot read stream {name}: send the query without dry_run")
        import pyarrow.parquet as pq  # queries without streams do without

        from alluvia.operations.streams.stream_batches import columns_of

        batch = self._catalog.read_stream(name) if self._with_rows else None  # else it would count as read
        schema = columns_of(self._catalog, stream) if batch is None else batch.schema
        path = self.folder / f"{prefix}stream.parquet"
        with pq.ParquetWriter(path, schema, store_schema=False) as writer:
            if batch is not None:
                self._reads.add_changes(stream.source, batch.bytes)
                for rows in batch.batches():
                    self._limits.check()
                    writer.write_batch(rows)
        own = f"{prefix}rows"
        return schema, Relation({own: LocalRows(path, schema)}, {f"{prefix}result": f"FROM alluvia.{own}"})
