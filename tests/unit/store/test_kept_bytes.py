"""Bytes that are kept for a while: how many, and how long."""

from __future__ import annotations

from alluvia.store.caches.range_cache import KEPT_SECONDS, KeptBytes


class Time:
    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self) -> float:
        return self.now


def test_those_used_least_recently_make_room() -> None:
    kept: KeptBytes[str] = KeptBytes(30, Time())
    for name in "abc":
        kept.keep(name, name.encode() * 10)
    assert kept.get("a") == b"a" * 10
    kept.keep("d", b"d" * 10)
    assert [kept.get(name) is not None for name in "abcd"] == [True, False, True, True]
    kept.keep("e", b"e" * 31)
    assert (kept.get("e"), kept.held_bytes) == (None, 30)
    kept.keep("a", b"x")
    assert (kept.get("a"), kept.held_bytes) == (b"x", 21)


def test_nothing_is_kept_for_longer_than_an_hour_however_often_it_is_used() -> None:
    time = Time()
    kept: KeptBytes[str] = KeptBytes(100, time)
    kept.keep("a", b"1234")
    time.now += KEPT_SECONDS / 2
    kept.keep("b", b"56")
    assert kept.get("a") == b"1234"
    time.now += KEPT_SECONDS / 2
    assert (kept.get("a"), kept.get("b"), kept.held_bytes) == (None, b"56", 2)


def test_what_is_old_goes_in_an_idle_process_too() -> None:
    time = Time()
    kept: KeptBytes[str] = KeptBytes(100, time)
    kept.keep("a", b"1234")
    assert kept._timer is not None
    timer = kept._timer[1]
    assert (timer.daemon, timer.interval) == (True, KEPT_SECONDS)
    time.now += KEPT_SECONDS / 2
    kept.keep("b", b"56")
    time.now += KEPT_SECONDS / 2
    timer.function()
    timer.cancel()
    assert kept.held_bytes == 2
    kept._timer[1].cancel()
