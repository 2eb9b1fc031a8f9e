"""Small objects of a lake that have versions: `<folder><number>.json`, each written once. The highest number counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from alluvia.clock import Clock
from alluvia.delta.log.committer import put_once
from alluvia.errors import Conflict, Corrupt, ObjectNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.store import Store


@dataclass(frozen=True, slots=True)
class Numbered:
    """One version of an object, as JSON has it."""

    key: str
    number: int
    body: Mapping[str, Any]


def newest_numbered(store: Store, folder: str) -> Numbered | None:
    """Return the newest version; None if there is none. One LIST and one GET. Raises `Corrupt`."""
    newest = max((info.key for info in store.list(folder)), default=None)
    return None if newest is None else _read(store, newest)


def find_numbered(store: Store, folder: str, number: int) -> Numbered | None:
    """Return a version by its number; None if there is none. One GET. Raises `Corrupt`."""
    try:
        return _read(store, _key(folder, number))
    except ObjectNotFound:
        return None


def write_numbered(store: Store, clock: Clock, folder: str, number: int, body: Mapping[str, Any], *, what: str) -> None:
    """Write a version. Raises `Conflict` where another writer has written it."""
    key, data = _key(folder, number), orjson.dumps({**body, "id": clock.new_id()})

    def read() -> bytes | None:
        try:
            return store.get(key)
        except ObjectNotFound:
            return None

    taken = put_once(store, clock, key, data, what=f"the {what}", read=read, is_ours=lambda stored: stored == data)
    if taken is not None:
        raise Conflict(f"{what} was changed by another writer meanwhile: look at it, and try again")
    store.check_lasts()


def _read(store: Store, key: str) -> Numbered:
    try:
        body = orjson.loads(store.get(key))
        return Numbered(key, int(key.rpartition("/")[2].removesuffix(".json")), dict(body))
    except (ValueError, TypeError) as error:
        raise Corrupt(f"{key} is not an object of this library") from error


def _key(folder: str, number: int) -> str:
    return f"{folder}{number:020}.json"
