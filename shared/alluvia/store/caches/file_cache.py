"""Copies of small data files on scratch: each is fetched whole, with one GET, and kept for later queries.

A data file never changes, so a copy is good for as long as it lies here. It is kept for an hour at most, because the
rows of its file may be erased meanwhile. Copies lie in the process's folder, which only its user may open, and go when
the process ends; the system's page cache keeps in memory what is read often.

The database of a query can open the copies that it is given, and could write to them if anything got past the checks of
its text. So a copy is read-only, and one that is not as it was left is not used again.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import field
from itertools import count
from pathlib import Path
from threading import Lock, Timer
from typing import NamedTuple

from alluvia.errors import AlluviaError
from alluvia.lazy_dataclasses import dataclass
from alluvia.scratch import scratch_root
from alluvia.store.base import Store
from alluvia.store.caches.range_cache import KEPT_SECONDS
from alluvia.store.numbers import number_of
from alluvia.store.requests import REQUESTS_AT_ONCE, metered_here

_CHECK_SECONDS = 0.05


class RemoteFile(NamedTuple):
    """An object that never changes: its key, and its size in bytes and its time as the log has them."""

    key: str
    size: int
    modified_ms: int


_Name = tuple[int, RemoteFile]
_Stamp = tuple[int, int, int]


@dataclass(eq=False, slots=True)
class _Copy:
    """A copy, or the room for one that is on its way; `stamp` is what a complete one looks like."""

    name: _Name
    path: Path
    began: float
    holders: int = 1
    stamp: _Stamp | None = None
    fetched: Future[bool] = field(default_factory=Future)

    @property
    def size(self) -> int:
        return self.name[1].size

    @property
    def is_idle(self) -> bool:
        """Whether no query holds or fetches it."""
        return not self.holders and self.fetched.done()

    @property
    def is_intact(self) -> bool:
        """Whether it is as it was left, or on its way."""
        return self.stamp is None or self.stamp == _stamp(self.path)


class Held:
    """Copies that stay until they are released: their paths, by the keys of their objects."""

    def __init__(self, copies: Sequence[_Copy] = (), release: Callable[[Sequence[_Copy]], None] | None = None) -> None:
        self.paths = {copy.name[1].key: copy.path for copy in copies if copy.fetched.result()}
        self._copies = copies
        self._release = release

    def release(self) -> None:
        """Let the copies go when their room is needed."""
        copies, self._copies = self._copies, ()
        if self._release is not None:
            self._release(copies)


class FileCache:
    """Copies of data files for the queries of this process, in `folder`. Safe for use from several threads."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        """`now` gives the time in seconds since the Unix epoch."""
        self._now = now
        self._lock = Lock()
        self._numbers = count()
        self._begin()

    def _begin(self) -> None:
        self._owner = os.getpid()
        self._copies: dict[_Name, _Copy] = {}  # in the order of their last use
        self.folder: Path | None = None
        self._timer: Timer | None = None

    @property
    def held_bytes(self) -> int:
        """Return how much of the disk the copies take, those on their way included."""
        return sum(copy.size for copy in self._copies.values())

    def hold(
        self, store: Store, files: Iterable[RemoteFile], limit_bytes: int, check: Callable[[], None] = lambda: None
    ) -> Held:
        """Return copies of files; those that are missing are fetched, several at the same time.

        All copies of this process take up to `limit_bytes` of the disk: those used least recently make room. A file
        that finds none, or cannot be fetched, has no copy. `check` is called meanwhile, and raises to give up.
        """
        with self._lock:
            copies, missing = self._reserve(store, dict.fromkeys(files), limit_bytes)
        pool = ThreadPoolExecutor(min(REQUESTS_AT_ONCE, max(1, len(missing))))
        tasks = [(copy, pool.submit(metered_here(self._fetch), store, copy)) for copy in missing]
        try:
            pending = {copy.fetched for copy in copies}
            while pending:
                pending = wait(pending, _CHECK_SECONDS).not_done
                check()
        except BaseException:
            self._let_go(copies)
            raise
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
            for copy, task in tasks:
                if task.cancelled():
                    self._end(copy, None)
        return Held(copies, self._let_go)

    def _reserve(self, store: Store, files: Iterable[RemoteFile], limit_bytes: int) -> tuple[list[_Copy], list[_Copy]]:
        """Return the copies of files, held, and those of them that have to be fetched."""
        if self._owner != os.getpid():  # after a fork the copies are the parent's
            self._begin()
        self._delete_old()
        number = number_of(store)
        copies, wanted, missing = [], [], []
        for file in files:
            copy = self._copies.pop((number, file), None)
            if copy is not None and copy.is_intact:
                self._copies[copy.name] = copy
                copy.holders += 1
                copies.append(copy)
                continue
            wanted.append((number, file))
            if copy is not None:
                copy.path.unlink(missing_ok=True)
        room = limit_bytes - self.held_bytes
        idle = [copy for copy in reversed(self._copies.values()) if copy.is_idle]
        for name in wanted:
            while idle and room < name[1].size <= limit_bytes:
                room += idle[-1].size
                self._delete(idle.pop())
            if room >= name[1].size >= 0:  # a log may say anything
                room -= name[1].size
                missing.append(self._new_copy(name))
        return [*copies, *missing], missing

    def _new_copy(self, name: _Name) -> _Copy:
        if self.folder is None:
            self.folder = Path(tempfile.mkdtemp(prefix="files-", dir=scratch_root()))
        copy = _Copy(name, self.folder / f"{next(self._numbers)}.parquet", self._now())
        self._copies[name] = copy
        self._watch_age()
        return copy

    def _fetch(self, store: Store, copy: _Copy) -> None:
        """Fetch a copy. What goes wrong is left to DuckDB, which then reads the file itself and says what it is."""
        stamp = None
        try:
            data = store.get(copy.name[1].key, 0, copy.size + 1)
            if len(data) == copy.size:
                stamp = _write(copy.path, data)
        except (AlluviaError, OSError):
            stamp = None
        finally:
            self._end(copy, stamp)

    def _end(self, copy: _Copy, stamp: _Stamp | None) -> None:
        """Note that a copy is complete, or that there is none."""
        with self._lock:
            copy.stamp = stamp
            if stamp is None:
                self._delete(copy)
        copy.fetched.set_result(stamp is not None)

    def _let_go(self, copies: Sequence[_Copy]) -> None:
        with self._lock:
            for copy in copies:
                copy.holders -= 1

    def _delete(self, copy: _Copy) -> None:
        if self._copies.get(copy.name) is copy:
            del self._copies[copy.name]
        copy.path.unlink(missing_ok=True)

    def _delete_old(self) -> None:
        for copy in [*self._copies.values()]:
            if copy.is_idle and self._now() - copy.began >= KEPT_SECONDS:
                self._delete(copy)

    def _watch_age(self) -> None:
        """Have old copies deleted in a process that runs no more queries, too."""
        if self._timer is None and self._copies:
            oldest = min(copy.began for copy in self._copies.values())
            self._timer = Timer(max(1.0, oldest + KEPT_SECONDS - self._now()), self._look_at_age)
            self._timer.daemon = True
            self._timer.start()

    def _look_at_age(self) -> None:
        with self._lock:
            self._timer = None
            self._delete_old()
            self._watch_age()


def _write(path: Path, data: bytes) -> _Stamp:
    """Write a file that may only be read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    stamp = _stamp(path)
    if stamp is None:
        raise FileNotFoundError(path)
    return stamp


def _stamp(path: Path) -> _Stamp | None:
    """Return what changes when a file is written; None if it is not there."""
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns, status.st_ino


FILES = FileCache()
"""The copies of this process."""
