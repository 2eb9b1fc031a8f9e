"""A store in the memory of the process, for tests and experiments."""

from __future__ import annotations

import threading
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping

from alluvia.clock import Clock, SystemClock
from alluvia.errors import KeyTaken, ObjectNotFound
from alluvia.store.base import ObjectInfo, PutResult, Store, check_key, check_prefix, check_range, content_tag


class MemoryStore(Store):
    """Objects in a dictionary behind one lock. It lives as long as the process."""

    def __init__(self, name: str = "", clock: Clock | None = None) -> None:
        self.uri = f"memory://{name}"
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._objects: dict[str, tuple[bytes, int, str]] = {}
        self._puts = 0
        self._keys: list[str] = []

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        check_range(start, end)
        with self._lock:
            stored = self._objects.get(check_key(key))
        if stored is None:
            raise ObjectNotFound(key)
        return stored[0][start:end]

    def get_same(self, key: str, etag: str, start: int = 0, end: int | None = None) -> bytes | None:
        check_range(start, end)
        with self._lock:
            stored = self._objects.get(check_key(key))
        if stored is None:
            raise ObjectNotFound(key)
        return stored[0][start:end] if stored[2] == etag else None

    def put(self, key: str, data: bytes) -> None:
        check_key(key)
        with self._lock:
            self._write(key, data)

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        check_key(key)
        with self._lock:
            if key in self._objects:
                return PutResult.EXISTS
            self._write(key, data)
        return PutResult.CREATED

    def put_new(self, key: str, data: bytes) -> None:
        check_key(key)
        with self._lock:
            if key not in self._objects:
                self._write(key, data)
            elif self._objects[key][0] != data:
                raise KeyTaken(key)

    def put_if_same(self, key: str, data: bytes, tag: str) -> bool:
        check_key(key)
        with self._lock:
            if key not in self._objects or content_tag(self._objects[key][0]) != tag:
                return False
            self._write(key, data)
        return True

    def put_parts(self, key: str, parts: Iterable[bytes], headers: Mapping[str, str]) -> None:  # noqa: ARG002
        self.put(key, b"".join(parts))

    def _write(self, key: str, data: bytes) -> None:
        if key not in self._objects:
            insort(self._keys, key)
        self._puts += 1
        self._objects[key] = (bytes(data), self._clock.now_ms(), f"{self._puts}")

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        """Objects below a prefix, in key order (code point order is UTF-8 order)."""
        check_prefix(prefix)
        with self._lock:
            at = bisect_left(self._keys, prefix)
            objects = []
            while at < len(self._keys) and self._keys[at].startswith(prefix):
                key = self._keys[at]
                if start_after is None or key > start_after:
                    data, modified_ms, etag = self._objects[key]
                    objects.append(ObjectInfo(key, len(data), modified_ms, etag))
                at += 1
        return iter(objects)

    def list_folders(self, prefix: str) -> Iterator[str]:
        check_prefix(prefix)
        with self._lock:
            rests = [key[len(prefix) :] for key in self._keys if key.startswith(prefix)]
        folders = {rest.partition("/")[0] + "/" for rest in rests if "/" in rest}
        return iter([folder[:-1] for folder in sorted(folders)])

    def delete(self, keys: Iterable[str]) -> None:
        with self._lock:
            for key in map(check_key, keys):
                if self._objects.pop(key, None) is not None:
                    del self._keys[bisect_left(self._keys, key)]

    def head(self, key: str) -> ObjectInfo | None:
        with self._lock:
            stored = self._objects.get(check_key(key))
        return ObjectInfo(key, len(stored[0]), *stored[1:]) if stored else None

    def url(self, key: str) -> str | None:  # noqa: ARG002
        """None: DuckDB cannot read this process's dictionaries."""
        return None
