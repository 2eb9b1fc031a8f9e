"""Requests of several threads, done together: those that wait while one is under way are the next group.

The first request begins at once, alone. Whoever leads a group does the work for all of it, then hands the lead to the
first of those who came meanwhile, so nobody leads twice. There is no timer: without contention nobody waits.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Generic, TypeVar

from alluvia.errors import CommitUnknown

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
        """Return what became of the request, or raise it."""
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome  # type: ignore[return-value]


class RequestGroups(Generic[Request, Result]):
    """Lines of requests, such as one for each table. Thread-safe."""

    def __init__(self, most: Size = GROUP_MAX) -> None:
        self._most = most
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
                self._lead(line, me, work)
        finally:
            self._leave(line, me)
        return me.result()

    def _lead(self, line: Hashable, me: _Member[Request, Result], work: Work[Request, Result]) -> None:
        group = self._gather(line, me)
        interrupted = CommitUnknown("the thread that did this together with other requests was interrupted")
        outcomes: Sequence[Result | Exception] = [interrupted] * len(group)
        try:
            outcomes = work([member.request for member in group])
        except Exception as error:
            outcomes = [error] * len(group)
            raise
        finally:
            for member, outcome in zip(group, outcomes, strict=True):
                alone = member is me or not isinstance(outcome, Exception)
                member.outcome = outcome if alone else _copy(outcome)  # type: ignore[arg-type]
            self._leave(line, me)  # first of all, so that the next group begins
            for member in group[1:]:
                member.turn.release()

    def _gather(self, line: Hashable, me: _Member[Request, Result]) -> list[_Member[Request, Result]]:
        """Take those who wait, in their order, as long as the group is not too large."""
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
