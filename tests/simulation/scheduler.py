"""Simulated time and a scheduler that lets one actor run at a time, in an order that follows from a seed.

An actor is a thread. It runs until it waits: for a store's answer, for a sleep, for a lock. Then whoever is due next
runs on. No actor ever runs beside another, so that a run is the same each time.
"""

from __future__ import annotations

import heapq
import random
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from types import TracebackType
from typing import Any, Self

from alluvia.clock import Clock

STEPS_MAX = 60_000


class Stopped(BaseException):
    """The run is over: unwind. No library code may catch it."""


class Violation(AssertionError):
    """An invariant does not hold. `rule` names it in a few words."""

    def __init__(self, rule: str, detail: str) -> None:
        super().__init__(f"{rule}: {detail}")
        self.rule = rule


class Task:
    """A thread that the scheduler resumes."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.gate = threading.Lock()
        self.gate.acquire()
        self.done = False


class Scheduler:
    """Events by simulated time. `now_us` is the true time, which no actor's clock need show."""

    def __init__(self, start_us: int, steps_max: int = STEPS_MAX) -> None:
        self.now_us = start_us
        self._steps_max = steps_max
        self.trace: list[str] = []
        self.failure: BaseException | None = None
        self.current: Task | None = None
        self._events: list[tuple[int, int, Task | Callable[[], None]]] = []
        self._sequence = 0
        self._steps = 0
        self._tasks: list[Task] = []
        self._main = Task("main")
        self._stopping = False

    def spawn(self, name: str, body: Callable[[], None], delay_us: int = 0) -> None:
        """Start an actor after a delay."""
        task = Task(name)
        self._tasks.append(task)
        self._push(self.now_us + delay_us, task)

        def whole() -> None:
            task.gate.acquire()
            try:
                if not self._stopping:
                    body()
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is the run's result
                if not isinstance(error, Stopped):  # which only unwinds an actor of a run that is over
                    self.fail(error)
            task.done = True
            self._hand_over()

        threading.Thread(target=whole, name=name, daemon=True).start()

    def run(self) -> None:
        """Run until no event is left, or until one failed; raises what failed."""
        self._hand_over()
        self._main.gate.acquire()
        if any(not task.done for task in self._tasks) and self.failure is None:
            self.fail(Violation("the run ends", "an actor waits for a lock that nobody will give back"))
        self._stopping = True
        for task in self._tasks:
            if not task.done:
                task.gate.release()
                self._main.gate.acquire()
        self._stopping = False
        self._tasks.clear()
        self._events.clear()
        self.current = None
        if self.failure is not None:
            raise self.failure

    def wait(self, delay_us: int) -> None:
        """Let that much time pass."""
        task = self.current
        if self._stopping:
            raise Stopped
        if task is None:
            self.now_us += delay_us
            return
        self._push(self.now_us + delay_us, task)
        self.park()

    def park(self) -> None:
        """Wait until something wakes this actor."""
        task = self.current
        if self._stopping:
            raise Stopped
        assert task is not None
        if self._next(task):
            return
        task.gate.acquire()
        if self._stopping:
            raise Stopped

    def wake(self, task: Task) -> None:
        """Let a parked actor run on, now."""
        self._push(self.now_us, task)

    def later(self, delay_us: int, effect: Callable[[], None]) -> None:
        """Have something happen later, whatever becomes of the actor that began it."""
        self._push(self.now_us + delay_us, effect)

    def fail(self, error: BaseException) -> None:
        """Record the first failure; the run stops at the next event."""
        if self.failure is None:
            self.failure = error

    def note(self, text: str) -> None:
        """Add a line to the trace."""
        name = self.current.name if self.current is not None else "-"
        self.trace.append(f"{self.now_us} {name} {text}")

    def _push(self, at_us: int, what: Task | Callable[[], None]) -> None:
        self._sequence += 1
        heapq.heappush(self._events, (at_us, self._sequence, what))

    def _hand_over(self) -> None:
        self._next(None)

    def _next(self, me: Task | None) -> bool:
        """Resume whoever is due; True if it is the caller."""
        if self._stopping:
            self._main.gate.release()
            return False
        while self._events and self.failure is None:
            at_us, _, what = heapq.heappop(self._events)
            self.now_us = max(self.now_us, at_us)
            self._steps += 1
            if self._steps > self._steps_max:
                self.fail(Violation("the run ends", f"not within {self._steps_max} steps"))
                break
            if isinstance(what, Task):
                if what is me:
                    self.current = me
                    return True
                self.current = what
                what.gate.release()
                return False
            try:
                what()
            except BaseException as error:  # noqa: BLE001 - whatever it is, it is the run's result
                self.fail(error)
        self._main.gate.release()
        return False


