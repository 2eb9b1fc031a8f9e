"""A store that can also read places outside its root: the folders of tables elsewhere, for a lake that refers to them.

Only what was asked for with `reach` is read, and nothing outside is ever written or deleted.
"""

from __future__ import annotations

import os
import re
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from threading import Lock

from alluvia.errors import Corrupt, Forbidden, Invalid, Unsupported
from alluvia.scratch import scratch_root
from alluvia.store.base import Address, ListedPage, ObjectInfo, Store
from alluvia.store.uris import canonical_path, canonical_place, table_place
from alluvia.store.wrapper import Wrapper


class _ReadsElsewhere(Wrapper):
    """Reads each object from the store that has it. Writes and deletions go to `inner` alone."""

    @abstractmethod
    def _at(self, key: str) -> tuple[Store, str]:
        """Return the store that has a key, and its key there."""

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        store, key = self._at(key)
        return store.get(key, start, end)

    def get_same(self, key: str, etag: str, start: int = 0, end: int | None = None) -> bytes | None:
        store, key = self._at(key)
        return store.get_same(key, etag, start, end)

    def get_tagged(self, key: str) -> tuple[bytes, str]:
        store, key = self._at(key)
        return store.get_tagged(key)

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


class WideStore(_ReadsElsewhere):
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


PIN = "#etag="
_LAST = chr(0x10FFFF)
_DECISION = re.compile(r"[^/]+/_alluvia/transactions/[^/]+\.json")
"""What a table that takes part in a transaction of its lake needs of that lake's other tables."""


