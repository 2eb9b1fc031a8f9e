"""Requests of threads that are done together: who leads, who gets which answer, and who goes on when one breaks."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from alluvia.clock import Clock, ManualClock
from alluvia.errors import CommitUnknown, Unavailable
from alluvia.operations.catalog.request_batching import PAUSE_SECONDS_MAX, PAUSES_MAX, RequestGroups, Size

SMALL = Size(1, 10)
MANY = Size(1000, 1_000_000)


class Workplace:
    """RequestGroups whose work stops at a gate, and what was worked on by whom."""

    def __init__(self, most: Size = MANY, clock: Clock | None = None) -> None:
        self.groups: RequestGroups[int, str] = RequestGroups(clock or ManualClock(), most)
        self.gate = threading.Semaphore(0)
        self.lots: list[list[int]] = []
        self.leaders: list[int] = []
        self.breaks: Callable[[Sequence[int]], None] = lambda _: None
        self.pool = ThreadPoolExecutor(20)

    def work(self, lot: Sequence[int]) -> list[str | Exception]:
        self.lots.append(list(lot))
        self.leaders.append(threading.get_ident())
        assert self.gate.acquire(timeout=30)
        self.breaks(lot)
        return [f"did {each}" for each in lot]

    def send(self, request: int, size: Size = SMALL, line: str = "t") -> Future[str]:
        """Send a request in a thread of its own, and wait until it is under way or in its line."""
        before = self.there(line)
        sent = self.pool.submit(self.groups.do, line, request, size, self.work)
        self.wait(lambda: self.there(line) > before)
        return sent

    def there(self, line: str) -> int:
        waiting = self.groups._lines.get(line)
        return 0 if waiting is None else len(waiting) + sum(map(len, self.lots))

    def wait(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not holds():
            assert time.monotonic() < deadline
            time.sleep(0.001)

    def open(self, groups: int) -> None:
        for _ in range(groups):
            self.gate.release()


def test_a_request_alone_begins_at_once_and_leaves_nothing_behind() -> None:
    place = Workplace()
    place.open(2)
    assert [place.groups.do("t", each, SMALL, place.work) for each in (1, 2)] == ["did 1", "did 2"]
    assert place.lots == [[1], [2]]
    assert not place.groups._lines


def test_those_that_wait_are_the_next_group_and_each_gets_its_own_answer() -> None:
    place = Workplace()
    sent = [place.send(each) for each in range(6)]
    place.open(2)
    assert [each.result(30) for each in sent] == [f"did {each}" for each in range(6)]
    assert place.lots == [[0], [1, 2, 3, 4, 5]]


class Pauses(ManualClock):
    """A clock on which a group takes a second, and a pause lasts until `until` holds."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []
        self.until: Callable[[], bool] = lambda: True
        self.place = Workplace(clock=self)
        self.place.breaks = lambda _: self.advance(1)

    def sleep(self, seconds: float) -> None:
        self.seconds.append(seconds)
        self.advance(seconds)
        self.place.wait(self.until)


def test_those_who_send_again_as_soon_as_they_are_answered_go_with_those_who_waited() -> None:
    clock = Pauses()
    place = clock.place
    clock.until = lambda: len(place.groups._lines["t"]) == 2
    sent = [place.send(each) for each in range(3)]
    place.open(1)
    assert sent[0].result(30) == "did 0"
    place.open(1)
    again = place.pool.submit(place.groups.do, "t", 3, SMALL, place.work)
    assert [each.result(30) for each in (*sent[1:], again)] == ["did 1", "did 2", "did 3"]
    assert place.lots == [[0], [1, 2, 3]]
    assert clock.seconds == [PAUSE_SECONDS_MAX]


def test_the_first_of_a_group_to_send_again_waits_for_the_others() -> None:
    clock = Pauses()
    place = clock.place
    sent = [place.send(each) for each in range(3)]
    place.open(3)
    assert [each.result(30) for each in sent] == ["did 0", "did 1", "did 2"]
    clock.until = lambda: len(place.groups._lines["t"]) == 1
    first = place.pool.submit(place.groups.do, "t", 3, SMALL, place.work)
    place.wait(lambda: len(clock.seconds) == 2)
    second = place.pool.submit(place.groups.do, "t", 4, SMALL, place.work)
    assert [each.result(30) for each in (first, second)] == ["did 3", "did 4"]
    assert place.lots == [[0], [1, 2], [3, 4]]
    clock.advance(PAUSES_MAX * PAUSE_SECONDS_MAX)
    place.open(1)
    assert place.groups.do("t", 5, SMALL, place.work) == "did 5"
    assert clock.seconds == [PAUSE_SECONDS_MAX] * 2


