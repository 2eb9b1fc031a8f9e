"""A store whose Nth call fails: before its effect, after it, or with the death of the process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from alluvia.errors import AnswerLost, Unavailable
from alluvia.store import ObjectInfo, PutResult, Store

T = TypeVar("T")
MODES = ("before", "after", "crash before", "crash after")


class Died(BaseException):
    """The process is gone. No library code may catch it."""


class FailingStore(Store):
    """Passes calls on to another store; call number `at` fails as `mode` says, those after a crash too."""

    def __init__(self, inner: Store, mode: str = "before", at: int = 0) -> None:
        self.uri = inner.uri
        self.inner = inner
        self.mode = mode
        self.at = at
        self.calls = 0
        self.fired = False
        self.healed = False

    def _call(self, effect: Callable[[], T], *, conditional: bool = False) -> T:
        if self.healed:
            return effect()
        self.calls += 1
        self.fired = self.fired or self.calls == self.at
        dead = self.mode.startswith("crash")
        if dead and 0 < self.at < self.calls:
            raise Died
        if self.calls != self.at:
            return effect()
        if self.mode.endswith("after"):
            effect()
        if dead:
            raise Died
        message = f"call {self.calls} failed {self.mode} its effect"
        raise AnswerLost(message) if conditional else Unavailable(message)

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        return self._call(lambda: self.inner.get(key, start, end))

    def put(self, key: str, data: bytes) -> None:
        self._call(lambda: self.inner.put(key, data))

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        return self._call(lambda: self.inner.put_if_absent(key, data), conditional=True)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        return self._call(lambda: iter([*self.inner.list(prefix, start_after)]))

    def list_folders(self, prefix: str) -> Iterator[str]:
        return self._call(lambda: iter([*self.inner.list_folders(prefix)]))

    def delete(self, keys: Iterable[str]) -> None:
        self._call(lambda: self.inner.delete(keys))

    def head(self, key: str) -> ObjectInfo | None:
        return self._call(lambda: self.inner.head(key))

    def url(self, key: str) -> str | None:
        return self.inner.url(key)

    def get_file(self, key: str, path: Path) -> None:
        self._call(lambda: self.inner.get_file(key, path))

    def put_file(self, key: str, path: Path) -> None:
        self._call(lambda: self.inner.put_file(key, path))
