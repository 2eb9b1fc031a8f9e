"""Edits of the rows of a table: which rows of a file change, and their new values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.commit.changes import Changes
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.deletion_vectors.storage import NO_POSITIONS, numbers
from alluvia.delta.log.actions import AddFile
from alluvia.delta.skipping.predicate import Predicate
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.conditions.condition import ROWS_AT_ONCE_BY_DUCKDB
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.reading.datafile import DataFile


@dataclass(frozen=True, slots=True)
class Hits:
    """Rows of a file that an operation is about: `mask` has a value for each row of the file.

    The others have one for each row of the mask, in order. `updated` says whether it is updated, else deleted; null if
    it stays as it is. Without it, all are deleted. Of a merge, `sources` are the numbers of the source's rows, null for
    a row without one, and `clauses` those of the clauses.
    """

    mask: pa.BooleanArray
    updated: pa.BooleanArray | None = None
    sources: pa.Int64Array | None = None
    clauses: pa.Array | None = None

    def among(self, rows: pa.BooleanArray) -> Hits:
        """Return the hits that are rows of another mask too."""
        return self._kept(pc.filter(rows, self.mask))

    def changing(self) -> Hits:
        """Return the hits without the rows that stay as they are."""
        if self.updated is None or not self.updated.null_count:
            return self
        return self._kept(pc.is_valid(self.updated))

    def updating(self) -> Hits:
        """Return the hits that are updated, of those that change."""
        return self if self.updated is None else self._kept(self.updated)

    def _kept(self, kept: pa.BooleanArray) -> Hits:
        updated = None if self.updated is None else pc.filter(self.updated, kept)
        sources = None if self.sources is None else pc.filter(self.sources, kept)
        clauses = None if self.clauses is None else pc.filter(self.clauses, kept)
        return Hits(pc.replace_with_mask(self.mask, self.mask, kept), updated, sources, clauses)

    def slice(self, start: int, length: int) -> Hits:
        """Return the hits of some rows that follow one another."""
        mask = self.mask.slice(start, length)
        before, here = self.mask.slice(0, start).true_count, mask.true_count
        updated = None if self.updated is None else self.updated.slice(before, here)
        sources = None if self.sources is None else self.sources.slice(before, here)
        clauses = None if self.clauses is None else self.clauses.slice(before, here)
        return Hits(mask, updated, sources, clauses)

    @property
    def changed(self) -> int:
        """Return the number of rows."""
        return self.mask.true_count

    @property
    def rows_updated(self) -> int:
        """Return the number of rows that are updated."""
        return 0 if self.updated is None else self.updated.true_count

    @property
    def nbytes(self) -> int:
        """Return the memory that it takes."""
        parts = (self.mask, self.updated, self.sources, self.clauses)
        return sum(part.nbytes for part in parts if part is not None)


@dataclass(frozen=True, slots=True)
class RowChanges:
    """The result of a delete, an update, an upsert or a merge.

    `version` is the commit's, or the newest one where there was nothing to do. `rows_deleted` is None if a file was
    removed whose statistics do not say how many rows it held. `rows_copied` were written again besides changed ones, in
    `files_added`. `tries` is 1, and one more for each lost race that made it plan again.
    """

    version: int
    timestamp_ms: int
    rows_inserted: int = 0
    rows_updated: int = 0
    rows_deleted: int | None = 0
    rows_copied: int = 0
    files_read: int = 0
    files_added: int = 0
    files_removed: int = 0
    tries: int = 1


@dataclass(frozen=True, slots=True)
class Inserts:
    """Rows of an edit's source to insert: their numbers there, and what gives them, part by part, as the table's."""

    numbers: pa.Int64Array = field(default_factory=lambda: NO_POSITIONS)
    rows: Callable[[], Iterable[pa.Table]] = lambda: ()


class Edit(ABC):
    """One operation on the rows of a table, planned for one schema.

    `parameters` stay in the log for longer than the rows, so they hold no values of rows. Rows that change are in files
    that `predicate` can hold in. `in_place` says whether an updated row may stay where its file and the file's order
    have it, `columns_set` which columns an update sets; `rows_at_once` rows are read and renewed in one go. One that
    `erases` leaves no deleted row in a file: files are rewritten, whatever the table's properties say of deletion
    vectors and change files.
    """

    operation: str
    parameters: Mapping[str, str]
    predicate: Predicate
    erases = False
    in_place = False
    rows_at_once = ROWS_AT_ONCE_BY_DUCKDB
    columns_set: Sequence[str] = ()

    def found_out(self) -> object:
        """Return what it has found out besides which rows change, for the same edit in another process."""
        return None

    def take(self, found_out: object) -> None:
        """Take what the same edit has found out in another process."""
        assert found_out is None  # noqa: S101 - most edits find out nothing else

    def candidates(self, snapshot: Snapshot) -> Sequence[AddFile]:
        """Return the files of a snapshot that can hold rows that change."""
        return Scan(snapshot, self.predicate).files

    def matcher(self, snapshot: Snapshot) -> Callable[[AddFile], bool]:
        """Return whether a file that another writer adds can hold rows that change."""
        return Scan(snapshot, self.predicate).can_match

    @property
    def reads(self) -> Predicate:
        """Return what `matcher` tests: it holds for every row that the edit rests on."""
        return self.predicate

    def goes_whole(self, file: AddFile) -> bool:  # noqa: ARG002
        """Whether every row of a file is deleted, by what the log says of it."""
        return False

    @abstractmethod
    def find(self, data: DataFile) -> Hits | None:
        """Return the rows that change, of those that are not deleted yet; None if there are none."""

    def renew(self, rows: pa.Table, hits: Hits) -> pa.Table:  # noqa: ARG002
        """Return what rows become that are updated, of which the hits say more: the same columns, in their types."""
        return rows.slice(0, 0)

    def inserts(self, matched: pa.Int64Array) -> Inserts:  # noqa: ARG002
        """Return the source's rows to insert, given the numbers of those that match rows of files."""
        return Inserts()

    @abstractmethod
    def metrics(self, done: RowChanges, changes: Changes) -> dict[str, int]:
        """Return what the table's history says of the edit."""


