"""Results that a lake keeps: what is written is read, and clean-up holds the limits."""

from __future__ import annotations

import alluvia
from alluvia.clock import ManualClock
from alluvia.operations.results.results import (
    LARGE,
    RESULTS,
    CleanedResults,
    KeptResult,
    ResultLimits,
    clean_results,
    delete_results,
    find_result,
    forget_result,
    is_there,
    keep_result,
    kept_bytes,
    new_large_key,
    take_back,
)
from alluvia.store.memory import MemoryStore


def test_a_result_is_found_as_it_was_kept_until_it_is_taken_back() -> None:
    store = MemoryStore("results")
    result = KeptResult(b"\0" * 100_000 + bytes(range(256)), {"Alluvia-Rows": "3"})
    assert find_result(store, "a") is None
    keep_result(store, "a", result)
    assert find_result(store, "a") == result
    assert find_result(store, "b") is None
    assert len(store.get(RESULTS + "a")) < 2_000
    forget_result(store, "a")
    assert find_result(store, "a") is None
    assert (delete_results(store), delete_results(store)) == (1, 0)


def test_an_empty_result_is_one_too() -> None:
    store = MemoryStore("results")
    keep_result(store, "a", KeptResult(b"", {}))
    assert find_result(store, "a") == KeptResult(b"", {})


def test_clean_up_takes_what_is_old_and_then_the_oldest_beyond_the_limit() -> None:
    clock = ManualClock()
    store = MemoryStore("results", clock)
    for number in range(6):
        store.put(f"{RESULTS}{number}", b"x" * 100)
        clock.advance(3600)
    store.put(f"{RESULTS}taken-back", b"")
    store.put("_alluvia/views/v/0.json", b"{}")
    limits = ResultLimits(age_ms_max=int(4.5 * 3_600_000), bytes_max=250)
    expected = CleanedResults(deleted=5, deleted_bytes=400, kept=2, kept_bytes=200)
    assert clean_results(store, clock, limits, dry_run=True) == expected
    assert len(list(store.list(RESULTS))) == 7
    assert clean_results(store, clock, limits) == expected
    assert [info.key for info in store.list("")] == [
        "_alluvia/results/4",
        "_alluvia/results/5",
        "_alluvia/views/v/0.json",
    ]
    assert clean_results(store, clock, limits).deleted == 0


def test_clean_up_leaves_large_results_while_there_may_be_links_to_them() -> None:
    clock = ManualClock()
    store = MemoryStore("results", clock)
    for number in range(4):
        store.put(f"{LARGE}{number}", b"x" * 100)
        store.put(f"{RESULTS}{number}", b"x")
        clock.advance(1799)
    store.put(f"{LARGE}taken-back", b"")
    limits = ResultLimits(age_ms_max=24 * 3_600_000, bytes_max=1, large_bytes_max=100)
    assert clean_results(store, clock, limits) == CleanedResults(deleted=6, deleted_bytes=203, kept=3, kept_bytes=201)
    assert [info.key for info in store.list("")] == [f"{RESULTS}3", f"{LARGE}2", f"{LARGE}3"]
    clock.advance(25 * 3600)
    assert clean_results(store, clock, limits).deleted == 3


def test_a_large_result_outlives_the_last_link_to_it() -> None:
    clock = ManualClock()
    store = MemoryStore("results", clock)
    limits = ResultLimits()
    store.put(f"{LARGE}a", b"x")
    clock.advance(24 * 3600)
    assert is_there(store, clock, f"{LARGE}a", limits.age_ms_max)  # a link to it is valid for an hour
    clock.advance(3600)
    assert not is_there(store, clock, f"{LARGE}a", limits.age_ms_max)
    assert clean_results(store, clock, limits).deleted == 0
    clock.advance(1)
    assert clean_results(store, clock, limits).deleted == 1


def test_tables_and_verification_do_not_see_them() -> None:
    lake = alluvia.connect("memory://")
    lake.create_table("t", {"n": "long"}).append([{"n": 1}])
    keep_result(lake.store, "a", KeptResult(b"x", {}))
    lake.store.put(f"{LARGE}b.csv", b"x")
    assert (lake.tables(), lake["t"].verify().findings) == (["t"], ())


def test_what_a_caller_has_kept_counts_while_links_to_it_are_valid() -> None:
    clock = ManualClock()
    store = MemoryStore("results", clock)
    keys = [new_large_key(clock, "csv", None, caller) for caller in ("a", "a", "b", "")]
    store.put(keys[0], b"x" * 100)
    clock.advance(1000)
    store.put(keys[1], b"x" * 20)
    store.put(keys[2], b"x" * 3)
    store.put(keys[3], b"x")
    assert (kept_bytes(store, clock, "a"), kept_bytes(store, clock, "b").total) == ((120, 2600), 3)
    clock.advance(2600)
    assert kept_bytes(store, clock, "a") == (20, 1000)
    take_back(store, keys[1])
    assert kept_bytes(store, clock, "a").total == 0
