"""How many requests are under way at once, and what is held ahead."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from alluvia.errors import ObjectNotFound
from alluvia.store import MemoryStore
from alluvia.store.requests import AHEAD_BYTES, AHEAD_OBJECTS, REQUESTS_AT_ONCE, each, fetched_ahead


def test_so_many_run_at_once_and_no_more() -> None:
    barrier = threading.Barrier(REQUESTS_AT_ONCE, timeout=10)
    threads: set[int] = set()

    def work(number: int) -> int:
        threads.add(threading.get_ident())
        barrier.wait()
        return number

    numbers = list(range(3 * REQUESTS_AT_ONCE))
    assert each(work, numbers, parallel=True) == numbers
    assert len(threads) == REQUESTS_AT_ONCE


@pytest.mark.parametrize(("items", "parallel"), [(1, True), (40, False)])
def test_no_thread_is_made_for_nothing(items: int, parallel: bool) -> None:
    mine = [threading.get_ident()]
    assert set(each(lambda _: threading.get_ident(), range(items), parallel=parallel)) == set(mine)
    found = fetched_ahead(lambda _key, _copy: threading.get_ident(), [("k", 1)] * items, parallel=parallel)
    assert set(found) == set(mine)


def test_after_an_error_nothing_is_begun() -> None:
    begun: list[int] = []

    def work(number: int) -> None:
        begun.append(number)
        if not number:
            raise ObjectNotFound("the first")
        time.sleep(0.01)

    for parallel, most in ((False, 1), (True, 500)):
        begun.clear()
        with pytest.raises(ObjectNotFound, match="the first"):
            each(work, range(1000), parallel=parallel)
        assert len(begun) <= most


@pytest.mark.parametrize(
    ("size", "held"),
    [(1, AHEAD_OBJECTS), (AHEAD_BYTES // 3, 3), (AHEAD_BYTES + 1, 1)],
)
def test_no_more_is_held_ahead_than_the_limits_say(size: int, held: int) -> None:
    fetched: list[str] = []
    for taken, _ in enumerate(_ahead(fetched.append, [(f"{number}", size) for number in range(20)]), 1):
        assert len(fetched) <= taken + held - 1
    assert sorted(fetched, key=int) == [f"{number}" for number in range(20)]


def _ahead(note: Callable[[str], None], objects: list[tuple[str, int]]) -> Iterator[None]:
    def fetch(key: str, copy: Path) -> None:
        note(key)
        copy.write_bytes(b"x")

    return fetched_ahead(fetch, objects, parallel=True)


def test_an_error_comes_in_its_turn() -> None:
    class Flaky(MemoryStore):
        parallel = True

        def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
            if key == "2":
                raise ValueError(key)
            return super().get(key, start, end)

    store = Flaky("m")
    for number in range(5):
        store.put(f"{number}", b"x")
    found = store.prefetch((f"{number}", 1) for number in range(5))
    assert next(found) is not None
    assert next(found) is not None
    with pytest.raises(ValueError, match="2"):
        next(found)
