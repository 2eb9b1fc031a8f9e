"""Events stored twice in a table. DuckDB collects the ids, on disk if there are many."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pyarrow as pa
import pyarrow.compute as pc

from alluvia.duck.scratch import scratch_database
from alluvia.scratch import scratch_root
from alluvia.table.event_window.content import EVENT_ID, SOURCE

RECEIVED_AT = "received_at"
_MEMORY = "256MB"
_TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class Repeated:
    """Rows of one event id; `apart_ms` is the least time between two of them, None if that is not known."""

    event_id: str
    rows: int
    apart_ms: int | None


class EventIds:
    """The event ids of a table's rows, and when each row came. Use it in a `with` block."""

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(dir=scratch_root())
        self._connection = scratch_database(Path(self._folder.name), on_disk=True, settings={"memory_limit": _MEMORY})
        self._connection.execute("SET preserve_insertion_order = false")
        self._connection.execute("CREATE TABLE ids (id VARCHAR, source VARCHAR, committed BIGINT, received BIGINT)")
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._folder.cleanup()

    def add(self, rows: pa.RecordBatch, committed_ms: int | None) -> None:
        """Take live rows. `committed_ms` is when they were committed, None where optimize has mixed them since."""
        ids = rows.column(EVENT_ID).cast(pa.string())
        sources = pa.repeat("", len(ids))
        if SOURCE in rows.schema.names and pa.types.is_string(rows.schema.field(SOURCE).type):
            sources = pc.fill_null(rows.column(SOURCE), "")
        received = pa.nulls(len(ids), pa.int64())
        if RECEIVED_AT in rows.schema.names and rows.schema.field(RECEIVED_AT).type == _TIME:
            received = pc.divide(rows.column(RECEIVED_AT).view(pa.int64()), 1000)
        committed = pa.repeat(pa.scalar(committed_ms, pa.int64()), len(ids))
        batch = pa.table({"id": ids, "source": sources, "committed": committed, "received": received})
        self._connection.register("batch", batch)
        self._connection.execute("INSERT INTO ids SELECT * FROM batch WHERE id IS NOT NULL")
        self._connection.unregister("batch")

    def repeated(self) -> Iterator[Repeated]:
        """Yield the ids of which there are several rows of one source.

        Two rows are as far apart as the times of their commits or of their arrival say, whichever is more.
        """
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
        found = self._connection.execute(query)
        while rows := found.fetchmany(1000):
            yield from (Repeated(str(name), int(count), None if ms is None else int(ms)) for name, count, ms in rows)
