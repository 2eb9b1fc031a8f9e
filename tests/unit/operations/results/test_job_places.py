"""Places of jobs: never more jobs than places, whoever asks at once, dies, or loses answers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from alluvia.clock import ManualClock
from alluvia.errors import AnswerLost
from alluvia.operations.results.jobs import (
    CANCELLED,
    DONE,
    PLACES,
    START_MS_MAX,
    STOPPING_MS,
    QueryJob,
    ask_job,
    delete_jobs,
    end_job,
    start_job,
    take_place,
)
from alluvia.store import PutResult, Store, Wrapper
from alluvia.store.memory import MemoryStore


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore("places", clock)


@pytest.fixture
def placed(store: MemoryStore, clock: ManualClock) -> Callable[[], QueryJob | None]:
    """Ask for a job, and return it if it gets one of two places."""

    def ask() -> QueryJob | None:
        job = ask_job(store, clock, {})
        return job if take_place(store, clock, job.id, 2) else None

    return ask


def test_a_place_is_free_again_when_its_job_has_ended(
    store: MemoryStore, clock: ManualClock, placed: Callable[[], QueryJob | None]
) -> None:
    first, second = placed(), placed()
    assert first is not None
    assert second is not None
    assert placed() is None
    assert take_place(store, clock, first.id, 2)  # which it has: nothing is taken twice
    start_job(store, clock, first.id)
    end_job(store, clock, first, DONE, {})
    assert placed() is not None
    assert placed() is None


def test_the_place_of_a_cancelled_job_waits_for_its_process(
    store: MemoryStore, clock: ManualClock, placed: Callable[[], QueryJob | None]
) -> None:
    for started in (True, False):
        job = placed()
        assert job is not None
        if started:
            start_job(store, clock, job.id)
        end_job(store, clock, job, CANCELLED, {})
    assert [placed() is not None for _ in range(2)] == [True, False]  # that of the one that never ran
    clock.advance(STOPPING_MS / 1000)
    assert [placed() is not None for _ in range(2)] == [True, False]


def test_places_of_jobs_that_nobody_runs_are_free(
    store: MemoryStore, clock: ManualClock, placed: Callable[[], QueryJob | None]
) -> None:
    assert [placed() is not None for _ in range(3)] == [True, True, False]
    clock.advance(START_MS_MAX / 1000 + 1)
    assert [placed() is not None for _ in range(3)] == [True, True, False]
    delete_jobs(store)
    assert [placed() is not None for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize("was_taken", [False, True])
def test_who_comes_between_gets_the_place(store: MemoryStore, clock: ManualClock, *, was_taken: bool) -> None:
    class Late(Wrapper):
        """Another takes the place between this one's look and its write."""

        def put_if_absent(self, key: str, data: bytes) -> PutResult:
            self.other_comes()
            return super().put_if_absent(key, data)

        def put_if_same(self, key: str, data: bytes, tag: str) -> bool:
            self.other_comes()
            return super().put_if_same(key, data, tag)

        def other_comes(self) -> None:
            assert take_place(store, clock, other.id, 1)

    if was_taken:
        ended = ask_job(store, clock, {})
        assert take_place(store, clock, ended.id, 1)
        end_job(store, clock, ended, DONE, {})
    mine, other = ask_job(store, clock, {}), ask_job(store, clock, {})
    assert not take_place(Late(store), clock, mine.id, 1)
    assert not take_place(store, clock, mine.id, 1)
    assert take_place(store, clock, other.id, 1)


@pytest.mark.parametrize("takes_effect", [True, False])
def test_an_answer_that_is_lost_takes_no_second_place(
    store: MemoryStore, clock: ManualClock, *, takes_effect: bool
) -> None:
    class Losing(Wrapper):
        def put_if_absent(self, key: str, data: bytes) -> PutResult:
            if takes_effect or key != f"{PLACES}0.json":
                super().put_if_absent(key, data)
            raise AnswerLost(key)

    job = ask_job(store, clock, {})
    losing: Store = Losing(store)
    assert take_place(losing, clock, job.id, 2)
    assert len(list(store.list(PLACES))) == 1
