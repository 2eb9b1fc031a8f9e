"""Objects that a query's process serves to DuckDB as files, and their form on the pipe. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from alluvia.store.base import Address

SCHEME = "alluvia"


class ServedFile(NamedTuple):
    """An object that DuckDB opens by `name`. It never changes.

    `store` numbers the store that it is in, among all of the process that asks: content that one has read is no
    other's. `size` is in bytes, and `modified_ms` a time, as the log has them. `tail` are its last bytes, if they are
    known.
    """

    name: str
    address: Address
    store: int
    size: int
    modified_ms: int
    tail: bytes = b""


def name_of(number: int) -> str:
    """Return the name of a query's file; none is a part of another's."""
    return f"{SCHEME}://{number}.parquet"


def packed(files: Sequence[ServedFile]) -> tuple[dict[str, Any], bytes]:
    """Return files as values that JSON has, and their tails."""
    places: dict[tuple[str, tuple[tuple[str, str], ...]], int] = {}
    rows = []
    for file in files:
        place = places.setdefault((file.address.uri, tuple(file.address.options.items())), len(places))
        address = file.address
        rows.append([file.name, place, address.key, address.etag, *file[2:5], len(file.tail)])
    return {"places": list(places), "files": rows}, b"".join(file.tail for file in files)


def unpacked(places: Sequence[Any], files: Sequence[Any], tails: bytes) -> list[ServedFile]:
    """Return what `packed` was given."""
    unpacked_files, start = [], 0
    for name, place, key, etag, store, size, modified_ms, length in files:
        uri, options = places[place]
        address = Address(uri, dict(options), key, etag)
        unpacked_files.append(ServedFile(name, address, store, size, modified_ms, tails[start : start + length]))
        start += length
    return unpacked_files
