"""Wait for the sockets of a server. A wake-up costs nothing for those that are quiet; waitress looks at all of them.

A connection stays watched while its request is answered, and so is ready for the next one without a wake-up of the
thread that waits: where more comes meanwhile, or the client goes, it is not watched until the answer is sent.
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
"""The system reports these of all that is watched."""


class SocketWatch:
    """Waits for waitress's dispatchers, which are given by their file numbers. One thread waits, any may renew."""

    def __init__(self, dispatchers: Mapping[int, Any]) -> None:
        self._dispatchers = dispatchers
        self._poll = select.epoll() if _HAS_EPOLL else select.poll()
        self._watched: dict[int, int] = {}
        self._changed: deque[Any] = deque()
        self._lock = threading.Lock()

    def is_fit(self, dispatcher: Any) -> bool:
        """Whether a dispatcher is watched as it wants to be, or waits for nothing."""
        with self._lock:  # so that a renewal sees what is wanted by now, or has been made
            wanted = _wanted(dispatcher)
            return not wanted or self._watched.get(dispatcher._fileno) == wanted  # noqa: SLF001 - waitress has no other

    def change(self, dispatcher: Any) -> None:
        """Have the thread that waits look at a dispatcher once it wakes up."""
        self._changed.append(dispatcher)

    def renew(self, dispatcher: Any, *, answers: bool = False, keep: bool = True) -> None:
        """Watch a dispatcher as it wants to be by now. If it waits for nothing, it stays watched for input (`keep`).

        A thread that `answers` a request mostly sends all of it: until it says otherwise, nothing waits to be sent.
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
        """Watch a file number no more."""
        with self._lock:
            if self._watched.pop(number, None) is not None:
                self._poll.unregister(number)

    def wait(self, seconds: float) -> None:
        """Wait for this many seconds or until something happens, and have it handled."""
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
