"""One process of the fleet. It works until it is killed.

An error that means to try again is noted, and tried again; any other ends the process, and with it the run.
"""

from __future__ import annotations

import contextlib
import os
import random
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from alluvia.api.lake import Lake, Table
from alluvia.clock import SystemClock
from alluvia.errors import CommitUnknown, Conflict, Corrupt, Unavailable, VersionExpired
from alluvia.store import open_store
from tests.processes.events import TABLE, batch_ids, is_doomed, rows_of
from tests.processes.journal import Entry, Journal, all_entries

AGAIN_CHANCE = 0.15
COLD_CHANCE = 0.1
DELETED_MAX = 6
RETENTION = timedelta(seconds=1)

Done = TypeVar("Done")


class Worker:
    """A process's table, and its journal."""

    def __init__(self, uri: str, options: dict[str, str], slot: str, life: int, folder: str, seed: int) -> None:
        self.folder = Path(folder)
        self.slot = slot
        self.random = random.Random(f"{seed} {slot} {life}")
        self.journal = Journal(self.folder / f"{slot}.{life}.journal")
        self._place = uri, options
        self.table = self._open()

    def _open(self) -> Table:
        uri, options = self._place
        clock = SystemClock()
        return Lake(open_store(uri, clock, **options), clock).table(TABLE)

    def insist(self, call: Callable[[Table], Done]) -> Done:
        """Try until there is an answer, now and then as a process that knows nothing of the table yet."""
        while True:
            if self.random.random() < COLD_CHANCE:
                self.table = self._open()
            try:
                return call(self.table)
            except CommitUnknown:
                self.journal.write(Entry("unknown"))
            except (Conflict, Unavailable) as error:
                self.journal.write(Entry("retry", error=type(error).__name__))
            self.pause(0.1)

    def pause(self, seconds_max: float) -> None:
        """Sleep for a while."""
        time.sleep(self.random.random() * seconds_max)

    def rows(self, ids: Sequence[str]) -> pa.Table:
        """Return the rows of events."""
        return rows_of(self.insist(lambda table: table._handle.at_hand().schema), ids)

    def present(self, version: int | None = None) -> tuple[int, list[str]] | None:
        """Return a version and the ids in it; None if vacuum took its files while they were read."""

        def read(table: Table) -> tuple[int, list[str]] | None:
            try:
                at = table.snapshot(version).version
            except VersionExpired:
                return None
            try:
                return at, table.scan(["event_id"], version=at).read_all()["event_id"].to_pylist()
            except VersionExpired:
                return None
            except Corrupt:
                if table.snapshot().version == at:
                    raise
                return None

        return self.insist(read)

    def numbers(self, stream: str) -> tuple[list[int], int]:
        """Return the batches of a stream that anyone was told of, and the first that nobody was."""
        told = {int(each.batch.split("-")[1]) for each in self.known("ack") if each.batch.startswith(f"{stream}-")}
        return sorted(told), next(number for number in range(len(told) + 1) if number not in told)

    def known(self, kind: str) -> list[Entry]:
        """Return what all processes have in their journals, of a kind."""
        return [entry for entry in all_entries(self.folder) if entry.kind == kind]


def ingest(worker: Worker, stream: str) -> None:
    """Send batch after batch, each until it is acknowledged; now and then one that had been, once more."""
    told, number = worker.numbers(stream)
    while True:
        again = bool(told) and worker.random.random() < AGAIN_CHANCE
        at = worker.random.choice(told) if again else number
        ids, batch = batch_ids(stream, at), f"{stream}-{at}"
        rows = worker.rows(ids)
        if not again:
            worker.journal.write(Entry("intent", batch, ids))
        done = worker.insist(lambda table, rows=rows: table.ingest(rows))  # type: ignore[misc]
        worker.journal.write(
            Entry("again" if again else "ack", batch, ids, done.version, done.appended, done.duplicates)
        )
        if not again:
            told.append(number)
            number += 1
        if not done.appended:  # another sends the same batches: go on where nobody has been, so that the two race
            told, number = worker.numbers(stream)
        worker.pause(0.05)


