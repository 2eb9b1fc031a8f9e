"""The base of stores that wrap another."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from alluvia.errors import ReadOnly, Unsupported
from alluvia.store.base import Address, ListedPage, ObjectInfo, OldVersion, PutResult, Store
from alluvia.store.uris import canonical_path

T = TypeVar("T")


class Wrapper(Store):
    """Passes all on to `inner`. A subclass changes single methods, or how every request is sent."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner
        self.uri = inner.uri
        self.parallel = inner.parallel
        self.is_branch = inner.is_branch
        self.is_wide = inner.is_wide

    def request(self, kind: str, key: str, send: Callable[[], T]) -> T:  # noqa: ARG002
        """Have the inner store do what `send` does; `kind` is the method's name, `key` its first key or its prefix.

        Every request comes through here as soon as its method is called; the objects of a listing may come later.
        """
        return send()

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        return self.request("get", key, lambda: self.inner.get(key, start, end))

    def get_same(self, key: str, etag: str, start: int = 0, end: int | None = None) -> bytes | None:
        return self.request("get_same", key, lambda: self.inner.get_same(key, etag, start, end))

    def put(self, key: str, data: bytes) -> None:
        self.request("put", key, lambda: self.inner.put(key, data))

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        return self.request("put_if_absent", key, lambda: self.inner.put_if_absent(key, data))

    def put_new(self, key: str, data: bytes) -> None:
        self.request("put_new", key, lambda: self.inner.put_new(key, data))

    def get_tagged(self, key: str) -> tuple[bytes, str]:
        return self.request("get_tagged", key, lambda: self.inner.get_tagged(key))

    def put_if_same(self, key: str, data: bytes, tag: str) -> bool:
        return self.request("put_if_same", key, lambda: self.inner.put_if_same(key, data, tag))

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self.request("list", prefix, lambda: self.inner.list(prefix, start_after))

    def list_folders(self, prefix: str) -> Iterator[str]:
        return self.request("list_folders", prefix, lambda: self.inner.list_folders(prefix))

    def old_versions(self, prefix: str) -> Iterator[OldVersion]:
        return self.request("list", prefix, lambda: self.inner.old_versions(prefix))

    def delete(self, keys: Iterable[str]) -> None:
        batch = [*keys]
        if batch:
            self.request("delete", batch[0], lambda: self.inner.delete(batch))

    def head(self, key: str) -> ObjectInfo | None:
        return self.request("head", key, lambda: self.inner.head(key))

    def get_file(self, key: str, path: Path) -> None:
        self.request("get_file", key, lambda: self.inner.get_file(key, path))

    def put_new_file(self, key: str, path: Path) -> None:
        self.request("put_new_file", key, lambda: self.inner.put_new_file(key, path))

    def copy(self, source: str, key: str) -> None:
        self.request("copy", key, lambda: self.inner.copy(source, key))

    def put_parts(self, key: str, parts: Iterable[bytes], headers: Mapping[str, str]) -> None:
        self.request("put_parts", key, lambda: self.inner.put_parts(key, parts, headers))

    def url(self, key: str) -> str | None:
        return self.inner.url(key)

    def locate(self, path: str) -> str | None:
        return self.inner.locate(path)

    def reach(self, uri: str) -> str:
        return self.inner.reach(uri)

    def check_lasts(self) -> None:
        self.inner.check_lasts()

    def address(self, key: str) -> Address | None:
        return self.inner.address(key)

    def signed_url(self, method: str, key: str, seconds: int) -> str | None:
        return self.inner.signed_url(method, key, seconds)

    def local_path(self, key: str) -> Path | None:
        return self.inner.local_path(key)

    def sweep(self, prefix: str, before_ms: int) -> None:
        self.inner.sweep(prefix, before_ms)


_READS = frozenset({"get", "get_same", "get_tagged", "list", "list_folders", "head", "get_file"})
_DECISION = re.compile(r"[^/]+/_alluvia/transactions/[^/]+\.json")
"""Decisions next to the root, of transactions in which the table takes part."""
_OF_LAKE = "_alluvia/"


class ReadOnlyStore(Wrapper):
    """`inner`, for reading what is below `root`, a place outside, and for writing nothing.

    `why` is the message of `ReadOnly`, which every write raises.
    """

    def __init__(self, inner: Store, root: str, why: str) -> None:
        super().__init__(inner)
        self._root = root
        self._beside = root[: root.rstrip("/").rfind("/") + 1]
        self._why = why

    def request(self, kind: str, key: str, send: Callable[[], T]) -> T:
        if kind not in _READS:
            raise ReadOnly(self._why)
        self._check(key)
        return super().request(kind, key, send)

    def _check(self, key: str) -> None:
        """Raise `Unsupported` for a key that is neither of the table nor of a lake's own records, here or beside it."""
        if key.startswith((self._root, _OF_LAKE)):
            return
        if not (key.startswith(self._beside) and _DECISION.fullmatch(key[len(self._beside) :])):
            raise Unsupported(f"{key} is outside {self._root}, the folder of the attached table")

    def list_pages(self, prefix: str, start_after: str | None = None) -> Iterator[ListedPage]:
        self._check(prefix)
        return super().list_pages(prefix, start_after)

    def url(self, key: str) -> str | None:
        self._check(key)
        return super().url(key)

    def local_path(self, key: str) -> Path | None:
        self._check(key)
        return super().local_path(key)

    def sweep(self, prefix: str, before_ms: int) -> None:  # noqa: ARG002
        raise ReadOnly(self._why)

    def locate(self, path: str) -> str | None:
        """Return an absolute path as the key that it is here; what a log may name is for `delta/places.py` to say."""
        return canonical_path(path)
