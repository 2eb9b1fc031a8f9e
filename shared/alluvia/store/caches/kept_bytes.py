"""Bytes of objects that never change, kept in memory for a while."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable
from threading import Lock, Timer
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
KEPT_SECONDS = 3600.0
"""Bytes go after this time, also in an idle process, because `erase` and `vacuum` may have deleted their object."""


class KeptBytes(Generic[K]):
    """Bytes by key, up to `limit_bytes`: those used least recently make room. Safe for use from several threads."""

    def __init__(self, limit_bytes: int, now: Callable[[], float] = time.time) -> None:
        """`now` gives the time in seconds since the Unix epoch."""
        self._limit_bytes = limit_bytes
        self._now = now
        self._lock = Lock()
        self._parts: dict[K, tuple[bytes, float]] = {}  # in the order of their last use, with the time they came
        self._timer: tuple[int, Timer] | None = None
        self.held_bytes = 0

    def get(self, key: K) -> bytes | None:
        """Return what is kept, and use it."""
        with self._lock:
            data, since = self._parts.pop(key, (None, 0.0))
            if data is None:
                return None
            if since <= self._now() - KEPT_SECONDS:
                self.held_bytes -= len(data)
                return None
            self._parts[key] = (data, since)
            return data

    def keep(self, key: K, data: bytes) -> None:
        """Keep some bytes, unless they are more than all of it."""
        if len(data) > self._limit_bytes:
            return
        with self._lock:
            self._drop(key)
            self._parts[key] = (data, self._now())
            self.held_bytes += len(data)
            while self.held_bytes > self._limit_bytes:
                self._drop(next(iter(self._parts)))
            self._watch_age()

    def _drop(self, key: K) -> None:
        self.held_bytes -= len(self._parts.pop(key, (b"", 0.0))[0])

    def _drop_old(self) -> None:
        until = self._now() - KEPT_SECONDS
        for key in [key for key, (_, since) in self._parts.items() if since <= until]:
            self._drop(key)

    def _watch_age(self) -> None:
        if not self._parts or (self._timer is not None and self._timer[0] == os.getpid()):  # a fork has no timer
            return
        oldest = min(since for _, since in self._parts.values())
        timer = Timer(max(1.0, oldest + KEPT_SECONDS - self._now()), self._look_at_age)
        timer.daemon = True
        timer.start()
        self._timer = (os.getpid(), timer)

    def _look_at_age(self) -> None:
        with self._lock:
            self._timer = None
            self._drop_old()
            self._watch_age()
