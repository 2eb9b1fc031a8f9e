"""The public API: tables made of what was there before: folders that are converted, files and tables elsewhere."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from alluvia.api.lake_catalog import LakeCatalog
from alluvia.api.lake_creation import TableCreation
from alluvia.commit.transaction import Commit
from alluvia.delta.arguments import schema_of

if TYPE_CHECKING:
    from alluvia.api.lake_table import Table
    from alluvia.files.uploads import external


class OutsideTables(TableCreation, LakeCatalog):
    """`convert`, external tables, and tables that are attached."""

    @abstractmethod
    def check_whole(self, what: str) -> None:
        """Raise `Invalid` if this is a branch, for what can be done only to a lake as a whole."""

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

        self.check_whole("convert")
        handle = self.handle(name)
        convert.check_place(self.store, path, handle)
        convert.convert(
            handle, partition_types=partition_types, sort_by=sort_by, cluster_by=cluster_by, properties=properties
        )
        return self._opened(handle)

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
        self.check_whole("an external table")
        from alluvia.files.uploads import external

        locations = [location] if isinstance(location, str | os.PathLike) else location
        columns = None if schema is None else schema_of(schema)
        external.create_external(self, name, list(map(str, locations)), format, columns)
        return self._opened(self.handle(name))

    def refresh_external(self, name: str) -> external.ExternalReport:
        """Look the files of an external table up again, and read them as they are from now on, in one commit."""
        self.check_whole("an external table")
        from alluvia.files.uploads import external

        return external.refresh_external(self.handle(name))

    def attach(self, name: str, uri: str | os.PathLike[str]) -> Table:
        """Give the Delta table at a path or URI outside the lake a name in it, under which it can be read.

        What is committed there shows here at once; nothing can be written here. The place is read with the lake's own
        credentials and options. Raises `TableExists`, `TableNotFound` if no table is there, and `Invalid`.
        """
        self.check_whole("attach")
        from alluvia.operations.tables import attach

        attach.attach(self.handle(name), self.rejects_handle(name), uri, self.clock)
        return self._opened(self.handle(name))

    def detach(self, name: str) -> Commit:
        """Take the name of an attached table out of the lake; the table stays as it is. `undrop` brings it back."""
        self.check_whole("detach")
        from alluvia.operations.tables import attach
        from alluvia.rollups.creating import check_no_rollups

        check_no_rollups(self, name)
        return attach.detach(self.handle(name))
