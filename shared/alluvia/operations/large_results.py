"""Results that are too large for an answer: objects of the lake that a link leads to.

`_alluvia/results/large/<id>.<form>[.<coding>]`, written once, in parts, under a name that nobody can guess. They are
results like the others: an erasure deletes them, clean-up those that are old.
"""

from __future__ import annotations

from collections.abc import Iterable

from alluvia.clock import Clock
from alluvia.errors import TableNotFound
from alluvia.operations.catalog import Catalog
from alluvia.operations.results import LARGE
from alluvia.store import Store
from alluvia.table.handle import oldest_readable
from alluvia.table.snapshot import Snapshot


def new_large_key(clock: Clock, form: str, coding: str | None) -> str:
    """Return a fresh key for a result in a form, by its name in lower case, and a coding."""
    suffix = "" if coding is None else f".{coding}"
    return f"{LARGE}{clock.new_id()}.{form}{suffix}"


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
