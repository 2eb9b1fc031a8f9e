"""Wait for the sockets of a server. Quiet connections cost nothing; waitress's own loop looks at all of them.

A connection stays watched while its request is answered, so the next request needs no wake-up of the waiting thread.
If more data arrives meanwhile, or the client leaves, the connection is not watched until the answer has been sent.
"""

from __future__ import annotations

import select
import threading
from collections import deque
from collections.abc import Mapping
from typing import Any

from waitress import wasyncore

_HAS_EPOLL = hasattr(select, "epoll")
_IN, _OUT = select.POLLIN | select.POLLPRI, select.POLLOUT
_ALWAYS = select.POLLERR | select.POLLHUP | select.POLLNVAL
"""The system reports these events for everything that is watched."""


class SocketWatch:
    """Waits for waitress's dispatchers, given by their file numbers. One thread waits; any thread may call `renew`."""

    def __init__(self, dispatchers: Mapping[int, Any]) -> None:
        self._dispatchers = dispatchers
        self._poll = select.epoll() if _HAS_EPOLL else select.poll()
        self._watched: dict[int, int] = {}
        self._changed: deque[Any] = deque()
        self._lock = threading.Lock()

    def is_fit(self, dispatcher: Any) -> bool:
        """Whether a dispatcher is watched for the events that it wants, or wants none."""
        with self._lock:  # so that a concurrent renewal is complete, or sees the current wishes
            wanted = _wanted(dispatcher)
            return not wanted or self._watched.get(dispatcher._fileno) == wanted  # noqa: SLF001 - waitress has no other

    def change(self, dispatcher: Any) -> None:
        """Make the waiting thread look at a dispatcher when it wakes up."""
        self._changed.append(dispatcher)

    def renew(self, dispatcher: Any, *, answers: bool = False, keep: bool = True) -> None:
        """Watch a dispatcher for the events that it wants. With `keep`, one that wants none stays watched for input.

        A thread that `answers` a request usually sends the whole answer, so output is watched only if some is left.
        """
        number = dispatcher._fileno  # noqa: SLF001
        if number is None:
            return
        with self._lock:
            before = self._watched.get(number)
            wanted = _wanted(dispatcher) & (_IN | (before or 0) if answers else _IN | _OUT)
            wanted = wanted or (_IN if before and keep else 0)
            if wanted == (before or 0):
                return
            if not wanted:
                del self._watched[number]
                self._poll.unregister(number)
                return
            self._watched[number] = wanted
            if before is None:
                self._poll.register(number, wanted)
            else:
                self._poll.modify(number, wanted)

    def drop(self, number: int) -> None:
        """Stop watching a file number."""
        with self._lock:
            if self._watched.pop(number, None) is not None:
                self._poll.unregister(number)

    def wait(self, seconds: float) -> None:
        """Wait until something happens or this many seconds have passed, and handle it."""
        while self._changed:
            self.renew(self._changed.popleft())
        for number, events in self._poll.poll(seconds if _HAS_EPOLL else seconds * 1000):
            dispatcher = self._dispatchers.get(number)
            if dispatcher is None:
                continue
            wanted = _wanted(dispatcher)
            due = events & (wanted | _ALWAYS) if wanted else 0
            if due:
                wasyncore.readwrite(dispatcher, due)
            self.renew(dispatcher, answers=bool(getattr(dispatcher, "requests", ())), keep=bool(due))


def _wanted(dispatcher: Any) -> int:
    writes = dispatcher.writable() and not dispatcher.accepting
    return (_IN if dispatcher.readable() else 0) | (_OUT if writes else 0)
