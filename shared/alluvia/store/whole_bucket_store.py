"""A store that can also read outside its root, for files that a table names by absolute path, as shallow clones do."""

from __future__ import annotations

from pathlib import Path

from alluvia.store.base import Address, ObjectInfo, Store
from alluvia.store.uris import canonical_path
from alluvia.store.wrapper import Wrapper


class WideStore(Wrapper):
    """`inner`, and for reading all of `outer`, the file system or bucket that `inner` is a part of.

    An object outside has its absolute path or URI as its key (see `locate`), which no object inside can have. Nothing
    outside is ever written, listed or deleted.
    """

    def __init__(self, inner: Store, outer: Store) -> None:
        super().__init__(inner)
        self.outer = outer
        self.is_wide = True

    def locate(self, path: str) -> str | None:
        """Return the key of an object inside or outside; None if it is in another file system or bucket."""
        key = self.inner.locate(path)
        if key is None and self.outer.locate(path) is not None:
            return canonical_path(path)
        return key

    def _at(self, key: str) -> tuple[Store, str]:
        outside = self.outer.locate(key) if key.startswith("/") or "://" in key else None
        return (self.inner, key) if outside is None else (self.outer, outside)

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        store, key = self._at(key)
        return store.get(key, start, end)

    def get_same(self, key: str, etag: str, start: int = 0, end: int | None = None) -> bytes | None:
        store, key = self._at(key)
        return store.get_same(key, etag, start, end)

    def head(self, key: str) -> ObjectInfo | None:
        store, key = self._at(key)
        return store.head(key)

    def url(self, key: str) -> str | None:
        store, key = self._at(key)
        return store.url(key)

    def address(self, key: str) -> Address | None:
        store, key = self._at(key)
        return store.address(key)

    def local_path(self, key: str) -> Path | None:
        store, key = self._at(key)
        return store.local_path(key)

    def get_file(self, key: str, path: Path) -> None:
        store, key = self._at(key)
        store.get_file(key, path)
