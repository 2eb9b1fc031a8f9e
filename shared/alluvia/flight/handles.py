"""Objects that the server holds for its callers between calls: prepared statements, transactions, answers to fetch.

Each is known by a handle that cannot be guessed, to the caller that it was made for and to nobody else. There are
bounds for each caller and for all, since callers may go without a word.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from threading import Lock
from typing import Generic, TypeVar

from alluvia.clock import Clock
from alluvia.flight.statuses import HandleNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.serverless.http import TooManyRequests

HANDLE_BYTES = 16
HELD_MS_MAX = 3_600_000
"""So long is held what is not used. A transaction may not take longer, either."""
Held = TypeVar("Held")


@dataclass(frozen=True, slots=True)
class HandleBounds:
    """How many there may be of one caller, and of all, and how many bytes."""

    of_caller: int = 200
    of_caller_bytes: int = 64 << 20
    total: int = 2000
    total_bytes: int = 256 << 20


@dataclass(slots=True)
class _Entry(Generic[Held]):
    caller: str
    value: Held
    size_bytes: int
    used_ms: int


class Handles(Generic[Held]):
    """Values by handle, of one kind. Thread-safe. `discard` is called for each that is given up unused."""

    def __init__(
        self,
        what: str,
        clock: Clock,
        discard: Callable[[Held], object] = lambda _: None,
        bounds: HandleBounds | None = None,
    ) -> None:
        self._what = what
        self._clock = clock
        self._discard = discard
        self._bounds = bounds or HandleBounds()
        self._lock = Lock()
        self._entries: dict[bytes, _Entry[Held]] = {}  # the one that was not used for the longest comes first

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, caller: str, value: Held, size_bytes: int = 0) -> bytes:
        """Hold a value and return its handle. The one that this caller used least recently may go for it.

        Raises `TooManyRequests` where others hold all that there may be.
        """
        with self._lock:
            gone = self._expired()
            full = self._make_room(caller, size_bytes, gone)
            handle = secrets.token_bytes(HANDLE_BYTES)
            if not full:
                self._entries[handle] = _Entry(caller, value, size_bytes, self._clock.now_ms())
        self._give_up(gone, full=full)
        return handle

    def resize(self, caller: str, handle: bytes, size_bytes: int) -> None:
        """Note that a value takes more bytes than before, or fewer. Others of this caller may go for it.

        Raises `HandleNotFound`, and `TooManyRequests` where others hold all that there may be: the size stays then.
        """
        with self._lock:
            entry = self._entries.get(handle)
            if entry is None or entry.caller != caller:
                raise self._missing()
            del self._entries[handle]
            gone = self._expired()
            full = self._make_room(caller, size_bytes, gone)
            entry.size_bytes = entry.size_bytes if full else size_bytes
            self._entries[handle] = entry
        self._give_up(gone, full=full)

    def get(self, caller: str, handle: bytes) -> Held:
        """Return the value of a handle, which counts as used. Raises `HandleNotFound`."""
        with self._lock:
            entry = self._entries.get(handle)
            if entry is None or entry.caller != caller:
                raise self._missing()
            entry.used_ms = self._clock.now_ms()
            self._entries[handle] = self._entries.pop(handle)
            return entry.value

    def of(self, caller: str) -> list[Held]:
        """Return all values of a caller."""
        with self._lock:
            return [entry.value for entry in self._entries.values() if entry.caller == caller]

    def take(self, caller: str, handle: bytes) -> Held:
        """Return the value of a handle, and hold it no more. Raises `HandleNotFound`."""
        with self._lock:
            entry = self._entries.get(handle)
            if entry is None or entry.caller != caller:
                raise self._missing()
            return self._entries.pop(handle).value

    def close(self) -> None:
        """Give up all."""
        with self._lock:
            gone, self._entries = list(self._entries.values()), {}
        for entry in gone:
            self._discard(entry.value)

    def _make_room(self, caller: str, size_bytes: int, gone: list[_Entry[Held]]) -> bool:
        """Take out what one more value of a caller leaves no room for. Return whether there is none all the same."""
        own = [handle for handle, entry in self._entries.items() if entry.caller == caller]
        own_bytes = sum(self._entries[handle].size_bytes for handle in own) + size_bytes
        while own and (len(own) >= self._bounds.of_caller or own_bytes > self._bounds.of_caller_bytes):
            gone.append(self._entries.pop(own.pop(0)))
            own_bytes -= gone[-1].size_bytes
        held_bytes = sum(entry.size_bytes for entry in self._entries.values())
        return len(self._entries) >= self._bounds.total or held_bytes + size_bytes > self._bounds.total_bytes

    def _give_up(self, gone: list[_Entry[Held]], *, full: bool) -> None:
        for entry in gone:
            self._discard(entry.value)
        if full:
            raise TooManyRequests(f"the server holds as many {self._what}s as it may: try again later", 60)

    def _expired(self) -> list[_Entry[Held]]:
        before_ms = self._clock.now_ms() - HELD_MS_MAX
        old = [handle for handle, entry in self._entries.items() if entry.used_ms < before_ms]
        return [self._entries.pop(handle) for handle in old]

    def _missing(self) -> HandleNotFound:
        return HandleNotFound(f"the server holds no such {self._what}: it was closed, or not used for an hour")