class SimulatedClock(Clock):
    """One process's clock: the true time and a constant error, and its own ids and chance."""

    def __init__(self, scheduler: Scheduler, seed: str, skew_us: int) -> None:
        self.skew_us = skew_us
        self._scheduler = scheduler
        self._random = random.Random(seed)

    def now_us(self) -> int:
        """Microseconds since the Unix epoch, as this process believes."""
        return self._scheduler.now_us + self.skew_us

    def sleep(self, seconds: float) -> None:
        """Let the others run."""
        self._scheduler.wait(int(seconds * 1_000_000))

    def new_id(self) -> str:
        """Return the next UUID of the seed."""
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def uniform(self) -> float:
        """Return the next random number of the seed."""
        return self._random.random()


class SimulatedLock:
    """A re-entrant lock between actors: whoever waits for it lets the others run."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._owner: Task | None = None
        self._depth = 0
        self._waiting: list[Task] = []

    def __enter__(self) -> Self:
        task = self._scheduler.current
        while self._depth and self._owner is not task:
            assert task is not None
            self._waiting.append(task)
            self._scheduler.park()
        self._owner = task
        self._depth += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._depth -= 1
        if not self._depth:
            self._owner = None
            waiting, self._waiting = self._waiting, []
            for task in waiting:
                self._scheduler.wake(task)


class SimulatedGate:
    """A plain lock between actors, which another than its owner may release."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._held = False
        self._waiting: list[Task] = []

    def acquire(self) -> None:
        """Take it; meanwhile the others run."""
        while self._held:
            task = self._scheduler.current
            assert task is not None
            self._waiting.append(task)
            self._scheduler.park()
        self._held = True

    def release(self) -> None:
        """Give it back."""
        self._held = False
        waiting, self._waiting = self._waiting, []
        for task in waiting:
            self._scheduler.wake(task)

    def __enter__(self) -> Self:
        self.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class SerialExecutor:
    """What stands in for a pool of threads: the same work one after another, by the thread that asks for it."""

    def __init__(self, *_: object, **__: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def map(self, work: Callable[..., Any], *items: Iterable[Any]) -> Iterator[Any]:
        """Do the work for each item."""
        return iter([work(*each) for each in zip(*items, strict=False)])

    def submit(self, work: Callable[..., Any], *args: Any, **named: Any) -> Done:
        """Do the work now; what it raises comes with the result, as from a pool."""
        try:
            return Done(work(*args, **named), None)
        except Exception as error:  # noqa: BLE001 - raised by result()
            return Done(None, error)

    def shutdown(self, **_: object) -> None:
        """Nothing waits."""


class Done:
    """A future that has its result."""

    def __init__(self, value: Any, error: Exception | None) -> None:
        self._value = value
        self._error = error

    def result(self, timeout: float | None = None) -> Any:
        """Return it, or raise."""
        if self._error is not None:
            raise self._error
        return self._value

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Return its error, or None."""
        return self._error

    def cancelled(self) -> bool:
        """Return False: it has run."""
        return False
