"""The difference between two multisets of rows.

Columns are numbered, so that no column name can clash with the count.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Self

import pyarrow as pa

from alluvia.engine.duck.arrow_values import result_of
from alluvia.engine.duck.database import scratch_database
from alluvia.scratch import scratch_root

_BATCH_ROWS = 1 << 16
_FEW_BYTES_MAX = 8_000_000


class RowDifference:
    """Rows of `schema` that only one of two collections has, or has more often. DuckDB counts them, and may spill.

    Rows of both that are alike in the columns `key` are changed rows; without a key, there are none.
    Use it in a `with` block, in which its rows are read. Entering it raises what reading the collections raises.
    """

    def __init__(
        self,
        schema: pa.Schema,
        old: Iterable[pa.RecordBatch],
        new: Iterable[pa.RecordBatch],
        key: Sequence[str] = (),
    ) -> None:
        self._schema = schema
        self._key = [f"c{schema.get_field_index(name)}" for name in key]
        self._names = [f"c{at}" for at in range(len(schema))]
        self._old = old
        self._new = new

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(dir=scratch_root())
        self._connection = scratch_database(Path(self._folder.name))
        try:
            self._count()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def _count(self) -> None:
        """Compare the rows, which come in batch by batch: an error of reading them stays what it is."""
        fields = [pa.field(name, field.type) for name, field in zip(self._names, self._schema, strict=True)]
        signed = pa.schema([*fields, pa.field("sign", pa.int32())])
        few, few_bytes, source = [signed.empty_table()], 0, "batch"
        for batches, sign in ((self._old, -1), (self._new, 1)):
            for batch in batches:
                signs = pa.repeat(pa.scalar(sign, pa.int32()), len(batch))
                few.append(pa.table([*batch.columns, signs], schema=signed))
                few_bytes += batch.nbytes
                if few_bytes > _FEW_BYTES_MAX:
                    self._connection.register("batch", pa.concat_tables(few))
                    into = "CREATE TABLE rows AS" if source == "batch" else "INSERT INTO rows"
                    self._connection.execute(f"{into} FROM batch")
                    few, few_bytes, source = [signed.empty_table()], 0, "rows"
        self._connection.register("batch", pa.concat_tables(few))
        if source == "rows":
            self._connection.execute("INSERT INTO rows FROM batch")
        columns = ", ".join(self._names)
        self._connection.execute(
            f"CREATE TABLE difference AS SELECT {columns}, sum(sign) AS times FROM {source} "  # noqa: S608
            f"GROUP BY {columns} HAVING sum(sign) <> 0"
        )
        if self._key:
            keys = ", ".join(self._key)
            self._connection.execute(
                f"CREATE TABLE changed AS SELECT {keys} FROM difference GROUP BY {keys} "  # noqa: S608
                "HAVING min(times) < 0 AND max(times) > 0"
            )
        self._connection.unregister("batch")
        self._connection.execute("DROP TABLE IF EXISTS rows")

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._folder.cleanup()

    def only_old(self, *, changed: bool | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows that the first collection has and the second does not, or has less often.

        With `changed`, only those of changed rows, or only the others.
        """
        return self._rows("-times", self._where(changed=changed))

    def only_new(self, *, changed: bool | None = None) -> Iterator[pa.RecordBatch]:
        """Yield the rows that the second collection has and the first does not, or has less often."""
        return self._rows("times", self._where(changed=changed))

    def counts(self) -> tuple[int, int, int]:
        """Return how many rows only the second collection has, how many only the first, and how many keys changed."""
        others = self._where(changed=False)
        [(more, less)] = self._connection.execute(
            "SELECT coalesce(sum(times) FILTER (times > 0), 0), coalesce(-sum(times) FILTER (times < 0), 0) "  # noqa: S608
            f"FROM difference WHERE {others}"
        ).fetchall()
        [(changed,)] = self._connection.execute("SELECT count(*) FROM changed").fetchall() if self._key else [(0,)]
        return int(more), int(less), int(changed)

    def _where(self, *, changed: bool | None) -> str:
        if changed is None:
            return "true"
        if not self._key:
            return "false" if changed else "true"
        same = " AND ".join(f"changed.{name} IS NOT DISTINCT FROM difference.{name}" for name in self._key)
        return f"{'' if changed else 'NOT '}EXISTS (SELECT 1 FROM changed WHERE {same})"  # noqa: S608

    def _rows(self, times: str, where: str) -> Iterator[pa.RecordBatch]:
        columns = ", ".join(f"difference.{name}" for name in self._names)
        repeated = f"SELECT {columns} FROM difference, range(CAST({times} AS BIGINT)) WHERE {times} > 0 AND {where}"  # noqa: S608
        for batch in result_of(self._connection, repeated).to_arrow_reader(_BATCH_ROWS):
            arrays = [column.cast(field.type) for column, field in zip(batch.columns, self._schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=self._schema)
