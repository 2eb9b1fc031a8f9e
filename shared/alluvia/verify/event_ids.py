"""Events stored twice in a table. DuckDB finds them where ids repeat, and collects those of many rows on disk."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.commit.event_window.id_runs import EVENT_ID, SOURCE
from alluvia.engine.duck.database import scratch_database
from alluvia.lazy_dataclasses import dataclass
from alluvia.scratch import scratch_root

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

RECEIVED_AT = "received_at"
_MEMORY = "256MB"
_FEW_BYTES_MAX = 8_000_000
_TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class Repeated:
    """Rows of one event id; `apart_ms` is the least time between two of them, None if that is not known."""

    event_id: str
    rows: int
    apart_ms: int | None


def ids_of(rows: pa.RecordBatch, committed_ms: int | None) -> pa.Table:
    """Return the ids of live rows and when each came: `id`, `source`, and in ms `committed` and `received`."""
    ids = rows.column(EVENT_ID).cast(pa.string())
    sources = pa.repeat("", len(ids))
    if SOURCE in rows.schema.names and pa.types.is_string(rows.schema.field(SOURCE).type):
        sources = pc.fill_null(rows.column(SOURCE), "")
    received = pa.nulls(len(ids), pa.int64())
    if RECEIVED_AT in rows.schema.names and rows.schema.field(RECEIVED_AT).type == _TIME:
        received = pc.divide(rows.column(RECEIVED_AT).view(pa.int64()), 1000)
    committed = pa.repeat(pa.scalar(committed_ms, pa.int64()), len(ids))
    batch = pa.table({"id": ids, "source": sources, "committed": committed, "received": received})
    return batch.filter(pc.is_valid(ids))


class IdTables:
    """Gathers event ids for the process that compares them."""

    def __init__(self) -> None:
        self.tables: list[pa.Table] = []

    def add(self, rows: pa.RecordBatch, committed_ms: int | None) -> None:
        """Take live rows, as `EventIds.add` does."""
        self.tables.append(ids_of(rows, committed_ms))


class EventIds:
    """The event ids of a table's rows, and when each row came. Use it in a `with` block."""

    def __enter__(self) -> Self:
        self._few: list[pa.Table] = []
        self._few_bytes = 0
        self._open = ExitStack()
        self._connection: DuckDBPyConnection | None = None
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, rows: pa.RecordBatch, committed_ms: int | None) -> None:
        """Take live rows. `committed_ms` is when they were committed, None where optimize has mixed them since."""
        self.take(ids_of(rows, committed_ms))

    def take(self, batch: pa.Table) -> None:
        """Take what `ids_of` returns."""
        self._few.append(batch)
        self._few_bytes += batch.nbytes
        if self._few_bytes > _FEW_BYTES_MAX:
            self._store()

    def _store(self) -> DuckDBPyConnection:
        if self._connection is None:
            folder = self._open.enter_context(tempfile.TemporaryDirectory(dir=scratch_root()))
            self._connection = scratch_database(Path(folder), on_disk=True, settings={"memory_limit": _MEMORY})
            self._open.callback(self._connection.close)
            self._connection.execute("SET preserve_insertion_order = false")
            self._connection.execute("CREATE TABLE ids (id VARCHAR, source VARCHAR, committed BIGINT, received BIGINT)")
        if self._few:
            self._connection.register("batch", pa.concat_tables(self._few))
            self._connection.execute("INSERT INTO ids FROM batch")
            self._connection.unregister("batch")
            self._few, self._few_bytes = [], 0
        return self._connection

    def repeated(self) -> Iterator[Repeated]:
        """Yield the ids of which there are several rows of one source.

        Two rows are as far apart as the times of their commits or of their arrival say, whichever is more.
        """
        if self._connection is None and _all_differ(self._few):
            return
        query = """
            WITH several AS (SELECT id, source, count(*) AS n FROM ids GROUP BY id, source HAVING count(*) > 1),
            apart AS (
                SELECT id, source, n, greatest(
                    abs(committed - lag(committed) OVER following), abs(received - lag(received) OVER following)
                ) AS ms
                FROM ids JOIN several USING (id, source)
                WINDOW following AS (PARTITION BY id, source ORDER BY coalesce(received, committed))
            )
            SELECT id, any_value(n), min(ms) FROM apart GROUP BY id, source ORDER BY id, source
        """
        rows_twice = self._store().execute(query)
        while rows := rows_twice.fetchmany(1000):
            yield from (Repeated(str(name), int(count), None if ms is None else int(ms)) for name, count, ms in rows)


def _all_differ(tables: Sequence[pa.Table]) -> bool:
    if not tables:
        return True
    ids = pa.concat_tables(tables)["id"]
    return pc.count_distinct(ids).as_py() == len(ids)
