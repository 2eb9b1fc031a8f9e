"""A wrapper that counts what a store is asked: the measure of cost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from alluvia.store.base import ObjectInfo, PutResult, Store

LIST_PAGE = 1000
DELETE_BATCH = 1000


class CountingStore(Store):
    """Counts requests as S3 bills them: a listing is one request per started 1,000 keys, a bulk delete likewise.

    `requests` counts by kind (get, put, list, delete, head); `bytes_read` and `bytes_written` are payload bytes.
    """

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.uri = inner.uri
        self.parallel = inner.parallel
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Start from zero."""
        self.requests: Counter[str] = Counter()
        self.bytes_read = 0
        self.bytes_written = 0
        self.keys: list[tuple[str, str]] = []

    def _count(self, kind: str, key: str, read: int = 0, written: int = 0) -> None:
        with self._lock:
            self.requests[kind] += 1
            self.bytes_read += read
            self.bytes_written += written
            self.keys.append((kind, key))

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        """Count a GET, also one that finds nothing."""
        self._count("get", key)
        data = self.inner.get(key, start, end)
        with self._lock:
            self.bytes_read += len(data)
        return data

    def put(self, key: str, data: bytes) -> None:
        """Count a PUT."""
        self._count("put", key, written=len(data))
        self.inner.put(key, data)

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        """Count a PUT."""
        self._count("put", key, written=len(data))
        return self.inner.put_if_absent(key, data)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Count a LIST per page of 1,000 keys."""
        self._count("list", prefix)
        for number, info in enumerate(self.inner.list(prefix, start_after)):
            if number and number % LIST_PAGE == 0:
                self._count("list", prefix)
            yield info

    def list_folders(self, prefix: str) -> Iterator[str]:
        """Count a LIST."""
        self._count("list", prefix)
        yield from self.inner.list_folders(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        """Count a DELETE per batch of 1,000 keys."""
        batch = list(keys)
        for start in range(0, len(batch), DELETE_BATCH):
            self._count("delete", batch[start])
        self.inner.delete(batch)

    def head(self, key: str) -> ObjectInfo | None:
        """Count a HEAD."""
        self._count("head", key)
        return self.inner.head(key)

    def url(self, key: str) -> str | None:
        """As the inner store has it."""
        return self.inner.url(key)

    def locate(self, path: str) -> str | None:
        """As the inner store has it."""
        return self.inner.locate(path)

    def duckdb_secret(self) -> dict[str, str | bool] | None:
        """As the inner store has it."""
        return self.inner.duckdb_secret()

    def local_path(self, key: str) -> Path | None:
        """Count a GET where the file is read in place."""
        path = self.inner.local_path(key)
        if path is not None:
            self._count("get", key, read=path.stat().st_size)
        return path

    def sweep(self, prefix: str, before_ms: int) -> None:
        """As the inner store does it; not a request that S3 bills."""
        self.inner.sweep(prefix, before_ms)

    def get_file(self, key: str, path: Path) -> None:
        """Count a GET."""
        self._count("get", key)
        self.inner.get_file(key, path)
        with self._lock:
            self.bytes_read += path.stat().st_size

    def put_file(self, key: str, path: Path) -> None:
        """Count a PUT."""
        self._count("put", key, written=path.stat().st_size)
        self.inner.put_file(key, path)
