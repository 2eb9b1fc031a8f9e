"""A cache of the most recently used values, by key."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, Sized
from functools import wraps
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """A cache of the most recently used values, up to a total size. Safe for use from several threads."""

    def __init__(self, size_max: int) -> None:
        self._size_max = self._free = size_max
        self._values: OrderedDict[Key, tuple[Value, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Key) -> Value | None:
        """Return the value of a key; None if the cache does not have it."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def keep(self, key: Key, value: Value, size: int) -> None:
        """Keep a value, and drop the least recently used ones to make room. A value that is too large is not kept.

        Its `size` is in the unit of the total.
        """
        with self._lock:
            self._free += self._values.pop(key, (None, 0))[1]
            if size > self._size_max:
                return
            self._values[key] = value, size
            self._free -= size
            while self._free < 0:
                _, (_, freed) = self._values.popitem(last=False)
                self._free += freed


Object = TypeVar("Object", bound=Sized)
LENGTH_KEPT = 50_000
"""With what is kept of schemas, by their columns, that is about 10 MB for each function."""


def once_each(work: Callable[[Object], Value]) -> Callable[[Object], Value]:
    """Return a function of objects that never change, whose values are kept for those that were used last.

    They are kept up to a total length of the objects.
    """
    known: Recent[int, tuple[Object, Value]] = Recent(LENGTH_KEPT)  # with the object, so that no other has its id

    @wraps(work)
    def found(of: Object) -> Value:
        kept = known.get(id(of))
        if kept is None:
            kept = of, work(of)
            known.keep(id(of), kept, len(of) + 1)
        return kept[1]

    return found
