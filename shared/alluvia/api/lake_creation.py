"""How tables are created, in a lake and in a transaction: what both have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence

import pyarrow as pa

from alluvia.api.lake_table import Table
from alluvia.commit.handle import TableHandle
from alluvia.delta.arguments import schema_of
from alluvia.events.ingest.values import EVENTS_PARTITIONED, EVENTS_SORTED, event_schema
from alluvia.operations.catalog.catalog import WritableCatalog


class TableCreation(ABC):
    """`create_table` and `create_events`, for whoever can begin a table."""

    def create_table(
        self,
        name: str,
        schema: pa.Schema | Mapping[str, str],
        partition_by: Sequence[str] = (),
        sort_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        *,
        cluster_by: Sequence[str] = (),
        exist_ok: bool = False,
        replace: bool = False,
    ) -> Table:
        """Create a table, in one request. Raises `TableExists` or `Invalid`.

        With `replace`, which only a transaction takes, it comes in the place of the table of its name, if there is one.
        Older versions can still be read.

        `schema` is a pyarrow schema, or a mapping of column names to Delta's type names or pyarrow's types.
        `partition_by` takes columns; `year`, `month`, `day` or `hour` of a time, such as `day(ts)`; and `bucket(16, c)`
        or `truncate(c, 2)` of text or whole numbers. Rows of a partition are sorted by the columns `sort_by`; or they
        are clustered by up to four columns, `cluster_by`, so that a query for values of any of them reads few files.
        """
        handle = self._creating().create(
            name,
            schema_of(schema),
            partition_by,
            sort_by,
            properties,
            cluster_by=cluster_by,
            exist_ok=exist_ok,
            replace=replace,
        )
        return self._opened(handle)

    def create_events(
        self,
        name: str,
        columns: pa.Schema | Mapping[str, str] | None = None,
        *,
        partition_by: Sequence[str] = EVENTS_PARTITIONED,
        sort_by: Sequence[str] | None = None,
        cluster_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        exist_ok: bool = False,
    ) -> Table:
        """Create a table for ingestion: `event_id, ts, event, source`, declared columns, `properties, received_at`.

        `columns` are a schema, or a mapping of names to types, as `create_table` takes them. Fields without a column go
        into `properties`, as JSON text. Rows are sorted by `event` and `ts` by default. Raises as `create_table` does.
        """
        if sort_by is None:
            sort_by = () if cluster_by else EVENTS_SORTED
        schema = event_schema(None if columns is None else schema_of(columns))
        return self.create_table(
            name, schema, partition_by, sort_by, properties, cluster_by=cluster_by, exist_ok=exist_ok
        )

    @abstractmethod
    def _creating(self) -> WritableCatalog:
        """Return where tables are created."""

    @abstractmethod
    def _opened(self, handle: TableHandle) -> Table:
        """Return a table as its users see it."""