def append(worker: Worker, stream: str) -> None:
    """Append batch after batch, each as one transaction of an application that is known by the stream."""
    _, number = worker.numbers(stream)
    while True:
        ids, batch = batch_ids(stream, number), f"{stream}-{number}"
        rows = worker.rows(ids)
        worker.journal.write(Entry("intent", batch, ids))
        done = worker.insist(lambda table, rows=rows, number=number: table.append(rows, (stream, number)))  # type: ignore[misc]
        added = done.rows or 0
        worker.journal.write(Entry("ack", batch, ids, done.version, added, len(ids) - added))
        number = number + 1 if added else worker.numbers(stream)[1]
        worker.pause(0.05)


def delete(worker: Worker, _: str) -> None:
    """Delete some of the events that may be deleted, of those that are acknowledged and that nobody has picked yet."""
    while True:
        picked = {each for entry in worker.known("delete") for each in entry.ids}
        there = {each for entry in worker.known("ack") for each in entry.ids if is_doomed(each)}
        left = sorted(there - picked) or sorted(there)
        if left:
            ids = tuple(worker.random.sample(left, min(len(left), worker.random.randint(1, DELETED_MAX))))
            worker.journal.write(Entry("delete", ids=ids))
            where = f"event_id IN ({', '.join(f'{chr(39)}{each}{chr(39)}' for each in ids)})"
            done = worker.insist(lambda table, where=where: table.delete(where))  # type: ignore[misc]
            worker.journal.write(Entry("deleted", "", ids, done.version, done.rows_deleted or 0))
        worker.pause(0.5)


def merge(worker: Worker, _: str) -> None:
    """Merge, all of it now and then."""
    while True:
        full = worker.random.random() < 0.2
        done = worker.insist(lambda table, full=full: table.optimize(full=full))  # type: ignore[misc]
        worker.journal.write(Entry("merged", version=done.version, rows=done.files_removed))
        worker.pause(0.3)


def checkpoint(worker: Worker, _: str) -> None:
    """Checkpoint, more often than anyone should."""
    while True:
        worker.journal.write(Entry("checkpointed", version=worker.insist(lambda table: table.checkpoint())))
        worker.pause(1.0)


def vacuum(worker: Worker, _: str) -> None:
    """Delete what was removed a moment ago."""
    while True:
        done = worker.insist(lambda table: table.vacuum(RETENTION))
        worker.journal.write(Entry("vacuumed", version=done.oldest_version, rows=len(done.data_files)))
        worker.pause(1.0)


def read(worker: Worker, _: str) -> None:
    """See each event once, every one that had been acknowledged before, and a version as it was before."""
    remembered: tuple[int, list[str]] | None = None
    while True:
        told = {each for entry in worker.known("ack") for each in entry.ids if not is_doomed(each)}
        gone = {each for entry in worker.known("deleted") for each in entry.ids}
        found = worker.present()
        if found is not None:
            ids = set(found[1])
            assert len(ids) == len(found[1]), f"version {found[0]} has an event twice"
            assert told <= ids, f"version {found[0]} lacks {sorted(told - ids)}, acknowledged before"
            assert not gone & ids, f"version {found[0]} has {sorted(gone & ids)}, deleted before"
        if remembered is not None:
            before = worker.present(remembered[0])
            assert before is None or sorted(before[1]) == remembered[1], f"version {remembered[0]} is not what it was"
        if found is not None and (remembered is None or worker.random.random() < 0.5):
            remembered = found[0], sorted(found[1])
        worker.journal.write(Entry("read", version=-1 if found is None else found[0]))
        worker.pause(0.5)


ROLES: dict[str, Callable[[Worker, str], None]] = {
    job.__name__: job for job in (ingest, append, delete, merge, checkpoint, vacuum, read)
}


def _end_with_parent(alive: Connection[Any, Any]) -> None:
    """End when the fleet does, however it ends: then nothing holds the other end."""

    def wait() -> None:
        with contextlib.suppress(EOFError, ConnectionResetError):
            alive.recv()
        os._exit(0)

    threading.Thread(target=wait, daemon=True).start()


def main(
    alive: Connection[Any, Any], errors: str, scratch: str, role: str, stream: str, arguments: dict[str, Any]
) -> None:
    """Work until killed. What goes wrong is in the file `errors`; temporary files go to `scratch`."""
    file = os.open(errors, os.O_WRONLY | os.O_CREAT, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    tempfile.tempdir = scratch
    _end_with_parent(alive)
    worker = Worker(**arguments)
    worker.insist(lambda table: table.snapshot())
    worker.journal.write(Entry("ready"))
    ROLES[role](worker, stream)
