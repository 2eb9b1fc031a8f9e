"""Objects that a query's process serves to DuckDB as files, and their form on the pipe. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from alluvia.store.base import Address

SCHEME = "alluvia"


class WantedColumns(NamedTuple):
    """Columns that a query can mean of a table, as files call them; none where they are not known.

    No condition is about `results`, which are in the order of their names in the query. DuckDB reads them last in a row
    group, and either all of them or none.
    """

    names: tuple[str, ...] = ()
    results: tuple[str, ...] = ()

    @property
    def as_read(self) -> tuple[str, ...]:
        """Return them in the order in which DuckDB reads them, those of conditions first."""
        limiting = tuple(name for name in self.names if name not in self.results)
        return (*limiting, *self.results) if limiting else self.results[::-1]


class ServedFile(NamedTuple):
    """An object that DuckDB opens by `name`. It never changes.

    `store` numbers its store among all stores of the parent process, so that no query gets bytes that were read from
    another one. `size` is in bytes, and `modified_ms` a time, as the log has them. `source` numbers the inputs of the
    query, and `wanted` are the columns that it can mean of this one. `tail` are the file's last bytes, if known.
    """

    name: str
    address: Address
    store: int
    size: int
    modified_ms: int
    source: int = 0
    wanted: WantedColumns = WantedColumns()
    tail: bytes = b""


def name_of(number: int) -> str:
    """Return the name of a query's file; none is a part of another's."""
    return f"{SCHEME}://{number}.parquet"


def packed(files: Sequence[ServedFile]) -> tuple[dict[str, Any], bytes]:
    """Return files as values that JSON has, and their tails."""
    places: dict[tuple[str, tuple[tuple[str, str], ...]], int] = {}
    wanted: dict[WantedColumns, int] = {}
    rows = []
    for file in files:
        place = places.setdefault((file.address.uri, tuple(file.address.options.items())), len(places))
        address = file.address
        columns = wanted.setdefault(file.wanted, len(wanted))
        rows.append([file.name, place, address.key, address.etag, *file[2:6], columns, len(file.tail)])
    names = [tuple(columns) for columns in wanted]
    return {"places": list(places), "wanted": names, "files": rows}, b"".join(file.tail for file in files)


def unpacked(places: Sequence[Any], wanted: Sequence[Any], files: Sequence[Any], tails: bytes) -> list[ServedFile]:
    """Return what `packed` was given."""
    unpacked_files, start = [], 0
    columns = [WantedColumns(tuple(names), tuple(results)) for names, results in wanted]
    for name, place, key, etag, store, size, modified_ms, source, named, length in files:
        uri, options = places[place]
        address = Address(uri, dict(options), key, etag)
        tail = tails[start : start + length]
        unpacked_files.append(ServedFile(name, address, store, size, modified_ms, source, columns[named], tail))
        start += length
    return unpacked_files
