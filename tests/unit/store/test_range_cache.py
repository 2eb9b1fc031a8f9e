"""Parts of objects: few requests, each part read once, and never one that is shorter than asked for."""

from __future__ import annotations

from alluvia.errors import Unavailable
from alluvia.store import ByteRange, CountingStore, MemoryStore
from alluvia.store.caches.range_cache import GAP_BYTES, RangeCache

DATA = bytes(range(256)) * 1024


def a_store(key: str = "a", data: bytes = DATA) -> CountingStore:
    inner = MemoryStore()
    inner.put(key, data)
    return CountingStore(inner)


def test_parts_that_lie_close_together_are_one_request_once() -> None:
    store, cache = a_store(), RangeCache()
    store.put("b", DATA)
    store.reset()
    parts = [ByteRange("a", 300, 310), ByteRange("a", 5, 10), ByteRange("b", 5, 10), ByteRange("a", 8, 20)]
    far = ByteRange("a", 310 + GAP_BYTES + 1, 310 + GAP_BYTES + 9)
    expected = {part: DATA[part.start : part.end] for part in [*parts, far]}
    assert cache.get(store, [*parts, far, far]) == expected
    assert sorted(key for _, key in store.keys) == ["a", "a", "b"]
    assert cache.get(store, [far, *parts]) == expected
    assert len(store.keys) == 3


def test_what_is_missing_or_too_short_is_left_out() -> None:
    store, cache = a_store(data=DATA[:100]), RangeCache()
    there, beyond = ByteRange("a", 0, 90), ByteRange("a", 95, 101)
    assert cache.get(store, [there, beyond, ByteRange("missing", 0, 5)]) == {there: DATA[:90]}


class Down(CountingStore):
    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        raise Unavailable(f"{key} {start} {end}")


def test_a_store_that_is_down_gives_nothing_and_another_store_other_parts() -> None:
    store, cache, part = a_store(), RangeCache(), ByteRange("a", 0, 3)
    assert cache.get(store, [part]) == {part: DATA[:3]}
    assert cache.get(a_store(data=b"xyz"), [part]) == {part: b"xyz"}
    assert cache.get(Down(store), [part]) == {}


def test_the_parts_used_least_recently_make_room() -> None:
    store, cache = a_store(), RangeCache(limit_bytes=30)
    parts = [ByteRange("a", number * 10, number * 10 + 10) for number in range(4)]
    cache.get(store, parts[:3])
    cache.get(store, parts[:1])
    cache.get(store, parts[3:])
    store.reset()
    cache.get(store, [parts[0], parts[2], parts[3]])
    assert store.keys == []
    cache.get(store, parts[1:2])
    assert len(store.keys) == 1
