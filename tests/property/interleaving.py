"""Threads that take turns, one request at a time, in an order that a seed decides: a race that can be run again."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from alluvia.clock import ManualClock
from alluvia.store import Store, Wrapper

T = TypeVar("T")


class Scheduler:
    """Lets one of the waiting tasks go on whenever all of them wait."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._lock = threading.Lock()
        self._gates: list[threading.Lock] = []
        self._live: set[int] = set()
        self._waiting: set[int] = set()
        self._turn: int | None = None
        self.trace: list[tuple[int, str, str]] = []

    def run(self, tasks: Sequence[Callable[[int], None]]) -> list[BaseException]:
        """Run tasks, each given its number, to their ends; return what they raised."""
        errors: list[BaseException] = []
        self._live = set(range(len(tasks)))
        self._gates = [threading.Lock() for _ in tasks]
        for gate in self._gates:
            gate.acquire()

        def body(number: int) -> None:
            try:
                self.pause(number, "start", "")
                tasks[number](number)
            except Exception as error:  # noqa: BLE001 - handed to the test
                errors.append(error)
            finally:
                with self._lock:
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
        with self._lock:
            self._waiting.add(task)
            self._pick()
        self._gates[task].acquire()
        with self._lock:
            self._turn = None
            self._waiting.discard(task)
            self.trace.append((task, request, key))

    def _pick(self) -> None:
        if self._turn is None and self._live and self._waiting == self._live:
            self._turn = self._random.choice(sorted(self._waiting))
            self._gates[self._turn].release()


class TakingTurns(Wrapper):
    """One task's view of a store: each request waits for its turn, and takes a millisecond."""

    def __init__(self, inner: Store, clock: ManualClock, scheduler: Scheduler, task: int) -> None:
        super().__init__(inner)
        self._clock = clock
        self._scheduler = scheduler
        self._task = task

    def request(self, kind: str, key: str, send: Callable[[], T]) -> T:
        self._scheduler.pause(self._task, kind, key)
        self._clock.advance(0.001)
        return send()

    def delete(self, keys: Iterable[str]) -> None:
        for key in keys:
            super().delete([key])
