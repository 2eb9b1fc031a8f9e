"""Progress of long operations. Operations report here; only the command line listens."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class Progress(Protocol):
    """Told what is being done, how much of it is done, how much there is (0: nobody knows), and what is counted."""

    def __call__(self, what: str, done: int, total: int, unit: str = "") -> None:
        """Take note of it. Units are plural words; `bytes` may be shown as KB or MB."""


_listener: ContextVar[Progress | None] = ContextVar("alluvia_progress", default=None)


def listener() -> Progress | None:
    """Return who listens to what this thread reports."""
    return _listener.get()


def report(what: str, done: int, total: int, unit: str = "") -> None:
    """Tell how far work of this thread has come; nothing where nobody listens."""
    told = _listener.get()
    if told is not None:
        told(what, done, total, unit)


@contextmanager
def reporting_to(listener: Progress) -> Iterator[None]:
    """Have what this thread reports told to a listener."""
    token = _listener.set(listener)
    try:
        yield
    finally:
        _listener.reset(token)
