"""The data files of a table in Python: those in the log, and those left after pruning, for other engines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import datetime

from alluvia.commit.handle import ReadableTable
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.fields import Json
from alluvia.delta.snapshot import Snapshot
from alluvia.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableFile:
    """A data file of a table, as another engine needs it to read it.

    `url` is where it lies: `s3://…`, or a path on this machine. `size` is in bytes. `rows` are those that are not
    deleted; None where the log does not say. `partition_values` are the values of Delta's partition columns, as text,
    which the file does not have; and those of transforms such as `day(ts)`, for information. `deletion_vector` is a
    descriptor in Delta's form, with an absolute path: rows at its positions do not count.
    """

    url: str
    path: str
    size: int
    rows: int | None
    partition_values: Mapping[str, str | None] = field(default_factory=dict)
    deletion_vector: Json | None = None


class DataFiles:
    """The data files of a version of a table, in no order; call it for those of a condition."""

    def __init__(self, handle: ReadableTable) -> None:
        self._handle = handle
        self._snapshot = handle.snapshot()

    def __len__(self) -> int:
        return len(self._snapshot.files)

    def __iter__(self) -> Iterator[AddFile]:
        return iter(self._snapshot.files)

    def __repr__(self) -> str:
        return f"<{len(self)} data files of {self._snapshot!r}>"

    def __call__(
        self, where: str | None = None, version: int | None = None, timestamp: datetime | str | None = None
    ) -> list[TableFile]:
        """Return the files, of this version by default, that can hold rows for which an SQL condition holds.

        A query with this condition would read the same ones; they may hold other rows, too. No data file is read.
        Raises `Invalid` for what is not a condition, `VersionNotFound` and `VersionExpired`.
        """
        snapshot = self._snapshot
        if version is not None or timestamp is not None:
            snapshot = self._handle.snapshot(version, timestamp)
        return listed(self._handle, snapshot, where)


def listed(handle: ReadableTable, snapshot: Snapshot, where: str | None) -> list[TableFile]:
    """Return the files of a version that a condition leaves."""
    from alluvia.delta.data_files.scan import Scan
    from alluvia.delta.deletion_vectors.descriptors import stored_vector
    from alluvia.inspection.files import partition_of, url_of
    from alluvia.operations.reading.scan import predicate_of

    def absolute(descriptor: Json | None) -> Json | None:
        """Return a deletion vector's descriptor with an absolute path, unless it holds the vector itself."""
        stored = None if descriptor is None else stored_vector(descriptor)
        if descriptor is None or stored is None:
            return descriptor
        return {**descriptor, "storageType": "p", "pathOrInlineDv": url_of(snapshot, handle.store, stored.path)}

    return [
        TableFile(
            url_of(snapshot, handle.store, file.path),
            file.path,
            file.size,
            file.live_records,
            partition_of(snapshot, file),
            absolute(file.deletion_vector),
        )
        for file in Scan(snapshot, predicate_of(snapshot, where)).files
    ]
