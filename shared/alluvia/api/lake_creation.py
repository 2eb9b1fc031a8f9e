"""The public API: new tables, and tables made of existing folders, files and tables elsewhere."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Generic, TypeVar

import pyarrow as pa

from alluvia.api.lake_catalog import OfCatalog
from alluvia.api.lake_table import Table
from alluvia.api.table_rows import TableRows
from alluvia.commit.transaction import Commit
from alluvia.delta.arguments import schema_of
from alluvia.events.ingest.values import EVENTS_PARTITIONED, EVENTS_SORTED, event_schema
from alluvia.operations.catalog.catalog import NewTable, check_whole_lake, rejects_handle
from alluvia.table_names import folder_name, new_name

if TYPE_CHECKING:
    from alluvia.files.uploads import external

AnyTable = TypeVar("AnyTable", bound=TableRows)


class TableCreation(OfCatalog, Generic[AnyTable]):
    """`create_table` and `create_events` of a lake and of a transaction."""

    @abstractmethod
    def table(self, name: str) -> AnyTable:
        """Return a table by name."""

    def create_table(
        self,
        name: str,
        schema: pa.Schema | Mapping[str, str],
        partition_by: Sequence[str] = (),
        sort_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        *,
        cluster_by: Sequence[str] = (),
        comment: str | None = None,
        exist_ok: bool = False,
        replace: bool = False,
    ) -> AnyTable:
        """Create a table, in one commit. Raises `TableExists`, also for the name of a view, or `Invalid`.

        Ingestion creates tables of rejected events itself; their names are `Invalid` here.

        With `replace`, which only a transaction takes, it comes in the place of the table of its name, if there is one.
        Older versions can still be read.

        `schema` is a pyarrow schema, or a mapping of column names to Delta's type names or pyarrow's types. A column
        gets the `comment` in the metadata of its field.
        `partition_by` takes columns; `year`, `month`, `day` or `hour` of a time, such as `day(ts)`; and `bucket(16, c)`
        or `truncate(c, 2)` of text or whole numbers. Rows of a partition are sorted by the columns `sort_by`; or they
        are clustered by up to four columns, `cluster_by`, so that a query for values of any of them reads few files.
        """
        new = NewTable(schema_of(schema), partition_by, sort_by, properties, cluster_by, comment)
        self.catalog.create(new_name(name), new, exist_ok=exist_ok, replace=replace)
        return self.table(name)

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
    ) -> AnyTable:
        """Create a table for ingestion: `event_id, ts, event, source`, declared columns, `properties, received_at`.

        `columns` are a schema, or a mapping of names to types, as `create_table` takes them. Fields without a column go
        into `properties`, as JSON text. Rows are sorted by `event` and `ts` by default. Raises as `create_table` does,
        and `Invalid` for the name of a table of rejected events, which ingestion creates.
        """
        from alluvia.events.ingest.event_tables import check_takes_events

        name = folder_name(name)
        check_takes_events(name)
        if sort_by is None:
            sort_by = () if cluster_by else EVENTS_SORTED
        schema = event_schema(None if columns is None else schema_of(columns))
        new = NewTable(schema, partition_by, sort_by, properties, cluster_by)
        self.catalog.create(name, new, exist_ok=exist_ok)
        return self.table(name)


class OutsideTables(TableCreation[Table]):
    """`convert`, external tables, and tables that are attached."""

    def convert(
        self,
        path: str,
        name: str,
        *,
        partition_types: Mapping[str, str | pa.DataType] | None = None,
        sort_by: Sequence[str] = (),
        cluster_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
    ) -> Table:
        """Turn a directory of Parquet files, Hive partitions included, into a table, without rewriting the files.

        The directory becomes the table, so it must be where a table of that name belongs: `path` is `name`, relative
        to the lake's root, or the full path or URI of that place. From then on the directory belongs to the table:
        files added to it in other ways are not part of the table, and vacuum deletes them after a day. Types of
        partition columns come from `partition_types`, or are inferred (`long`, `date`, `timestamp`, `string`). Raises
        `TableExists`, and `Invalid`, naming the file and the column, if the files cannot form a table.
        """
        from alluvia.operations.tables import convert

        name = new_name(name)
        check_whole_lake(self.catalog.store, "convert")
        handle = self.catalog.handle(name)
        convert.check_place(self.catalog.store, path, handle)
        convert.convert(
            handle, partition_types=partition_types, sort_by=sort_by, cluster_by=cluster_by, properties=properties
        )
        return self.table(name)

    def create_external(
        self,
        name: str,
        location: str | os.PathLike[str] | Sequence[str],
        format: str | None = None,  # noqa: A002 - as users of SQL call it
        schema: pa.Schema | Mapping[str, str] | None = None,
    ) -> Table:
        """Give files outside the lake the name of a table, to be read: Parquet, CSV, TSV or NDJSON.

        `location` has paths, URIs or globs, which are looked up now, and again by `refresh_external`. Without a
        `format` the name of the files says it, without a `schema` the files do. Raises `TableExists` and `Invalid`.
        """
        name = new_name(name)
        check_whole_lake(self.catalog.store, "an external table")
        from alluvia.files.uploads import external

        locations = [location] if isinstance(location, str | os.PathLike) else location
        columns = None if schema is None else schema_of(schema)
        external.create_external(self.catalog, name, list(map(str, locations)), format, columns)
        return self.table(name)

    def refresh_external(self, name: str) -> external.ExternalReport:
        """Look the files of an external table up again, and read them as they are from now on, in one commit."""
        name = folder_name(name)
        check_whole_lake(self.catalog.store, "an external table")
        from alluvia.files.uploads import external

        return external.refresh_external(self.catalog.handle(name))

    def attach(self, name: str, uri: str | os.PathLike[str]) -> Table:
        """Give the Delta table at a path or URI outside the lake a name in it, under which it can be read.

        Commits there show here at once; nothing can be written here. The place is read with the lake's own
        credentials and options. Raises `TableExists`, `TableNotFound` if no table is there, and `Invalid`.
        """
        name = new_name(name)
        check_whole_lake(self.catalog.store, "attach")
        from alluvia.operations.tables import attach

        attach.attach(self.catalog.handle(name), rejects_handle(self.catalog, name), uri, self.catalog.clock)
        return self.table(name)

    def detach(self, name: str) -> Commit:
        """Take the name of an attached table out of the lake; the table stays as it is. `undrop` brings it back."""
        name = folder_name(name)
        check_whole_lake(self.catalog.store, "detach")
        from alluvia.operations.tables import attach
        from alluvia.rollups.creating import check_no_rollups

        check_no_rollups(self.catalog, name)
        return attach.detach(self.catalog.handle(name))
