"""The edit that deletes rows for an erasure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.commit.changes import Changes
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.log.actions import AddFile
from alluvia.delta.skipping.predicate import Unknown
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.conditions.condition import ROWS_AT_ONCE_BY_DUCKDB
from alluvia.operations.erasure.erase_files import judged_batches
from alluvia.operations.erasure.erase_matching import Matching
from alluvia.operations.reading.datafile import DataFile
from alluvia.operations.rows.edits import Edit, Hits, RowChanges

ERASE = "ERASE"


class Notes(NamedTuple):
    """The fields that rows had outside of columns, and the reasons why files, by path, could not be judged."""

    seen: Collection[str]
    unclear: Mapping[str, frozenset[str]]


class EraseEdit(Edit):
    """Matching rows are deleted, also those that a deletion vector has deleted already."""

    operation = ERASE
    erases = True

    def __init__(self, matching: Matching) -> None:
        self.parameters = {}
        self.predicate = Unknown() if matching.hides else matching.predicate
        self.unclear: dict[str, frozenset[str]] = {}
        self._matching = matching
        self._staying = Scan(matching.snapshot, matching.complement)

    def candidates(self, snapshot: Snapshot) -> Sequence[AddFile]:
        """Return files that can match; bounds say nothing of the rows that a deletion vector deletes."""
        if self._matching.hides:
            return [file for file in snapshot.files if file.deletion_vector or self._matching.can_match_now(file)]
        files = Scan(snapshot, self.predicate).files
        if not snapshot.protocol.reader_features:
            return files
        known = {file.key for file in files}
        return [*files, *(file for file in snapshot.files if file.deletion_vector and file.key not in known)]

    def goes_whole(self, file: AddFile) -> bool:
        return file.deletion_vector is None and not self._staying.can_match(file)

    def find(self, data: DataFile) -> Hits | None:
        """Return the rows that match, and note why others could not be judged."""
        judged = list(judged_batches(data, self._matching, strict=True, rows=ROWS_AT_ONCE_BY_DUCKDB))
        if reasons := frozenset().union(*(each.unclear for each in judged)):
            self.unclear[data.file.path] = reasons
        masks = [each.mask for each in judged]
        mask = pa.concat_arrays(masks) if masks else pa.array([], pa.bool_())
        return Hits(pc.and_(mask, data.live)) if mask.true_count else None

    def found_out(self) -> Notes:
        return Notes(self._matching.seen, self.unclear)

    def take(self, found_out: object) -> None:
        assert isinstance(found_out, Notes)  # noqa: S101 - another edit of the same erasure has found it out
        self._matching.seen.update(found_out.seen)
        self.unclear.update(found_out.unclear)

    def metrics(self, done: RowChanges, changes: Changes) -> dict[str, int]:
        metrics = {"numAddedFiles": len(changes.adds), "numCopiedRows": done.rows_copied}
        return metrics if done.rows_deleted is None else metrics | {"numDeletedRows": done.rows_deleted}
