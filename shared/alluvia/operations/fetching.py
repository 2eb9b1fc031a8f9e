"""Data files one after another, the next ones fetched meanwhile where the store is far away."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from alluvia.log.actions import AddFile
from alluvia.operations.datafile import DataFile
from alluvia.table.handle import TableHandle
from alluvia.table.snapshot import Snapshot

AHEAD_FILES = 8
AHEAD_BYTES = 256 << 20
"""So much of the disk may hold files that have been fetched and not yet been read."""


def opened(
    handle: TableHandle, snapshot: Snapshot, files: Sequence[AddFile], known: Mapping[str, int]
) -> Iterator[DataFile]:
    """Yield files of a snapshot in order; the caller uses each in a `with` block before the next.

    `known` has the number of rows of those, by path, that may not have to be read at all.
    """
    if not handle.store.parallel or len(files) < 2:
        for file in files:
            yield DataFile(handle, snapshot, file, known.get(file.path))
        return
    pending = deque(files)
    ahead: deque[tuple[DataFile, Future[None]]] = deque()
    pool = ThreadPoolExecutor(AHEAD_FILES)
    try:
        while pending or ahead:
            while pending and _may_fetch(ahead, pending[0]):
                data = DataFile(handle, snapshot, pending[0], known.get(pending[0].path))
                ahead.append((data, pool.submit(data.fetch if pending.popleft().path not in known else _wait)))
            data, fetched = ahead.popleft()
            try:
                fetched.result()
            except BaseException:
                data.close()
                raise
            yield data
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
        for data, _ in ahead:
            data.close()


def _wait() -> None:
    """Fetch nothing."""


def _may_fetch(ahead: Sequence[tuple[DataFile, Future[None]]], file: AddFile) -> bool:
    waiting = sum(data.file.size for data, _ in ahead)
    return not ahead or (len(ahead) < AHEAD_FILES and waiting + file.size <= AHEAD_BYTES)
