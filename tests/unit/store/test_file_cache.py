"""Copies of small data files: fetched once, within a limit, for an hour, and never others than were asked for."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from alluvia.errors import ObjectNotFound, Unavailable
from alluvia.store import CountingStore, MemoryStore, Wrapper
from alluvia.store.caches.file_cache import FileCache, RemoteFile
from alluvia.store.caches.range_cache import KEPT_SECONDS

LIMIT = 100


class Far(CountingStore):
    """A store beyond a network, with objects of ten bytes."""

    def __init__(self, count: int = 20, fill: bytes = b"x") -> None:
        inner = MemoryStore()
        for number in range(count):
            inner.put(f"{number}", fill * 10)
        super().__init__(inner)
        self.parallel = True

    def fetched(self) -> list[str]:
        """Return the keys that were asked for since the last call."""
        found = [key for _, key in self.keys]
        self.reset()
        return sorted(found, key=int)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def files(*numbers: int) -> list[RemoteFile]:
    return [RemoteFile(f"{number}", 10, 5) for number in numbers]


@pytest.fixture(autouse=True)
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("alluvia.store.caches.file_cache.scratch_root", lambda: tmp_path)
    return tmp_path


@pytest.fixture
def cache() -> FileCache:
    return FileCache()


def use(cache: FileCache, store: Far, *numbers: int, limit: int = LIMIT) -> list[str]:
    """Hold copies and release them; return which there were."""
    held = cache.hold(store, files(*numbers), limit)
    assert all(path.read_bytes() == store.inner.get(key) for key, path in held.paths.items())
    held.release()
    return list(held.paths)


def test_a_file_is_fetched_once_with_one_request(cache: FileCache) -> None:
    store = Far()
    assert use(cache, store, 0, 1, 2, 1) == ["0", "1", "2"]
    assert store.fetched() == ["0", "1", "2"]
    assert use(cache, store, 2, 3) == ["2", "3"]
    assert store.fetched() == ["3"]


def test_the_copies_used_least_recently_make_room(cache: FileCache) -> None:
    store = Far()
    use(cache, store, *range(10))
    use(cache, store, 0, 1)
    use(cache, store, 10, 11)
    assert cache.held_bytes == LIMIT
    store.fetched()
    use(cache, store, 0, 1, *range(4, 12))
    assert store.fetched() == []
    use(cache, store, 2, 3)
    assert store.fetched() == ["2", "3"]


def test_what_is_held_stays_and_what_finds_no_room_has_no_copy(cache: FileCache) -> None:
    store = Far()
    held = cache.hold(store, files(*range(8)), LIMIT)
    assert use(cache, store, 7, *range(10, 15)) == ["7", "10", "11"]
    assert all(path.is_file() for path in held.paths.values())
    assert cache.held_bytes == LIMIT
    held.release()
    held.release()
    assert use(cache, store, *range(10, 18), limit=70) == [str(number) for number in range(10, 17)]
    assert cache.held_bytes == 70
    assert use(cache, store, 1, limit=0) == []
    assert cache.held_bytes == 70


def test_a_negative_size_in_a_log_makes_no_room(cache: FileCache) -> None:
    store = Far()
    hostile = RemoteFile("0", -(1 << 62), 5)
    held = cache.hold(store, [hostile, *files(*range(1, 15))], LIMIT)
    assert list(held.paths) == [str(number) for number in range(1, 11)]
    assert cache.held_bytes == LIMIT


def test_copies_are_deleted_after_an_hour() -> None:
    clock = Clock()
    cache, store = FileCache(clock), Far()
    use(cache, store, 0)
    clock.now += KEPT_SECONDS / 2
    held = cache.hold(store, files(1), LIMIT)
    clock.now += KEPT_SECONDS / 2
    use(cache, store, 2)
    assert cache.held_bytes == 20
    clock.now += KEPT_SECONDS / 2
    cache._look_at_age()
    assert cache.held_bytes == 20
    held.release()
    clock.now += KEPT_SECONDS / 2
    cache._look_at_age()
    assert cache.held_bytes == 0
    (folder,) = {path.parent for path in held.paths.values()}
    assert list(folder.iterdir()) == []


def test_a_file_of_another_store_size_or_time_is_another_file(cache: FileCache) -> None:
    store, other = Far(), Far(fill=b"y")
    use(cache, store, 0)
    use(cache, other, 0)
    store.fetched()
    cache.hold(store, [RemoteFile("0", 10, 6)], LIMIT).release()
    assert store.fetched() == ["0"]


@pytest.mark.parametrize("size", [9, 11])
def test_an_object_that_is_not_as_long_as_the_log_says_has_no_copy(cache: FileCache, size: int) -> None:
    store = Far()
    assert cache.hold(store, [RemoteFile("0", size, 5)], LIMIT).paths == {}
    assert store.bytes_read <= size + 1
    assert cache.held_bytes == 0


@pytest.mark.parametrize("damage", [lambda path: path.write_bytes(b"z" * 10), Path.unlink])
def test_a_copy_that_was_changed_is_not_used_again(cache: FileCache, damage: Callable[[Path], object]) -> None:
    store = Far()
    held = cache.hold(store, files(0), LIMIT)
    held.release()
    held.paths["0"].chmod(0o600)
    damage(held.paths["0"])
    assert use(cache, store, 0) == ["0"]
    assert store.fetched() == ["0", "0"]


def test_only_their_user_may_read_copies_and_nobody_write_them(cache: FileCache, scratch: Path) -> None:
    held = cache.hold(Far(), files(0), LIMIT)
    path = held.paths["0"]
    assert path.stat().st_mode & 0o777 == 0o400
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert path.parent.parent == scratch


class Failing(Far):
    """Fails for some keys."""

    error: Exception = Unavailable("down")

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        if int(key) % 2:
            raise self.error
        return super().get(key, start, end)


@pytest.mark.parametrize("error", [Unavailable("down"), ObjectNotFound("1"), OSError(28, "No space left on device")])
def test_what_cannot_be_fetched_has_no_copy(cache: FileCache, error: Exception) -> None:
    store = Failing()
    store.error = error
    assert use(cache, store, 0, 1, 2, 3) == ["0", "2"]
    assert cache.held_bytes == 20


def test_a_disk_that_is_full_leaves_nothing_behind(cache: FileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    held = cache.hold(Far(), files(0), LIMIT)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fdopen", full)
    assert cache.hold(Far(), files(1), LIMIT).paths == {}
    assert [*held.paths["0"].parent.iterdir()] == [held.paths["0"]]


class Slow(Wrapper):
    """Answers when it is told to."""

    def __init__(self) -> None:
        super().__init__(Far(100))
        self.asked, self.go = Event(), Event()

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        self.asked.set()
        assert self.go.wait(20)
        return super().get(key, start, end)


def test_who_gives_up_waits_for_nothing_and_starts_nothing_more(cache: FileCache) -> None:
    store = Slow()

    def check() -> None:
        if store.asked.is_set():
            raise TimeoutError

    with pytest.raises(TimeoutError):
        cache.hold(store, files(*range(100)), 1000, check)
    store.go.set()
    held = cache.hold(store, files(99), 1000)  # by now those that were sent have come, or come soon
    assert list(held.paths) == ["99"]
    assert isinstance(store.inner, Far)
    assert len(store.inner.keys) <= 17


def test_threads_that_want_one_file_fetch_it_once(cache: FileCache) -> None:
    store = Slow()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(cache.hold, store, files(0, 1), 1000)
        assert store.asked.wait(20)
        second = pool.submit(cache.hold, store, files(0, 1), 1000)
        store.go.set()
        assert list(first.result().paths) == list(second.result().paths) == ["0", "1"]
    assert isinstance(store.inner, Far)
    assert store.inner.fetched() == ["0", "1"]


def test_a_fork_does_not_use_its_parents_copies(cache: FileCache, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Far()
    use(cache, store, 0)
    monkeypatch.setattr(cache, "_owner", os.getpid() + 1)
    use(cache, store, 0)
    assert store.fetched() == ["0", "0"]
