"""Other writers of a table of events: `deltalake` and delta-spark, with the same operations."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Protocol

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from alluvia.api.lake import Table
from tests import judges
from tests.reach.delta_spark import DeltaSpark, named

PLACES = ["a/b", "50% of", "x=ü"]


def event_of(event_id: str, event: str) -> dict[str, Any]:
    """Return an event whose day and place follow from its id, one letter."""
    number = ord(event_id)
    return {
        "event_id": event_id,
        "ts": datetime(2024, 2, 28, 23, 59, 59, 999_999, UTC) + timedelta(days=number % 3),
        "event": event,
        "place": PLACES[number % len(PLACES)],
        "received_at": datetime(2024, 3, 1, tzinfo=UTC),
    }


def events_of(table: Table, ids: str, event: str = "view") -> pa.Table:
    """Return events, one for each letter, with all of the table's columns."""
    return pa.Table.from_pylist([event_of(each, event) for each in ids], table.snapshot().schema)


class Writer(Protocol):
    """What another writer does to a table of events. Ids are letters."""

    def append(self, table: Table, ids: str) -> None:
        """Append events."""

    def delete(self, table: Table, event_id: str) -> None:
        """Delete an event."""

    def update(self, table: Table, event_id: str, event: str) -> None:
        """Set an event's `event`."""

    def upsert(self, table: Table, ids: str, event: str) -> None:
        """Put events into the table by their id."""

    def add_column(self, table: Table, name: str) -> None:
        """Add a column of whole numbers."""

    def optimize(self, table: Table) -> None:
        """Make few files of many."""

    def checkpoint(self, table: Table) -> None:
        """Write a checkpoint."""

    def vacuum(self, table: Table) -> None:
        """Delete all files that the newest version does not need."""


class Deltalake:
    """`deltalake` as a writer."""

    def append(self, table: Table, ids: str) -> None:
        write_deltalake(judges.uri_of(table), events_of(table, ids), mode="append")

    def delete(self, table: Table, event_id: str) -> None:
        self._open(table).delete(f"event_id = '{event_id}'")

    def update(self, table: Table, event_id: str, event: str) -> None:
        self._open(table).update({"event": f"'{event}'"}, predicate=f"event_id = '{event_id}'")

    def upsert(self, table: Table, ids: str, event: str) -> None:
        merge = self._open(table).merge(events_of(table, ids, event), "t.event_id = s.event_id", "s", "t")
        merge.when_matched_update_all().when_not_matched_insert_all().execute()

    def add_column(self, table: Table, name: str) -> None:
        rows = events_of(table, "").append_column(name, pa.array([], pa.int64()))
        write_deltalake(judges.uri_of(table), rows, mode="append", schema_mode="merge")

    def optimize(self, table: Table) -> None:
        self._open(table).optimize.compact()

    def checkpoint(self, table: Table) -> None:
        self._open(table).create_checkpoint()

    def vacuum(self, table: Table) -> None:
        self._open(table).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)

    def _open(self, table: Table) -> DeltaTable:
        return DeltaTable(judges.uri_of(table))


class Spark:
    """delta-spark as a writer."""

    def __init__(self, spark: DeltaSpark) -> None:
        self.spark = spark

    def append(self, table: Table, ids: str) -> None:
        self._run(table, f"INSERT INTO {{0}} BY NAME {self._rows(ids, 'view')}")

    def delete(self, table: Table, event_id: str) -> None:
        self._run(table, f"DELETE FROM {{0}} WHERE event_id = '{event_id}'")

    def update(self, table: Table, event_id: str, event: str) -> None:
        self._run(table, f"UPDATE {{0}} SET event = '{event}' WHERE event_id = '{event_id}'")

    def upsert(self, table: Table, ids: str, event: str) -> None:
        source = self._rows(ids, event)
        columns = "event_id, ts, event, place, received_at"
        insert = f"WHEN NOT MATCHED THEN INSERT ({columns}) VALUES ({columns})"
        matched = "WHEN MATCHED THEN UPDATE SET event = s.event"
        self._run(table, f"MERGE INTO {{0}} t USING ({source}) s ON t.event_id = s.event_id {matched} {insert}")

    def add_column(self, table: Table, name: str) -> None:
        self._run(table, f"ALTER TABLE {{0}} ADD COLUMN {name} BIGINT")

    def optimize(self, table: Table) -> None:
        self._run(table, "OPTIMIZE {0}")

    def checkpoint(self, table: Table) -> None:
        self._run(table, "ALTER TABLE {0} SET TBLPROPERTIES ('delta.checkpointInterval' = '1')")

    def vacuum(self, table: Table) -> None:
        self._run(table, "VACUUM {0} RETAIN 0 HOURS")

    def _run(self, table: Table, statement: str) -> None:
        self.spark.run(statement.format(named(table)))

    def _rows(self, ids: str, event: str) -> str:
        return " UNION ALL ".join(
            "SELECT '{event_id}' AS event_id, TIMESTAMP '{ts}' AS ts, '{event}' AS event, '{place}' AS place, "
            "TIMESTAMP '{received_at}' AS received_at".format(**event_of(each, event))
            for each in ids
        )
