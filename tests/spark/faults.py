"""A store that fails once, in whatever executor comes first."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from alluvia.clock import Clock
from alluvia.errors import Unavailable
from alluvia.store import ObjectInfo, PutResult, Store, open_store


class FailsOnce(Store):
    """Writes the first data file that it is given and then fails: by an error, or by the death of the process."""

    def __init__(self, inner: Store, marker: Path, *, dies: bool) -> None:
        self.inner = inner
        self.uri = inner.uri
        self.marker = marker
        self.dies = dies

    def put(self, key: str, data: bytes) -> None:
        self.inner.put(key, data)
        try:
            self.marker.touch(exist_ok=False)
        except FileExistsError:
            return
        if self.dies:
            os._exit(1)
        raise Unavailable("the store failed once")

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        return self.inner.get(key, start, end)

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        return self.inner.put_if_absent(key, data)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self.inner.list(prefix, start_after)

    def list_folders(self, prefix: str) -> Iterator[str]:
        return self.inner.list_folders(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        self.inner.delete(keys)

    def head(self, key: str) -> ObjectInfo | None:
        return self.inner.head(key)

    def url(self, key: str) -> str | None:
        return self.inner.url(key)


def open_failing(marker: Path, dies: bool, uri: str, clock: Clock, **options: str) -> Store:
    """Open a store as `open_store` does, but one that fails once in all the processes that share a marker."""
    return FailsOnce(open_store(uri, clock, **options), marker, dies=dies)