@pytest.mark.parametrize(
    ("crowd", "arrivals", "pauses"),
    [(4, 9, 3), (9, 1, 2), (9, 9, PAUSES_MAX)],
    ids=["until all are there", "until no more come", "not for ever"],
)
def test_a_group_waits_again_while_more_come(crowd: int, arrivals: int, pauses: int) -> None:
    clock = Pauses()
    place = clock.place
    sent = [place.send(each) for each in range(crowd + 1)]
    place.open(2)
    assert [each.result(30) for each in sent] == [f"did {each}" for each in range(crowd + 1)]
    later: list[Future[str]] = []

    def one_more() -> bool:
        if len(later) < arrivals:
            later.append(place.send(11 + len(later)))
        return True

    clock.until = one_more
    place.open(1)
    assert place.groups.do("t", 10, SMALL, place.work) == "did 10"
    assert [each.result(30) for each in later] == [f"did {11 + each}" for each in range(len(later))]
    assert place.lots[2:] == [list(range(10, 11 + min(pauses, arrivals)))]
    assert clock.seconds[1:] == [PAUSE_SECONDS_MAX] * pauses


def test_a_request_alone_does_not_pause_for_more() -> None:
    clock = Pauses()
    clock.place.open(3)
    for each in range(3):
        clock.place.groups.do("t", each, SMALL, clock.place.work)
    assert clock.seconds == []


def test_the_lead_is_handed_on() -> None:
    place = Workplace(most=Size(2, 1000))
    sent = [place.send(each) for each in range(7)]
    place.open(4)
    assert [each.result(30) for each in sent] == [f"did {each}" for each in range(7)]
    assert place.lots == [[0], [1, 2], [3, 4], [5, 6]]
    assert len(set(place.leaders)) == 4


@pytest.mark.parametrize("large", [Size(5, 1), Size(1, 500)])
def test_what_is_too_large_for_a_group_goes_alone(large: Size) -> None:
    place = Workplace(most=Size(4, 400))
    sent = [place.send(each, large if each == 2 else Size(1, 100)) for each in range(5)]
    place.open(4)
    assert [each.result(30) for each in sent] == [f"did {each}" for each in range(5)]
    assert place.lots == [[0], [1], [2], [3, 4]]


def test_lines_do_not_wait_for_each_other() -> None:
    place = Workplace()
    one = place.send(1)
    assert place.lots == [[1]]
    place.open(2)
    assert place.groups.do("u", 2, SMALL, place.work) == "did 2"
    assert one.result(30) == "did 1"


def test_an_error_goes_to_each_of_the_group_as_its_own_and_the_next_group_goes_on() -> None:
    place = Workplace(most=Size(3, 1000))

    def fail(lot: Sequence[int]) -> None:
        if 2 in lot:
            error = Unavailable("the store went away")
            error.add_note("at noon")
            raise error

    place.breaks = fail
    sent = [place.send(each) for each in range(5)]
    place.open(3)
    errors = [sent[each].exception(30) for each in (1, 2, 3)]
    assert {(type(each), str(each), tuple(each.__notes__)) for each in errors if each is not None} == {
        (Unavailable, "the store went away", ("at noon",))
    }
    assert len({id(each) for each in errors}) == 3
    assert sent[0].result(30) == "did 0"
    assert sent[4].result(30) == "did 4"


def test_an_outcome_that_is_an_error_is_raised_to_its_request_alone() -> None:
    place = Workplace()
    real = place.work

    def work(lot: Sequence[int]) -> list[str | Exception]:
        return [ValueError("mine") if each == 2 else done for each, done in zip(lot, real(lot), strict=True)]

    place.work = work  # type: ignore[method-assign]
    sent = [place.send(each) for each in range(4)]
    place.open(2)
    assert str(sent[2].exception(30)) == "mine"
    assert [sent[each].result(30) for each in (0, 1, 3)] == ["did 0", "did 1", "did 3"]


def test_a_leader_that_is_interrupted_hands_over_and_nobody_is_left_waiting() -> None:
    place = Workplace(most=Size(2, 1000))

    def interrupt(lot: Sequence[int]) -> None:
        if 1 in lot:
            raise KeyboardInterrupt

    place.breaks = interrupt
    sent = [place.send(each) for each in range(4)]
    place.open(3)
    assert isinstance(sent[1].exception(30), KeyboardInterrupt)
    assert isinstance(sent[2].exception(30), CommitUnknown)
    assert [sent[each].result(30) for each in (0, 3)] == ["did 0", "did 3"]
    assert not place.groups._lines


def test_one_that_waits_and_is_interrupted_leaves_its_line() -> None:
    place = Workplace()
    first = place.send(0)
    main = threading.get_ident()

    def interrupt() -> None:
        place.wait(lambda: place.there("t") == 2)
        place.send(2)
        signal.pthread_kill(main, signal.SIGINT)

    helper = place.pool.submit(interrupt)
    with pytest.raises(KeyboardInterrupt):
        place.groups.do("t", 1, SMALL, place.work)
    helper.result(30)
    place.open(2)
    assert first.result(30) == "did 0"
    place.wait(lambda: not place.groups._lines)
    assert place.lots == [[0], [2]]
