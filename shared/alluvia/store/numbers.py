"""A number for each store of the process, so that caches keep objects of the same name in different stores apart."""

from __future__ import annotations

from itertools import count
from threading import Lock
from weakref import WeakKeyDictionary

from alluvia.store.base import Store

_lock = Lock()
_known: WeakKeyDictionary[Store, int] = WeakKeyDictionary()
_numbers = count()


def number_of(store: Store) -> int:
    """Return a store's number, which no other store of this process has or had."""
    with _lock:
        number = _known.get(store)
        if number is None:
            number = _known[store] = next(_numbers)
        return number
