"""The work of an erasure that reads, rewrites, lists and deletes files: in this process, or elsewhere, many at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from alluvia.commit.handle import TableHandle
from alluvia.delta.log.actions import AddFile
from alluvia.errors import Corrupt
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.erasure.erase_edit import EraseEdit
from alluvia.operations.erasure.erase_files import judged_batches
from alluvia.operations.erasure.erase_matching import Matching
from alluvia.operations.erasure.erase_report import Judgement
from alluvia.operations.reading.datafile import DataFile, opened
from alluvia.operations.retention.table_objects import OwnObjects, TableObjects
from alluvia.operations.rows.rewriting import Rewriter
from alluvia.operations.rows.row_changes import MakeWorker


@dataclass(frozen=True, slots=True)
class FileToJudge:
    """A file below a table's root, which no version need have. `constants` are partition values, by stored name."""

    key: str
    file: AddFile
    constants: Mapping[str, str | None]

    @property
    def size(self) -> int:
        """Return the file's size in bytes."""
        return self.file.size


class EraseWork(Protocol):
    """Works on the files of one table for an erasure."""

    @property
    def objects(self) -> TableObjects:
        """Return what lists and deletes its objects."""

    @property
    def worker(self) -> MakeWorker:
        """Return what finds the rows of an edit in files of the newest version, and rewrites these."""

    def judge(self, matching: Matching, files: Sequence[FileToJudge]) -> Iterator[tuple[FileToJudge, Judgement | None]]:
        """Yield files, in any order, with whether they have matching rows; None for one that is gone."""

    def count(self, matching: Matching, files: Sequence[AddFile]) -> int:
        """Return how many live rows of files of the matching's snapshot match."""


class OwnWork:
    """Works in this process."""

    worker: MakeWorker = Rewriter

    def __init__(self, handle: TableHandle) -> None:
        self.objects: TableObjects = OwnObjects(handle)
        self._handle = handle

    def judge(self, matching: Matching, files: Sequence[FileToJudge]) -> Iterator[tuple[FileToJudge, Judgement | None]]:
        """Read one file after the other."""
        return zip(files, judge_files(self._handle, matching, files), strict=True)

    def count(self, matching: Matching, files: Sequence[AddFile]) -> int:
        """Read one file after the other."""
        return count_matching(self._handle, matching, files)


def judge_files(handle: TableHandle, matching: Matching, files: Sequence[FileToJudge]) -> Iterator[Judgement | None]:
    """Judge all rows of files, deleted ones included. One that cannot be read counts as matching."""
    paths = handle.store.prefetch((each.key, each.size) for each in files)
    for each, path in zip(files, paths, strict=True):
        if path is None:
            yield None
            continue
        with DataFile(handle, matching.snapshot, each.file, path=path) as data:
            yield _judgement(data, matching, each.constants)


def _judgement(data: DataFile, matching: Matching, constants: Mapping[str, str | None]) -> Judgement:
    try:
        every = list(judged_batches(data, matching, constants=constants))
    except Corrupt:
        return Judgement(holds=True)
    reasons = frozenset().union(*(each.unclear for each in every))
    return Judgement(any(each.mask.true_count for each in every), reasons)


def count_matching(handle: TableHandle, matching: Matching, files: Sequence[AddFile]) -> int:
    """Return how many live rows of files of a version match. Raises `Invalid` where the condition fails on a value."""
    edit = EraseEdit(matching)
    rows = 0
    for data in opened(handle, matching.snapshot, files, {}):
        with data:
            hits = edit.find(data)
            rows += 0 if hits is None else hits.changed
    return rows
