"""A store whose Nth call fails before its effect, or whose Nth write fails after it or is the last of a process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from alluvia.errors import AnswerLost, Unavailable
from alluvia.store import Store, Wrapper

T = TypeVar("T")
MODES = ("before", "after", "crash")
"""A read fails in one way only. A crash leaves what the last write left, whatever was read or about to be written."""
WRITES = frozenset(("put", "put_new", "put_if_absent", "put_if_same", "put_new_file", "put_parts", "delete"))


class Died(BaseException):
    """The process is gone. No library code may catch it."""


class FailingStore(Wrapper):
    """Passes calls on to another store; call number `at` fails as `mode` says, and all after a crash.

    "before" counts all calls, the other modes count writes.
    """

    def __init__(self, inner: Store, mode: str = "before", at: int = 0) -> None:
        super().__init__(inner)
        self.mode = mode
        self.at = at
        self.calls = 0
        self.fired = False
        self.healed = False

    def request(self, kind: str, key: str, send: Callable[[], T]) -> T:
        if self.healed:
            return send()
        crashes = self.mode == "crash"
        if crashes and self.fired:
            raise Died
        counts = self.mode == "before" or kind in WRITES
        self.calls += counts
        if not counts or self.calls != self.at:
            return send()
        self.fired = True
        if self.mode != "before":
            send()
        if crashes:
            raise Died
        message = f"call {self.calls} failed {self.mode} its effect"
        raise AnswerLost(message) if kind == "put_if_absent" else Unavailable(message)
