"""Results that are too large for an answer: objects of the lake that a link leads to.

`_alluvia/results/large/[<hash of a caller>/]<id>.<form>[.<coding>]`, written once, in parts, under a name that nobody
can guess. They are results like the others: an erasure deletes them, clean-up those that are old. Callers that are told
apart have folders of their own, so that one LIST says how many bytes a caller has kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import NamedTuple

from alluvia.clock import Clock
from alluvia.commit.handle import oldest_readable
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import TableNotFound
from alluvia.operations.catalog.catalog import Catalog
from alluvia.operations.results.results import LARGE, LINK_SECONDS
from alluvia.store import Store


class LinkedBytes(NamedTuple):
    """How many bytes of results a caller has links to, and in how many seconds the first of these links expires."""

    total: int
    seconds: int


def new_large_key(clock: Clock, form: str, coding: str | None, caller: str = "") -> str:
    """Return a fresh key for a caller's result in a form, by its name in lower case, and a coding.

    `caller` is "" for those that are not told apart.
    """
    suffix = "" if coding is None else f".{coding}"
    return f"{_folder(caller)}{clock.new_id()}.{form}{suffix}"


def kept_bytes(store: Store, clock: Clock, caller: str) -> LinkedBytes:
    """Return the bytes of a caller's results that links may still lead to. One LIST."""
    old_ms = clock.now_ms() - LINK_SECONDS * 1000
    linked = [info for info in store.list(_folder(caller)) if info.size and info.modified_ms > old_ms]
    first_ms = min((info.modified_ms for info in linked), default=old_ms)
    return LinkedBytes(sum(info.size for info in linked), max(1, -((old_ms - first_ms) // 1000)))


def _folder(caller: str) -> str:
    return f"{LARGE}{sha256(caller.encode()).hexdigest()[:32]}/" if caller else LARGE


def is_there(store: Store, clock: Clock, key: str, age_ms_max: int) -> bool:
    """Whether a result is still there, was not taken back, and is young enough for another link. One HEAD."""
    found = store.head(key)
    return found is not None and found.size > 0 and found.modified_ms >= clock.now_ms() - age_ms_max


def take_back(store: Store, key: str) -> None:
    """Take the rows out of a result, by whoever may put but not delete. One PUT; clean-up deletes what is left."""
    store.put(key, b"")


def erased_since(catalog: Catalog, read: Iterable[Snapshot]) -> bool:
    """Whether rows may have been erased from some versions of tables since they were read.

    An erasure makes every version that held the rows unreadable, and deletes results after that: it has deleted a
    result that was complete by then, and whoever completes one later finds out here. One GET for each table.
    """
    return any(_is_gone(catalog, snapshot) for snapshot in {(each.name, each.version): each for each in read}.values())


def _is_gone(catalog: Catalog, snapshot: Snapshot) -> bool:
    try:
        newest = catalog.handle(snapshot.name).newest()
    except TableNotFound:
        return True
    same = newest.state.metadata.id == snapshot.state.metadata.id
    return not same or snapshot.version < oldest_readable(newest.state)
