"""The difference between two collections of rows, in which a row may stand several times."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

import pyarrow as pa

from alluvia.operations.scratch import scratch_database
from alluvia.table.relation import quote_name

_BATCH_ROWS = 1 << 16
_COUNT = "alluvia_count"


class RowDifference:
    """Rows of `schema` that only one of two collections has, or has more often. DuckDB counts them, and may spill.

    Use it in a `with` block, in which its rows are read.
    """

    def __init__(self, schema: pa.Schema, old: Iterable[pa.RecordBatch], new: Iterable[pa.RecordBatch]) -> None:
        self._schema = schema
        self._old = old
        self._new = new

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="alluvia-changes-")
        self._connection = scratch_database(Path(self._folder.name))
        for name, batches in (("old", self._old), ("new", self._new)):
            plain = pa.schema([field.with_nullable(True) for field in self._schema])
            self._connection.register(name, pa.RecordBatchReader.from_batches(plain, iter(batches)))
        columns = ", ".join(quote_name(name) for name in self._schema.names)
        self._connection.execute(
            f"CREATE TABLE difference AS SELECT {columns}, sum(sign) AS {_COUNT} FROM "  # noqa: S608
            f"(SELECT {columns}, 1 AS sign FROM new UNION ALL SELECT {columns}, -1 FROM old) "
            f"GROUP BY {columns} HAVING sum(sign) <> 0"
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()
        self._folder.cleanup()

    def only_old(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that the first collection has and the second has not, or not so often."""
        return self._rows(f"-{_COUNT}")

    def only_new(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows that the second collection has and the first has not, or not so often."""
        return self._rows(_COUNT)

    def _rows(self, times: str) -> Iterator[pa.RecordBatch]:
        columns = ", ".join(quote_name(name) for name in self._schema.names)
        repeated = f"SELECT {columns} FROM difference, range(CAST({times} AS BIGINT)) WHERE {times} > 0"  # noqa: S608
        reader = self._connection.execute(repeated).to_arrow_reader(_BATCH_ROWS)
        for batch in reader:
            arrays = [batch[field.name].cast(field.type) for field in self._schema]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)
