"""How many requests of a kind a server takes at once: the others wait, or are sent away."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import BoundedSemaphore

from alluvia.lazy_dataclasses import dataclass
from alluvia.serverless.http import Response, TooManyRequests, failure
from alluvia.serverless.settings import number


@dataclass(frozen=True, slots=True)
class Places:
    """How many requests of a kind may run at once, and how many may wait for that."""

    at_once: int
    waiting: int

    @property
    def total(self) -> int:
        """Return how many there may be."""
        return self.at_once + self.waiting


RETRY_SECONDS = 5
QUERIES = Places(4, 16)
LARGE = Places(8, 56)
UPLOADS = Places(2, 30)
"""A file takes up to half a GB of memory while it is written."""
UPLOADS_AT_ONCE = "ALLUVIA_UPLOADS_AT_ONCE"


def uploads_of(environment: Mapping[str, str]) -> Places:
    """Return how many uploads are processed at once, from the settings. Raises `Invalid`, naming the variable."""
    return Places(number(environment, UPLOADS_AT_ONCE, "uploads", UPLOADS.at_once, most=32), UPLOADS.waiting)


class Door:
    """Lets requests of a kind in, as many as there are places."""

    def __init__(self, places: Places, kind: str) -> None:
        self._running = BoundedSemaphore(places.at_once)
        self._taken = BoundedSemaphore(places.total)
        self._kind = kind

    def through(self, call: Callable[[], Response]) -> Response:
        """Answer a request when its turn comes, or with 503 if too many wait."""
        try:
            with self.place():
                return call()
        except TooManyRequests as error:
            return failure(503, str(error), **{"Retry-After": str(error.retry_after_seconds)})

    @contextmanager
    def place(self) -> Iterator[None]:
        """Hold one of the places, once it is free. Raises `TooManyRequests` if too many wait."""
        if not self._taken.acquire(blocking=False):
            raise TooManyRequests(f"too many {self._kind} are waiting: send this one again later", RETRY_SECONDS)
        try:
            with self._running:
                yield
        finally:
            self._taken.release()
