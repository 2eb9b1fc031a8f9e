"""A store whose Nth call fails: before its effect, after it, or with the death of the process."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from alluvia.errors import AnswerLost, Unavailable
from alluvia.store import Store, Wrapper

T = TypeVar("T")
MODES = ("before", "after", "crash before", "crash after")


class Died(BaseException):
    """The process is gone. No library code may catch it."""


class FailingStore(Wrapper):
    """Passes calls on to another store; call number `at` fails as `mode` says, those after a crash too."""

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
        self.calls += 1
        self.fired = self.fired or self.calls == self.at
        dead = self.mode.startswith("crash")
        if dead and 0 < self.at < self.calls:
            raise Died
        if self.calls != self.at:
            return send()
        if self.mode.endswith("after"):
            send()
        if dead:
            raise Died
        message = f"call {self.calls} failed {self.mode} its effect"
        raise AnswerLost(message) if kind == "put_if_absent" else Unavailable(message)
