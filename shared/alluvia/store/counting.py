"""A wrapper that counts requests to a store, which is how cost is measured."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from alluvia.store.base import ObjectInfo, PutResult, Store
from alluvia.store.wrapper import Wrapper

T = TypeVar("T")
LIST_PAGE = 1000
PART_BYTES = 8 << 20
DELETE_BATCH = 1000
_BILLED_AS = {
    **dict.fromkeys(("put_if_absent", "put_if_same", "put_new", "put_new_file", "put_parts", "copy"), "put"),
    **dict.fromkeys(("get_same", "get_tagged", "get_file"), "get"),
    "list_folders": "list",
}


class CountingStore(Wrapper):
    """Counts requests as S3 bills them: a listing is one request per started 1,000 keys, a bulk delete likewise.

    `requests` counts by kind (get, put, list, delete, head); `bytes_read` and `bytes_written` are payload bytes.
    """

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self._lock = threading.Lock()
        self.reset()

    def reset(self) -> None:
        """Start from zero."""
        self.requests: Counter[str] = Counter()
        self.bytes_read = 0
        self.bytes_written = 0
        self.keys: list[tuple[str, str]] = []

    def request(self, kind: str, key: str, send: Callable[[], T]) -> T:
        """Count a request, also one that fails."""
        kind = _BILLED_AS.get(kind, kind)
        with self._lock:
            self.requests[kind] += 1
            self.keys.append((kind, key))
        return send()

    def _count_bytes(self, *, read: int = 0, written: int = 0) -> None:
        with self._lock:
            self.bytes_read += read
            self.bytes_written += written

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        data = super().get(key, start, end)
        self._count_bytes(read=len(data))
        return data

    def get_same(self, key: str, etag: str, start: int = 0, end: int | None = None) -> bytes | None:
        data = super().get_same(key, etag, start, end)
        self._count_bytes(read=len(data or b""))
        return data

    def put(self, key: str, data: bytes) -> None:
        self._count_bytes(written=len(data))
        super().put(key, data)

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        self._count_bytes(written=len(data))
        return super().put_if_absent(key, data)

    def put_new(self, key: str, data: bytes) -> None:
        self._count_bytes(written=len(data))
        super().put_new(key, data)

    def get_tagged(self, key: str) -> tuple[bytes, str]:
        data, tag = super().get_tagged(key)
        self._count_bytes(read=len(data))
        return data, tag

    def put_if_same(self, key: str, data: bytes, tag: str) -> bool:
        self._count_bytes(written=len(data))
        return super().put_if_same(key, data, tag)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Count a LIST per page of 1,000 keys."""
        for number, info in enumerate(super().list(prefix, start_after)):
            if number and number % LIST_PAGE == 0:
                self.request("list", prefix, lambda: None)
            yield info

    def delete(self, keys: Iterable[str]) -> None:
        """Count a DELETE per batch of 1,000 keys."""
        batch = [*keys]
        for start in range(0, len(batch), DELETE_BATCH):
            super().delete(batch[start : start + DELETE_BATCH])

    def local_path(self, key: str) -> Path | None:
        """Count a GET where the file is read in place."""
        path = super().local_path(key)
        if path is not None:
            self._count_bytes(read=path.stat().st_size)
            self.request("get", key, lambda: None)
        return path

    def get_file(self, key: str, path: Path) -> None:
        super().get_file(key, path)
        self._count_bytes(read=path.stat().st_size)

    def put_parts(self, key: str, parts: Iterable[bytes], headers: Mapping[str, str]) -> None:
        """Count one PUT for each part that S3 would take, and two requests that begin and complete the upload."""
        total = 0

        def counted() -> Iterator[bytes]:
            nonlocal total
            for part in parts:
                total += len(part)
                self._count_bytes(written=len(part))
                yield part

        super().put_parts(key, counted(), headers)
        for _ in range(1 + max(1, -(-total // PART_BYTES))):
            self.request("put", key, lambda: None)

    def put_new_file(self, key: str, path: Path) -> None:
        self._count_bytes(written=path.stat().st_size)
        super().put_new_file(key, path)
