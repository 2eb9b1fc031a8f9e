"""Requests of several threads, done together: those that wait while one is under way are the next group.

The first request begins at once, alone. The leader of a group does the work for all of it, then hands the lead to the
first request that came meanwhile, so no thread leads twice. After a group of several, the next one pauses for a small
part of the time that it took, and again while more come: senders that were just answered come along. Without that, they
and the waiting requests would take turns, each half waiting for the other. Without contention none waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from threading import Lock
from typing import Generic, TypeVar

from alluvia.clock import Clock
from alluvia.errors import CommitUnknown
from alluvia.lazy_dataclasses import dataclass

Request = TypeVar("Request")
Result = TypeVar("Result")
Work = Callable[[Sequence[Request]], Sequence[Result | Exception]]


@dataclass(frozen=True, slots=True)
class Size:
    """What a request brings: rows, and about as many bytes of text."""

    rows: int
    text_bytes: int


GROUP_MAX = Size(20_000, 16 << 20)
"""The most that joins a group. A request that is larger goes alone."""
PAUSE = 0.05
PAUSE_SECONDS_MAX = 0.01
"""For what part of the time of the group before it a group waits for more requests, and for how long at most."""
PAUSES_MAX = 5
"""So many times it waits at most: again if more have come meanwhile, unless there are as many as before."""
_PAUSES_US_MAX = PAUSES_MAX * PAUSE_SECONDS_MAX * 1_000_000


class _Member(Generic[Request, Result]):
    """One thread's request. Its `turn` comes when it has an outcome, or when it leads."""

    def __init__(self, request: Request, size: Size) -> None:
        self.request = request
        self.size = size
        self.turn = Lock()
        self.turn.acquire()
        self.waits = self.leads = False
        self.outcome: Result | Exception | None = None

    def result(self) -> Result:
        """Return the outcome of the request, or raise it."""
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome  # type: ignore[return-value]


class RequestGroups(Generic[Request, Result]):
    """Lines of requests, such as one for each table. Thread-safe."""

    def __init__(self, clock: Clock, most: Size = GROUP_MAX) -> None:
        self._clock = clock
        self._most = most
        self._crowded: Hashable = None
        self._pause_until_us = 0
        self._pause_seconds = 0.0
        self._crowd = 0
        self._lock = Lock()
        self._lines: dict[Hashable, deque[_Member[Request, Result]]] = {}

    def do(self, line: Hashable, request: Request, size: Size, work: Work[Request, Result]) -> Result:
        """Have a request done, with others of its line if some wait, and return or raise what `work` says of it.

        `work` takes the requests of a group and returns an outcome for each. What it raises goes to each of the group
        as an error of its own.
        """
        me = _Member[Request, Result](request, size)
        try:
            with self._lock:
                waiting = self._lines.get(line)
                if waiting is None:
                    me.leads = True
                    self._lines[line] = deque()
                else:
                    me.waits = True
                    waiting.append(me)
            if not me.leads:
                me.turn.acquire()
            if me.leads:
                self._pause(line)
                self._lead(line, me, work)
        finally:
            self._leave(line, me)
        return me.result()

    def _pause(self, line: Hashable) -> None:
        """Wait for those whom the last group answered, if several were waiting for it or in it.

        As long as more come, others are on their way: on a busy machine it takes a while until all have sent again.
        """
        seconds, crowd = self._pause_seconds, self._crowd
        while self._crowded == line and 0 < self._pause_until_us - self._clock.now_us() <= _PAUSES_US_MAX:
            before = len(self._lines[line])
            self._clock.sleep(seconds)
            there = len(self._lines[line])
            if there == before or there + 1 >= crowd:
                return

    def _took(self, line: Hashable, group: Sequence[_Member[Request, Result]], began_us: int) -> None:
        """Take note of a finished group, for the leader of the next one."""
        now_us = self._clock.now_us()
        with self._lock:
            self._crowd = len(group) + len(self._lines[line])
            self._crowded = line if self._crowd > 1 else None
            self._pause_seconds = min(PAUSE_SECONDS_MAX, PAUSE * (now_us - began_us) / 1_000_000)
            self._pause_until_us = now_us + int(PAUSES_MAX * self._pause_seconds * 1_000_000)

    def _lead(self, line: Hashable, me: _Member[Request, Result], work: Work[Request, Result]) -> None:
        group = self._gather(line, me)
        interrupted = CommitUnknown("the thread that did this together with other requests was interrupted")
        outcomes: Sequence[Result | Exception] = [interrupted] * len(group)
        began_us = self._clock.now_us()
        try:
            outcomes = work([member.request for member in group])
        except Exception as error:
            outcomes = [error] * len(group)
            raise
        finally:
            self._took(line, group, began_us)
            for member, outcome in zip(group, outcomes, strict=True):
                alone = member is me or not isinstance(outcome, Exception)
                member.outcome = outcome if alone else _copy(outcome)  # type: ignore[arg-type]
            self._leave(line, me)  # first of all, so that the next group begins
            for member in group[1:]:
                member.turn.release()

    def _gather(self, line: Hashable, me: _Member[Request, Result]) -> list[_Member[Request, Result]]:
        """Take waiting requests, in their order, as long as the group is not too large."""
        group, rows, text_bytes = [me], me.size.rows, me.size.text_bytes
        with self._lock:
            waiting = self._lines[line]
            while waiting:
                rows, text_bytes = rows + waiting[0].size.rows, text_bytes + waiting[0].size.text_bytes
                if rows > self._most.rows or text_bytes > self._most.text_bytes:
                    break
                waiting[0].waits = False
                group.append(waiting.popleft())
        return group

    def _leave(self, line: Hashable, me: _Member[Request, Result]) -> None:
        """Take a request out of its line, and hand the lead on."""
        with self._lock:
            if me.waits:  # interrupted
                self._lines[line].remove(me)
                me.waits = False
            if not me.leads:
                return
            me.leads = False
            waiting = self._lines[line]
            if not waiting:
                del self._lines[line]
                return
            after = waiting.popleft()
            after.waits, after.leads = False, True
            after.turn.release()


def _copy(error: Exception) -> Exception:
    """Return an error that is the same but for its traceback, since threads would share and change that."""
    own = type(error).__new__(type(error), *error.args)
    own.__dict__.update(error.__dict__)
    own.__cause__ = error
    return own
