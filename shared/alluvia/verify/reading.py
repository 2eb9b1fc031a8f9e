"""The full mode of verify: every row of every live file, and events that are in the table twice."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple, TypeAlias

import pyarrow as pa

from alluvia.commit.event_window.id_runs import EVENT_ID
from alluvia.delta.log.actions import AddFile
from alluvia.delta.snapshot import Snapshot
from alluvia.lazy_dataclasses import dataclass
from alluvia.store import Store
from alluvia.verify.data_files import FileVerification, RowRules
from alluvia.verify.event_ids import EventIds, IdTables, Repeated
from alluvia.verify.file_checks import There
from alluvia.verify.replaying import CommitOrigin, Replay
from alluvia.verify.report import Findings
from alluvia.verify.window_checks import WindowRecord


class FileToRead(NamedTuple):
    """A live file, whether its deletion vector can be read, and when its rows were committed, None if unknown."""

    file: AddFile
    vector_known: bool
    committed_ms: int | None

    @property
    def size(self) -> int:
        """Return the file's size in bytes."""
        return self.file.size


@dataclass(frozen=True, slots=True)
class FilesRead:
    """The rows of each of some files, None where one could not be read, what is wrong with them, and event ids."""

    rows: Sequence[int | None]
    findings: Findings
    ids: Sequence[pa.Table] = ()


FileReader: TypeAlias = Callable[[Snapshot, RowRules, Sequence[FileToRead], bool], Iterator[FilesRead]]
"""Reads files of a snapshot elsewhere, some at a time, and the event ids of their rows if asked to."""


def read_files(
    store: Store,
    snapshot: Snapshot,
    rules: RowRules,
    files: Sequence[FileToRead],
    findings: Findings,
    ids: EventIds | IdTables | None,
) -> Iterator[int | None]:
    """Read files one after the other, and yield how many live rows each has; None where one could not be read."""
    paths = store.prefetch((snapshot.key(each.file), each.file.size) for each in files)
    for (file, known, committed_ms), path in zip(files, paths, strict=True):
        if path is None:
            findings.add("data-file-missing", f"data file {file.path} is missing", file=file.path)
            yield None
        else:
            verification = FileVerification(store, snapshot, rules, file, findings)
            yield verification.run(path, vector_known=known, ids=ids, committed_ms=committed_ms)


@dataclass(frozen=True, slots=True)
class Reading:
    """Reads the live files of a snapshot that are `there`; by `reader`, if there is one."""

    store: Store
    snapshot: Snapshot
    rules: RowRules
    there: There
    findings: Findings
    progress: Callable[[str, int, int], None]
    reader: FileReader | None = None

    def run(self, replay: Replay, events: WindowRecord | None, window_ms: int) -> int | None:
        """Read all rows and return how many there are; None where a file could not be read.

        Without `events`, what the log says of them, events that are stored twice are not reported.
        """
        there = self.there
        files = [
            FileToRead(file, file.path not in there.broken_vectors, _committed_ms(replay.added.get(file.key)))
            for file in replay.files.values()
            if file.path in there.paths
        ]
        counts: list[int | None] = [None] if len(files) < len(replay.files) else []
        with ExitStack() as stack:
            ids = stack.enter_context(EventIds()) if events is not None and self._has_ids() else None
            for done, count in enumerate(self._read(files, ids), 1):
                counts.append(count)
                self.progress("files", done, len(files))
            if ids is not None and events is not None:
                self._report_repeated(ids.repeated(), window_ms if events.digests else None)
        return total_of(counts)

    def _read(self, files: Sequence[FileToRead], ids: EventIds | None) -> Iterator[int | None]:
        if self.reader is None:
            yield from read_files(self.store, self.snapshot, self.rules, files, self.findings, ids)
            return
        for read in self.reader(self.snapshot, self.rules, files, ids is not None):
            self.findings.take(read.findings)
            if ids is not None:
                for table in read.ids:
                    ids.take(table)
            yield from read.rows

    def _has_ids(self) -> bool:
        schema = self.snapshot.schema
        at = schema.get_field_index(EVENT_ID)
        return at >= 0 and pa.types.is_string(schema.field(at).type)

    def _report_repeated(self, repeated: Iterable[Repeated], window_ms: int | None) -> None:
        """Report events with several rows; `window_ms` is None where nothing was ever ingested.

        Ingestion promises one row for each event within the window. Beyond it, or where rows were only appended,
        several may be meant.
        """
        several = 0
        for each in repeated:
            several += 1
            if window_ms is None:
                continue
            name = f"event {each.event_id!r} has {each.rows} rows"
            if each.apart_ms is not None and each.apart_ms <= window_ms:
                msg = f"{name}, two of them {each.apart_ms} ms apart, within the table's window of {window_ms} ms"
                self.findings.add("event-repeated", msg, column=EVENT_ID)
            else:
                apart = "of unknown times" if each.apart_ms is None else f"at least {each.apart_ms} ms apart"
                msg = f"{name}, {apart}; within the table's window of {window_ms} ms there would be one"
                self.findings.add("event-repeated-later", msg, column=EVENT_ID)
        if several and window_ms is None:
            msg = f"{several} values of {EVENT_ID} have several rows; nothing was ingested here, which would prevent it"
            self.findings.add("event-ids-shared", msg, column=EVENT_ID)


def _committed_ms(origin: CommitOrigin | None) -> int | None:
    """Return when a file's rows were committed, if the commit that added it brought them."""
    return origin.timestamp_ms if origin is not None and origin.data_change and origin.timestamp_ms else None


def total_of(counts: Iterable[int | None]) -> int | None:
    """Return the sum of some numbers; None if one of them is not known."""
    total = 0
    for count in counts:
        if count is None:
            return None
        total += count
    return total