class OutsideStore(_ReadsElsewhere):
    """`inner`, and for reading, places outside it.

    With `PIN` and an ETag after it, a key is that object as long as it has this ETag; else reading it is `Corrupt`.

    An object outside has its absolute path or URI as its key, which no object inside can have. `open_place` opens the
    store at a URI; one in a directory follows no link out of the folders below it. `allowed` are the URIs below which
    places may be; None for any. Which place a table may read is said by the table (`alluvia.delta.places`).
    """

    def __init__(self, inner: Store, open_place: Callable[[str], Store], allowed: Sequence[str] | None = None) -> None:
        super().__init__(inner)
        self._open = open_place
        self._allowed = None if allowed is None else tuple(f"{canonical_place(each).rstrip('/')}/" for each in allowed)
        self._parents: dict[str, Store] = {}
        self._roots: dict[str, tuple[Store, str]] = {}
        """Of what was asked for, the store that it is in, and the start of its keys there."""
        self._lock = Lock()

    def reach(self, uri: str) -> str:
        place = canonical_place(uri).rstrip("/")
        with suppress(Invalid):
            return self.inner.reach(place)
        here, there = (each.partition("://")[0] if "://" in each else "" for each in (self._place, place))
        if there not in ("s3", here):
            raise Invalid(f"a lake at {self.uri} cannot refer to {uri!r}")
        root, real = f"{place}/", f"{_real(place)}/"
        lake = f"{self._place}/", f"{_real(self._place)}/"
        if lake[1].startswith(real) or lake[0].startswith(root):
            raise Invalid(f"{uri!r} contains the lake {self.uri}: give the folder of one table")
        if real.startswith(lake[1]):
            raise Invalid(f"{uri!r} leads into the lake {self.uri}: name the table itself")
        if self._allowed is not None and not (
            root.startswith(self._allowed) and real.startswith(tuple(f"{_real(each)}/" for each in self._allowed))
        ):
            raise Forbidden(
                f"{uri} is outside the lake, and not below a place that this server may read: start it with "
                f"`--outside {uri}`, or set ALLUVIA_OUTSIDE"
            )
        parent, name = table_place(real)
        with self._lock:
            self._roots[root] = self._opened(parent), f"{name}/" if name else ""
            self._opened(_real(table_place(place)[0]))
        return place

    def _opened(self, parent: str) -> Store:
        key = f"{canonical_place(parent).rstrip('/')}/"
        if key not in self._parents:
            self._parents[key] = self._open(parent)
        return self._parents[key]

    @property
    def _place(self) -> str:
        return canonical_place(self.inner.uri).rstrip("/")

    def _at(self, key: str) -> tuple[Store, str]:
        """Return the store that has a key, and its key there. Raises `Unsupported` for places that may not be read."""
        if not is_outside(key):
            return self.inner, key
        with self._lock:
            root = max((each for each in self._roots if key.startswith(each)), key=len, default=None)
            if root is not None:
                store, there = self._roots[root]
                return store, there + key[len(root) :]
            for parent, store in self._parents.items():
                if key.startswith(parent) and _DECISION.fullmatch(key[len(parent) :]):
                    return store, key[len(parent) :]
        raise Unsupported(f"{key} is outside the lake, where this library does not read")

    def locate(self, path: str) -> str | None:
        """Return the key of an object inside, or in a place outside that was asked for."""
        key = self.inner.locate(path)
        whole = canonical_path(path)
        with self._lock:
            return whole if key is None and whole.startswith(tuple(self._roots)) else key

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        if PIN in key:
            plain, _, etag = key.partition(PIN)
            part = self.get_same(plain, etag, start, end)
            if part is None:
                raise Corrupt(_changed(key))
            return part
        return super().get(key, start, end)

    def head(self, key: str) -> ObjectInfo | None:
        info = super().head(key.partition(PIN)[0])
        if PIN in key and info is not None and info.etag != key.partition(PIN)[2]:
            raise Corrupt(_changed(key))
        return info

    def _unpinned(self, key: str) -> str:
        """Return a key without its pin, once the object was found to be what it says. One HEAD for one that has it."""
        if PIN in key and self.head(key) is None:
            raise Corrupt(f"{key.partition(PIN)[0]}, a file of an external table, is gone: refresh the table")
        return key.partition(PIN)[0]

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        store, below, after = self._listed(prefix, start_after)
        for info in store.list(below, after):
            yield ObjectInfo(prefix + info.key[len(below) :], info.size, info.modified_ms, info.etag)

    def list_pages(self, prefix: str, start_after: str | None = None) -> Iterator[ListedPage]:
        store, below, after = self._listed(prefix, start_after)
        for page in store.list_pages(below, after):
            yield page.moved(below, prefix)

    def _listed(self, prefix: str, start_after: str | None) -> tuple[Store, str, str | None]:
        """Return the store that has a prefix, the prefix there, and what to start after."""
        store, below = self._at(prefix)
        if start_after is None or (start_after < prefix and not start_after.startswith(prefix)):
            return store, below, None
        return store, below, below + (start_after[len(prefix) :] if start_after.startswith(prefix) else _LAST)

    def url(self, key: str) -> str | None:
        return super().url(self._unpinned(key))

    def address(self, key: str) -> Address | None:
        """Return where a query's process finds the object; it compares the ETag of one with a pin whenever it reads.

        Where only some places may be read, a file of a directory has one, too: a path that was judged may have become a
        link by the time that DuckDB opens it. Where any may be, a link there leads nowhere that its caller may not go.
        """
        plain, _, etag = key.partition(PIN)
        store, there = self._at(plain)
        address = store.address(there) if store.parallel or self._allowed is not None else None
        return address if address is None or not etag else address._replace(etag=etag)

    def local_path(self, key: str) -> Path | None:
        return super().local_path(self._unpinned(key))

    def copy(self, source: str, key: str) -> None:
        """Copy an object, by way of this machine if it lies outside."""
        store, there = self._at(self._unpinned(source))
        if store is self.inner:
            self.inner.copy(source, key)
            return
        with tempfile.TemporaryDirectory(dir=scratch_root()) as folder:
            path = Path(folder) / "copy"
            store.get_file(there, path)
            self.inner.put_new_file(key, path)

    def get_file(self, key: str, path: Path) -> None:
        super().get_file(self._unpinned(key), path)


def _real(place: str) -> str:
    """Return a place without links and a slash at the end."""
    return (place if "://" in place else os.path.realpath(place or "/")).rstrip("/")


def _changed(key: str) -> str:
    return f"{key.partition(PIN)[0]}, a file of an external table, has changed: refresh the table"


def is_outside(key: str) -> bool:
    """Whether a key is the absolute path or URI of an object outside a store's root."""
    return key.startswith("/") or "://" in key
