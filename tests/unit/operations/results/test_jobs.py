"""Jobs: one start and one end, whoever writes them, loses answers, or dies."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Any

import pytest

from alluvia.clock import ManualClock
from alluvia.errors import AnswerLost, Unavailable
from alluvia.operations.results.jobs import (
    CANCELLED,
    DONE,
    FAILED,
    JOBS,
    LEASE_MS,
    QUEUED,
    RUNNING,
    START_MS_MAX,
    QueryJob,
    ask_again,
    ask_job,
    clean_jobs,
    delete_jobs,
    end_job,
    find_job,
    has_ended,
    keep_alive,
    start_job,
)
from alluvia.store import PutResult, Wrapper
from alluvia.store.memory import MemoryStore


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore("jobs", clock)


def state(store: MemoryStore, clock: ManualClock, job: QueryJob) -> str:
    found = find_job(store, clock, job.id)
    assert found is not None
    return found.state


def test_a_job_waits_runs_and_ends_once(store: MemoryStore, clock: ManualClock) -> None:
    job = ask_job(store, clock, {"request": 1})
    assert state(store, clock, job) == QUEUED
    started = start_job(store, clock, job.id)
    assert started is not None
    assert (state(store, clock, job), start_job(store, clock, job.id)) == (RUNNING, None)
    assert not has_ended(store, started)
    assert end_job(store, clock, started, DONE, {"key": "k"}).state == DONE
    assert has_ended(store, started)
    late = end_job(store, clock, started, CANCELLED, {})
    assert (late.state, late.end) == (DONE, {"state": DONE, "at_ms": clock.now_ms(), "key": "k"})
    assert start_job(store, clock, job.id) is None


@pytest.mark.parametrize("order", list(permutations(("start", "start", "cancel", "done", "look late"))))
def test_whatever_comes_first_a_job_has_one_start_and_one_end(order: tuple[str, ...]) -> None:
    clock = ManualClock()
    store = MemoryStore("jobs", clock)
    job = ask_job(store, clock, {})
    starts = 0
    seen: list[Any] = []
    for step in order:
        if step == "start":
            starts += start_job(store, clock, job.id) is not None
        elif step == "look late":
            clock.advance(START_MS_MAX / 1000 + 1)
        else:
            seen.append(end_job(store, clock, job, CANCELLED if step == "cancel" else DONE, {}).end)
        found = find_job(store, clock, job.id)
        if found is not None and found.end is not None:
            seen.append(found.end)
    assert starts <= 1
    assert len({str(each) for each in seen}) == 1


def test_who_falls_silent_has_failed(store: MemoryStore, clock: ManualClock) -> None:
    job = ask_job(store, clock, {})
    started = start_job(store, clock, job.id)
    assert started is not None
    for _ in range(5):
        clock.advance(LEASE_MS / 1000)
        assert state(store, clock, job) == RUNNING
        keep_alive(store, clock, started)
    clock.advance(LEASE_MS / 1000 + 0.001)
    found = find_job(store, clock, job.id)
    assert found is not None
    assert (found.state, found.end and found.end["error"]) == (
        FAILED,
        "the process that ran the job ended: send it again",
    )
    assert end_job(store, clock, started, DONE, {}).state == FAILED


def test_what_never_starts_has_failed(store: MemoryStore, clock: ManualClock) -> None:
    job = ask_job(store, clock, {})
    clock.advance(START_MS_MAX / 1000)
    assert state(store, clock, job) == QUEUED
    clock.advance(0.001)
    assert start_job(store, clock, job.id) is None
    assert state(store, clock, job) == FAILED


def test_one_key_is_one_job(store: MemoryStore, clock: ManualClock) -> None:
    first = ask_job(store, clock, {"request": 1}, "key")
    again = ask_job(store, clock, {"request": 2}, "key")
    assert (again.id, again.asked["request"]) == (first.id, 1)
    assert ask_job(store, clock, {"request": 1}, "other").id != first.id
    assert ask_job(store, clock, {"request": 1}).id != first.id
    # Who died between the two writes, and asks again.
    store.delete([f"{JOBS}{first.id}/asked.json"])
    assert ask_job(store, clock, {"request": 3}, "key").id == first.id


@pytest.mark.parametrize("takes_effect", [True, False])
def test_an_answer_that_is_lost_changes_nothing(store: MemoryStore, clock: ManualClock, *, takes_effect: bool) -> None:
    class Losing(Wrapper):
        def put_if_absent(self, key: str, data: bytes) -> PutResult:
            if key not in lost:
                lost.add(key)
                if takes_effect:
                    super().put_if_absent(key, data)
                raise AnswerLost(key)
            return super().put_if_absent(key, data)

    lost: set[str] = set()
    losing = Losing(store)
    job = ask_job(losing, clock, {"request": 1}, "key")
    started = start_job(losing, clock, job.id)
    assert started is not None
    assert end_job(losing, clock, started, DONE, {}).state == DONE
    assert state(store, clock, job) == DONE


def test_ids_that_are_none(store: MemoryStore, clock: ManualClock) -> None:
    ask_job(store, clock, {}, "key")
    for job_id in ("", "..", "keys", "../views/x", "x" * 36, f"{clock.new_id()}/asked.json"):
        assert find_job(store, clock, job_id) is None


def test_erasure_and_clean_up_leave_nothing(store: MemoryStore, clock: ManualClock) -> None:
    ended: Callable[[], list[str]] = lambda: [info.key for info in store.list(JOBS)]  # noqa: E731
    job = ask_job(store, clock, {"query": "secret"}, "key")
    started = start_job(store, clock, job.id)
    assert started is not None
    delete_jobs(store)
    delete_jobs(store)
    assert (ended(), has_ended(store, started), find_job(store, clock, job.id)) == ([], True, None)
    end_job(store, clock, started, FAILED, {"error": "secret"})
    assert store.get(f"{JOBS}{job.id}/end.json") == b"{}"
    clock.advance(100)
    young = ask_job(store, clock, {})
    assert clean_jobs(store, clock, 99_000, dry_run=True) == 1
    assert clean_jobs(store, clock, 99_000) == 1
    assert ended() == [f"{JOBS}{young.id}/asked.json"]


def failed(store: MemoryStore, clock: ManualClock) -> QueryJob:
    """Return a job of a key whose runner has died."""
    job = ask_job(store, clock, {"request": 1}, "key")
    assert start_job(store, clock, job.id) is not None
    clock.advance(LEASE_MS / 1000 + 1)
    found = find_job(store, clock, job.id)
    assert found is not None
    assert found.failed_in_passing
    return found


def test_a_key_whose_job_died_gets_one_other_whoever_asks(store: MemoryStore, clock: ManualClock) -> None:
    class Late(Wrapper):
        """Another asks again between this one's look and its write."""

        def put_if_same(self, key: str, data: bytes, tag: str) -> bool:
            others.append(ask_again(store, clock, first, {"request": 1}, "key"))
            return super().put_if_same(key, data, tag)

    first = failed(store, clock)
    others: list[QueryJob] = []
    mine = ask_again(Late(store), clock, first, {"request": 1}, "key")
    later = ask_again(store, clock, first, {"request": 1}, "key")
    assert {mine.id, later.id} == {others[0].id} != {first.id}
    assert ask_job(store, clock, {"request": 1}, "key").id == mine.id
    delete_jobs(store)
    assert ask_again(store, clock, mine, {"request": 1}, "key").id not in (first.id, mine.id)


@pytest.mark.parametrize("takes_effect", [True, False])
def test_who_asks_again_and_loses_the_answer(store: MemoryStore, clock: ManualClock, *, takes_effect: bool) -> None:
    class Losing(Wrapper):
        def put_if_same(self, key: str, data: bytes, tag: str) -> bool:
            if takes_effect:
                super().put_if_same(key, data, tag)
            raise AnswerLost(key)

    first = failed(store, clock)
    if takes_effect:
        found = ask_again(Losing(store), clock, first, {"request": 1}, "key")
        assert found.id == ask_job(store, clock, {}, "key").id != first.id
    else:
        with pytest.raises(Unavailable):
            ask_again(Losing(store), clock, first, {"request": 1}, "key")


def test_what_the_query_fails_by_is_not_passing(store: MemoryStore, clock: ManualClock) -> None:
    ends = {400: False, 500: False, 503: True}
    for status, passing in ends.items():
        job = end_job(store, clock, ask_job(store, clock, {}), FAILED, {"status": status, "error": "x"})
        assert job.failed_in_passing is passing
    assert not end_job(store, clock, ask_job(store, clock, {}), CANCELLED, {}).failed_in_passing
