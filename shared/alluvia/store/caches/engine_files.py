"""Objects of our stores as files that DuckDB opens, in the process that runs a query.

DuckDB calls from several threads. It finds the files of its query and no others, by names that say nothing of where
they are, and can only read them. Each read that is not held in memory is one ranged GET, unless `read_ahead` has it;
nothing asks for sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from threading import get_ident
from typing import Any, NamedTuple

from fsspec import AbstractFileSystem

from alluvia.clock import SystemClock
from alluvia.errors import AlluviaError, ObjectNotFound
from alluvia.store import Store, open_store
from alluvia.store.caches.range_cache import KeptBytes
from alluvia.store.caches.read_ahead import ChunkPlaces, ReadAhead
from alluvia.store.caches.served import SCHEME, ServedFile
from alluvia.store.requests import TOTAL

HOT_BYTES = 64 << 20
HOT_RANGE_BYTES = 16 << 20
"""A larger range is read again rather than that it drives out all others."""
STORES_MAX = 8
_Place = tuple[str, tuple[tuple[str, str], ...]]
_hot: KeptBytes[tuple[object, ...]] = KeptBytes(HOT_BYTES)
_stores: dict[_Place, Store] = {}


class Unserved(NamedTuple):
    """A file that DuckDB could not be given, and why: it is `missing`, has `changed`, is too `short`, or `refused`."""

    name: str
    why: str


class EngineFiles(AbstractFileSystem):  # type: ignore[misc]
    """The files of one query. `unserved` is the first that could not be read. `layout` as for `ReadAhead`."""

    protocol = SCHEME
    cachable = False

    def __init__(self, files: Sequence[ServedFile], layout: Callable[[bytes, int, int], ChunkPlaces]) -> None:
        super().__init__()
        self.unserved: Unserved | None = None
        self._files = {file.name: file for file in files}
        self._stores = {place: _store(*place) for place in {_place(file) for file in files}}
        self._ahead = ReadAhead(self._got, layout)

    def open(self, path: str, mode: str = "rb", **_: Any) -> _OpenFile:
        """Open a file for reading."""
        if mode != "rb":
            raise PermissionError(f"{path} can only be read")
        return _OpenFile(self, self._file(path))

    def glob(self, path: str, **_: Any) -> list[str]:
        """Return the file of that name."""
        return [path] if path in self._files else []

    def size(self, path: str) -> int:
        """Return a file's size in bytes, as the log has it."""
        return self._file(path).size

    def modified(self, path: str) -> datetime:
        """Return when a file was written, as the log has it."""
        return datetime.fromtimestamp(self._file(path).modified_ms // 1000, UTC)

    def isfile(self, path: str) -> bool:
        """Whether there is a file of that name."""
        return path in self._files

    exists = isfile

    def _file(self, path: str) -> ServedFile:
        if path not in self._files:
            raise FileNotFoundError(path)
        return self._files[path]

    def read_range(self, file: ServedFile, start: int, end: int) -> bytes:
        """Return bytes of a file. Raises `OSError`, and notes why."""
        data = self._held(file, start, end)
        if data is None:
            found = self._ahead.read(file, start, end) or self._got(file, start, end)
            if isinstance(found, str):
                raise self._failed(file, found)
            data = found
            if len(data) <= HOT_RANGE_BYTES:
                _hot.keep(_key(file, start, end), data)
        self._ahead.note_footer(file, start, data)
        return data

    def _held(self, file: ServedFile, start: int, end: int) -> bytes | None:
        """Return bytes of a file that are in memory."""
        known = file.size - len(file.tail)
        return file.tail[start - known : end - known] if start >= known else _hot.get(_key(file, start, end))

    def end(self) -> None:
        """Send no more requests ahead of DuckDB's reads."""
        self._ahead.close()

    def _got(self, file: ServedFile, start: int, end: int) -> bytes | str:
        """Return bytes of a file, or why they cannot be had."""
        if (held := self._held(file, start, end)) is not None:
            return held
        store, address = self._stores[_place(file)], file.address
        try:
            if address.etag:
                part = store.get_same(address.key, address.etag, start, end)
            else:
                part = store.get(address.key, start, end)
        except ObjectNotFound:
            return "missing"
        except AlluviaError:
            return "refused"
        if part is None:
            return "changed"
        return part if len(part) == end - start else "short"  # DuckDB does not look how much it got

    def _failed(self, file: ServedFile, why: str) -> OSError:
        if self.unserved is None:
            self.unserved = Unserved(file.name, why)
        return OSError(f"{file.name} cannot be read")


class _OpenFile:
    """A file as DuckDB reads it: each thread has a position of its own, which it sets before it reads."""

    def __init__(self, files: EngineFiles, file: ServedFile) -> None:
        self._files = files
        self._file = file
        self._positions: dict[int, int] = {}

    def seek(self, position: int) -> None:
        self._positions[get_ident()] = position

    def tell(self) -> int:
        return self._positions.get(get_ident(), 0)

    def read(self, count: int = -1) -> bytes:
        start = self.tell()
        end = self._file.size if count < 0 else min(start + count, self._file.size)
        data = self._files.read_range(self._file, start, end) if start < end else b""
        self.seek(start + len(data))
        return data

    def close(self) -> None:
        self._positions.clear()


def _key(file: ServedFile, start: int, end: int) -> tuple[object, ...]:
    address = file.address
    return (file.store, address.uri, address.key, address.etag, file.size, file.modified_ms, start, end)


def sent_since() -> Callable[[], dict[str, int]]:
    """Return what tells how many requests this process has sent since now, by kind."""
    before = TOTAL.counts()
    return lambda: dict(TOTAL.counts() - before)


def _place(file: ServedFile) -> _Place:
    return file.address.uri, tuple(sorted(file.address.options.items()))


def _store(uri: str, options: tuple[tuple[str, str], ...]) -> Store:
    """Return the store at a place: one that earlier queries have used, if there is one, with its connections."""
    store = _stores.pop((uri, options), None) or open_store(uri, SystemClock(), **dict(options))
    _stores[uri, options] = store
    while len(_stores) > STORES_MAX:
        del _stores[next(iter(_stores))]
    return store
