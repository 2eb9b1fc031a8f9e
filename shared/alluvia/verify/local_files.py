"""Data files on this machine one after another, the next ones fetched meanwhile where the store is far away."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from alluvia.errors import ObjectNotFound
from alluvia.log.actions import AddFile
from alluvia.scratch import scratch_root
from alluvia.store import Store
from alluvia.table.snapshot import Snapshot

AHEAD_FILES = 8
AHEAD_BYTES = 256 << 20
"""So much of the disk may hold files that have been fetched and not yet been read."""


def local_files(store: Store, snapshot: Snapshot, files: Sequence[AddFile]) -> Iterator[tuple[AddFile, Path | None]]:
    """Yield files with where they are on this machine, until the next is asked for; None for one that is gone."""
    with tempfile.TemporaryDirectory(dir=scratch_root()) as folder:
        pool = ThreadPoolExecutor(AHEAD_FILES if store.parallel else 1)
        pending = deque(enumerate(files))
        ahead: deque[tuple[AddFile, Path, Future[Path | None]]] = deque()
        try:
            while pending or ahead:
                while pending and _may_fetch(ahead, pending[0][1]):
                    number, file = pending.popleft()
                    copy = Path(folder, f"{number}.parquet")
                    ahead.append((file, copy, pool.submit(_fetch, store, snapshot.key(file), copy)))
                file, copy, fetched = ahead.popleft()
                yield file, fetched.result()
                with suppress(FileNotFoundError):  # a file of a directory is read where it lies
                    copy.unlink()
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def _fetch(store: Store, key: str, copy: Path) -> Path | None:
    try:
        path = store.local_path(key)
        if path is None:
            store.get_file(key, copy)
            path = copy
    except ObjectNotFound:
        return None
    return path


def _may_fetch(ahead: Sequence[tuple[AddFile, Path, Future[Path | None]]], file: AddFile) -> bool:
    waiting = sum(each.size for each, _, _ in ahead)
    return not ahead or (len(ahead) < AHEAD_FILES and waiting + file.size <= AHEAD_BYTES)
