"""The commit of a backfill among others: whatever the order, an event is one row. Without Spark, on real tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.commit.event_window.id_files import ID_FOLDER, IdFiles
from alluvia.commit.event_window.id_runs import content_hashes
from alluvia.commit.handle import TableHandle
from alluvia.errors import AlluviaError, ConcurrentAppend, TransactionExpired
from alluvia.store import CountingStore, MemoryStore
from alluvia_spark.backfill_job import committing, known_ids
from alluvia_spark.backfill_job.job import ROWS
from tests.contract.workers import events
from tests.faults.attempts import attempts, check_log, tried
from tests.faults.store import MODES
from tests.spark.jobs import Backfill, backfill, job_of
from tests.unit.operations.ingesting import ingest, stored

POOL = "abcdefgh"
SOME = st.sets(st.sampled_from(POOL), min_size=1, max_size=5).map(sorted)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("post"), st.integers(0, 1), SOME),
        st.tuples(st.just("post"), st.integers(0, 1), SOME),
        st.tuples(st.just("begin"), st.integers(0, 2), SOME),
        st.tuples(st.just("commit"), st.integers(0, 2)),
        st.tuples(st.just("checkpoint")),
        st.tuples(st.just("cold"), st.integers(0, 1)),
    ),
    min_size=4,
    max_size=14,
)


@pytest.fixture(autouse=True)
def _few_ids_in_a_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_ids, "IDS_IN_COMMIT_MAX", 1)


def rows_of(table: Table, ids: Sequence[str]) -> tuple[pa.Table, Sequence[bytes]]:
    rows = events(table.snapshot().schema, list(ids))
    return rows, content_hashes(rows)


def begun(lake: Lake, *ids: str) -> Backfill:
    return Backfill(lake, "t", *rows_of(lake.table("t"), ids))


def made(clock: ManualClock, *ids: str) -> MemoryStore:
    """Return a store with a table in which a big job has brought some events."""
    store = MemoryStore("m", clock)
    lake = Lake(store, clock)
    lake.create_events("t", partition_by=())
    if ids:
        begun(lake, *ids).commit("first")
    return store


@settings(max_examples=30, deadline=None)
@given(STEPS)
def test_any_mix_of_jobs_and_posts_stores_each_event_once(steps: list[tuple[object, ...]]) -> None:
    clock = ManualClock()
    store = MemoryStore("m", clock)
    lakes = [Lake(store, clock), Lake(store, clock)]
    lakes[0].create_events("t", partition_by=())
    sent: set[str] = set()
    jobs: dict[int, tuple[Sequence[str], Backfill]] = {}
    number = 0
    for step in steps:
        clock.advance(1)
        match step:
            case "post", int(who), list(ids):
                appended, duplicates = ingest(lakes[who].table("t"), *ids)
                assert (appended, duplicates) == (len({*ids} - sent), len({*ids} & sent))
                sent.update(ids)
            case "begin", int(job), list(ids):
                jobs[job] = ids, begun(Lake(store, clock), *ids)
            case "commit", int(job) if job in jobs:
                wanted, written = jobs.pop(job)
                number += 1
                try:
                    written.commit(f"job {number}")
                except ConcurrentAppend:
                    lake = Lake(store, clock)
                    backfill(lake, "t", *rows_of(lake.table("t"), wanted), f"job {number}")
                sent.update(wanted)
            case ("checkpoint",):
                Lake(store, clock).table("t").checkpoint()
            case "cold", int(who):
                lakes[who] = Lake(store, clock)
        assert stored(lakes[0].table("t")) == sorted(sent)


@pytest.mark.parametrize(("one", "other"), [("abc", "cde"), ("abc", "c"), ("c", "abc"), ("c", "c")])
def test_of_two_jobs_at_once_the_later_leaves_out_what_the_other_brought(one: str, other: str) -> None:
    clock = ManualClock()
    store = MemoryStore("m", clock)
    lake = Lake(store, clock)
    lake.create_events("t", partition_by=())
    late = begun(Lake(store, clock), *one)
    begun(lake, *other).commit("other")
    with pytest.raises(ConcurrentAppend, match="events of the job came into t during the job"):
        late.commit("late")
    backfill(lake, "t", *rows_of(lake.table("t"), one), "late")
    assert stored(lake.table("t")) == sorted({*one, *other})


@pytest.mark.parametrize("ids", ["abc", "c"])
def test_a_job_that_slept_before_its_commit_names_no_file_that_vacuum_took(
    ids: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seed 7300493 of the simulation: it slept while it looked the ids of others up, after the check of its age."""
    clock = ManualClock()
    store = made(clock, "x", "y")
    lake = Lake(store, clock)
    late = begun(Lake(store, clock), *ids)
    check = committing._NewEvents.check
    slept: list[int] = []

    def sleep(new: committing._NewEvents, handle: TableHandle) -> None:
        check(new, handle)
        if not slept:
            clock.advance(26 * 3600)
            slept.append(len(lake.table("t").vacuum(timedelta(hours=1)).orphans))

    monkeypatch.setattr(committing._NewEvents, "check", sleep)
    with pytest.raises(TransactionExpired, match="over 12 hours old"):
        late.commit("late")
    assert slept == [1]
    assert stored(Lake(store, clock).table("t")) == ["x", "y"]
    backfill(lake, "t", *rows_of(lake.table("t"), ids), "late")
    assert stored(Lake(store, clock).table("t")) == sorted([*ids, "x", "y"])


