"""Files of changed rows below `_change_data`, for tables with `delta.enableChangeDataFeed`.

Source: Delta protocol, "Change Data Files".
"""

from __future__ import annotations

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.commit.handle import ReadableTable
from alluvia.delta.data_files.writer import encode_parquet
from alluvia.delta.log.actions import CdcFile, Metadata
from alluvia.delta.partitioning.partition import split
from alluvia.delta.partitioning.spec import PartitionSpec
from alluvia.delta.properties import CHANGE_DATA_FEED, read_properties
from alluvia.delta.schema.serialization import arrow_schema
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid

CHANGE_FOLDER = "_change_data/"
CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP = "_change_type", "_commit_version", "_commit_timestamp"
FEED_COLUMNS = (CHANGE_TYPE, COMMIT_VERSION, COMMIT_TIMESTAMP)
"""What changes have besides a table's columns: a table with one of these has no change feed."""
INSERT, DELETE, BEFORE, AFTER = "insert", "delete", "update_preimage", "update_postimage"
EXPIRED = "expire"


def check_feed_columns(metadata: Metadata) -> None:
    """Raise `Invalid` if a table is to have change files and a column with a name that these use themselves."""
    if read_properties(metadata.configuration).change_data_feed:
        for name in arrow_schema(metadata.schema_string).names:
            if name.lower() in FEED_COLUMNS:
                raise Invalid(
                    f"column {name}: change files use that name themselves; choose another name, "
                    f"or leave out {CHANGE_DATA_FEED}"
                )


class ChangeWriter:
    """Gathers changed rows, and writes them: one PUT for each partition."""

    def __init__(self, handle: ReadableTable, snapshot: Snapshot) -> None:
        self._handle = handle
        self._snapshot = snapshot
        self._waiting: list[pa.Table] = []

    @property
    def waiting_bytes(self) -> int:
        """Return the size of the gathered rows."""
        return sum(rows.nbytes for rows in self._waiting)

    def changed(self, old: pa.Table, updated: pa.BooleanArray | None, new: pa.Table | None) -> None:
        """Take rows that are deleted or, where `updated` says so, become the rows of `new`."""
        if updated is None or new is None:
            self._add(old, DELETE)
            return
        self._add(old.filter(pc.invert(updated)), DELETE)
        self._add(old.filter(updated), BEFORE)
        self._add(new, AFTER)

    def inserted(self, rows: pa.Table) -> None:
        """Take rows that are new."""
        self._add(rows, INSERT)

    def clear(self) -> None:
        """Forget what has been gathered."""
        self._waiting = []

    def finish(self) -> list[CdcFile]:
        """Write what has been gathered. Returns the files, not yet committed."""
        if not self._waiting:
            return []
        rows = pa.concat_tables(self._waiting)
        self._waiting = []
        form = self._snapshot.file_form
        fields = tuple(each for each in self._snapshot.partition_spec.fields if each.transform is None)
        files = []
        for partition, here in split(rows, PartitionSpec(fields)):
            data = encode_parquet(form.stored(here), form.file_settings)
            path = f"{CHANGE_FOLDER}{partition.folder}cdc-{self._handle.clock.new_id()}.parquet"
            self._handle.store.put_new(self._snapshot.root + path, data)
            files.append(CdcFile(path, partition.values, len(data)))
        return files

    def _add(self, rows: pa.Table, kind: str) -> None:
        if len(rows):
            kinds = pa.repeat(pa.scalar(kind), len(rows))
            self._waiting.append(rows.append_column(pa.field(CHANGE_TYPE, pa.string(), nullable=False), kinds))
