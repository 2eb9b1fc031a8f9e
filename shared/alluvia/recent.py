"""A cache of the values that were used last, by key."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Generic, TypeVar

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class Recent(Generic[Key, Value]):
    """The values that were used last, up to a count. Safe for use from several threads."""

    def __init__(self, count_max: int) -> None:
        self._count_max = count_max
        self._values: OrderedDict[Key, Value] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Key) -> Value | None:
        """Return the value of a key; None if it is not among them."""
        with self._lock:
            if key in self._values:
                self._values.move_to_end(key)
            return self._values.get(key)

    def keep(self, key: Key, value: Value) -> None:
        """Keep a value, in the place of the one that was not used for longest."""
        with self._lock:
            self._values[key] = value
            if len(self._values) > self._count_max:
                self._values.popitem(last=False)