def test_jobs_at_once_with_other_events_both_commit_and_read_each_others_ids_once() -> None:
    clock = ManualClock()
    counting = CountingStore(made(clock, "a", "b"))
    late = begun(Lake(counting, clock), "x", "y", "z")
    other = Lake(counting.inner, clock)
    begun(other, "c", "d").commit("second")
    counting.reset()
    late.commit("late")
    read = [key for kind, key in counting.keys if kind == "get" and ID_FOLDER in key]
    assert len(read) == len(set(read)) <= 4  # two ranges of each
    assert stored(other.table("t")) == ["a", "b", "c", "d", "x", "y", "z"]
    assert ingest(Lake(counting.inner, clock).table("t"), *"abcdxyz", "new") == (1, 7)


def test_a_restore_that_takes_a_job_back_lets_its_events_come_again() -> None:
    clock = ManualClock()
    lake = Lake(made(clock, "a", "b"), clock)
    table = lake.table("t")
    table.restore(version=0)
    assert ingest(table, "a") == (1, 0)
    backfill(lake, "t", *rows_of(table, ["a", "b", "c"]), "first")
    assert stored(table) == ["a", "b", "c"]
    assert ingest(table, "a", "b", "c") == (0, 3)


def test_a_job_whose_counts_do_not_agree_with_what_it_wrote_commits_nothing() -> None:
    clock = ManualClock()
    lake = Lake(made(clock), clock)
    job = Backfill(lake, "t", *rows_of(lake.table("t"), ["a", "b"]))
    job.outcome = replace(job.outcome, counts=replace(job.outcome.counts, lines=3))
    with pytest.raises(AlluviaError, match=r"counts do not agree \(lines read, .*: 3 and 2\)"):
        job.commit("job")
    assert lake.table("t").version == 0


def test_files_of_ids_that_another_attempt_of_a_task_has_put_stay() -> None:
    clock = ManualClock()
    lake = Lake(made(clock), clock)
    job, files = job_of(lake, "t"), IdFiles(f"{ID_FOLDER}run/", 1, 1, 1, 64)
    for number in (1, 2):
        columns = [pa.array([number], kind) for kind in (pa.uint64(), pa.uint32(), pa.uint32())]
        known_ids.put_ids(job, ROWS, files, 0, pa.table(columns, ["head", "tail", "content"]), clock)
    data = lake.store.get(f"t/{files.name(0)}")
    assert len(data) == files.header_bytes + 16
    assert data.endswith(b"".join(number.to_bytes(width, "little") for number, width in ((1, 8), (1, 4), (1, 4))))


@pytest.mark.parametrize("mode", MODES)
def test_a_post_after_a_big_job_whose_nth_call_fails(mode: str) -> None:
    done = 0
    for store, clock in attempts(mode, partial(_made, "abcdef")):
        tried(ingest, Lake(store, clock).table("t"), "b", "e", "new")
        again = Lake(store.inner, clock).table("t")
        ingest(again, "b", "e", "new")
        assert stored(again) == [*"abcdef", "new"], store.at
        check_log(again.lake, "t")
        done += 1
    assert done > 2


@pytest.mark.parametrize("mode", MODES)
def test_a_job_whose_nth_call_fails(mode: str) -> None:
    """Another big job has brought some of its events since it began."""
    done = 0
    for store, clock in attempts(mode, partial(_made, "")):
        tried(_job_after_another, Lake(store, clock), Lake(store.inner, clock))
        again = Lake(store.inner, clock)
        backfill(again, "t", *rows_of(again.table("t"), "bcd"), "job")
        backfill(again, "t", *rows_of(again.table("t"), "ab"), "other")
        assert ingest(again.table("t"), *"abcd") == (0, 4), store.at
        assert stored(again.table("t")) == [*"abcd"], store.at
        check_log(again, "t")
        done += 1
    assert done > 5


def _made(ids: str, clock: ManualClock) -> MemoryStore:
    return made(clock, *ids)


def _job_after_another(lake: Lake, other: Lake) -> None:
    job = begun(lake, "b", "c", "d")
    backfill(other, "t", *rows_of(other.table("t"), "ab"), "other")
    try:
        job.commit("job")
    except ConcurrentAppend:
        backfill(lake, "t", *rows_of(lake.table("t"), "bcd"), "job")
