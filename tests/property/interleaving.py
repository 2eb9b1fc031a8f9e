"""Threads that take turns, one request at a time, in an order that a seed decides: a race that can be run again."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from alluvia.clock import ManualClock
from alluvia.store import ObjectInfo, PutResult, Store


class Scheduler:
    """Lets one of the waiting tasks go on whenever all of them wait."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._condition = threading.Condition()
        self._live: set[int] = set()
        self._waiting: set[int] = set()
        self._turn: int | None = None
        self.trace: list[tuple[int, str, str]] = []

    def run(self, tasks: Sequence[Callable[[int], None]]) -> list[BaseException]:
        """Run tasks, each given its number, to their ends; return what they raised."""
        errors: list[BaseException] = []
        self._live = set(range(len(tasks)))

        def body(number: int) -> None:
            try:
                self.pause(number, "start", "")
                tasks[number](number)
            except Exception as error:  # noqa: BLE001 - handed to the test
                errors.append(error)
            finally:
                with self._condition:
                    self._live.discard(number)
                    self._pick()

        threads = [threading.Thread(target=body, args=(number,)) for number in range(len(tasks))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=600)
            assert not thread.is_alive(), f"task stuck after {self.trace[-5:]}"
        return errors

    def pause(self, task: int, request: str, key: str) -> None:
        """Wait for this task's turn."""
        with self._condition:
            self._waiting.add(task)
            self._pick()
            self._condition.wait_for(lambda: self._turn == task)
            self._turn = None
            self._waiting.discard(task)
            self.trace.append((task, request, key))

    def _pick(self) -> None:
        if self._turn is None and self._live and self._waiting == self._live:
            self._turn = self._random.choice(sorted(self._waiting))
            self._condition.notify_all()


class TakingTurns(Store):
    """One task's view of a store: each request waits for its turn, and takes a millisecond.

    A copy into a local file does not wait, since operations make several at once.
    """

    def __init__(self, inner: Store, clock: ManualClock, scheduler: Scheduler, task: int) -> None:
        self.uri = inner.uri
        self._inner = inner
        self._clock = clock
        self._scheduler = scheduler
        self._task = task

    def _pause(self, request: str, key: str) -> None:
        self._scheduler.pause(self._task, request, key)
        self._clock.advance(0.001)

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        self._pause("get", key)
        return self._inner.get(key, start, end)

    def put(self, key: str, data: bytes) -> None:
        self._pause("put", key)
        self._inner.put(key, data)

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        self._pause("put_if_absent", key)
        return self._inner.put_if_absent(key, data)

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._pause("list", prefix)
        return self._inner.list(prefix, start_after)

    def list_folders(self, prefix: str) -> Iterator[str]:
        self._pause("list", prefix)
        return self._inner.list_folders(prefix)

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            self._pause("delete", key)
            self._inner.delete([key])

    def head(self, key: str) -> ObjectInfo | None:
        self._pause("head", key)
        return self._inner.head(key)

    def url(self, key: str) -> str | None:
        return self._inner.url(key)

    def get_file(self, key: str, path: Path) -> None:
        self._inner.get_file(key, path)

    def put_file(self, key: str, path: Path) -> None:
        self._pause("put", key)
        self._inner.put_file(key, path)