def interleaved(rows: pa.Table, replaced: pa.BooleanArray, new: pa.Table) -> pa.Table:
    """Return rows with those of a mask replaced in place by new ones, in order, in the columns that `new` has."""
    places: pa.Array | None = None
    columns, given = rows.columns, dict(zip(new.column_names, new.columns, strict=True))
    every = replaced.true_count == len(rows)
    for at, column in enumerate(rows.schema):
        if column.name not in given:
            continue
        old, values = columns[at], pc.cast(given[column.name], column.type)
        if every:
            columns[at] = values
        elif pa.types.is_nested(column.type):  # for which Arrow has no replace_with_mask
            if places is None:
                rank = pc.cumulative_sum(pc.cast(replaced, pa.int64()))
                places = pc.if_else(replaced, pc.add(rank, len(rows) - 1), numbers(len(rows)))
            columns[at] = pc.take(pa.chunked_array([*old.chunks, *values.chunks], column.type), places)
        else:
            columns[at] = pc.replace_with_mask(old, replaced, values.combine_chunks())
    return pa.Table.from_arrays(columns, schema=rows.schema)


def vectors_added(changes: Changes) -> int:
    """Return the number of files that get a deletion vector."""
    return sum(add.deletion_vector is not None for add in changes.adds)


def delete_metrics(done: RowChanges, changes: Changes) -> dict[str, int]:
    """Return what the history says of a delete."""
    metrics = {
        "numAddedFiles": len(changes.adds),
        "numCopiedRows": done.rows_copied,
        "numDeletionVectorsAdded": vectors_added(changes),
        "numAddedChangeFiles": len(changes.cdc),
    }
    return metrics if done.rows_deleted is None else metrics | {"numDeletedRows": done.rows_deleted}


def update_metrics(done: RowChanges, changes: Changes) -> dict[str, int]:
    """Return what the history says of an update."""
    return {
        "numAddedFiles": len(changes.adds),
        "numUpdatedRows": done.rows_updated,
        "numCopiedRows": done.rows_copied,
        "numDeletionVectorsAdded": vectors_added(changes),
        "numAddedChangeFiles": len(changes.cdc),
    }


def merge_metrics(source_rows: int | None, done: RowChanges, changes: Changes) -> dict[str, int]:
    """Return what the history says of an edit that changes rows by those of a source, if known how many."""
    return ({} if source_rows is None else {"numSourceRows": source_rows}) | {
        "numTargetRowsInserted": done.rows_inserted,
        "numTargetRowsUpdated": done.rows_updated,
        "numTargetRowsDeleted": done.rows_deleted or 0,
        "numTargetRowsCopied": done.rows_copied,
        "numOutputRows": done.rows_inserted + done.rows_updated + done.rows_copied,
        "numTargetFilesAdded": len(changes.adds),
        "numTargetFilesRemoved": len(changes.removes),
        "numTargetDeletionVectorsAdded": vectors_added(changes),
        "numTargetChangeFilesAdded": len(changes.cdc),
    }


def moves_rows(snapshot: Snapshot, columns: Sequence[str]) -> bool:
    """Whether new values of some columns can move a row to another file, or elsewhere in its file's order."""
    settings = snapshot.settings
    placing = {field.column for field in snapshot.partition_spec.fields}.union(settings.sort_by, settings.cluster_by)
    return not placing.isdisjoint(columns)
