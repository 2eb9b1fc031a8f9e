"""What every store guarantees of one object: its bytes, ranges of them, and which of several writers wins."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from alluvia.clock import SystemClock
from alluvia.errors import Invalid, KeyTaken, ObjectNotFound
from alluvia.store import PutResult, Store


class OneObject:
    copies_on_condition = True
    """Whether a copy to a key that is taken is refused: a store of another maker may know no condition for copies."""
    shows_half_written = False
    """Whether listings may show what is being written, under names of the server's own."""

    def test_what_was_put_is_there(self, store: Store) -> None:
        store.put("a/b", b"one")
        assert store.get("a/b") == b"one"
        store.put("a/b", b"another")
        assert store.get("a/b") == b"another"

    def test_a_missing_object_is_named(self, store: Store) -> None:
        with pytest.raises(ObjectNotFound, match="a/missing"):
            store.get("a/missing")
        store.put("a", b"")
        with pytest.raises(ObjectNotFound):
            store.get("a/b")
        assert store.head("a/b") is None

    def test_an_object_may_come_in_parts(self, store: Store) -> None:
        sent = [bytes([number]) * (3 << 20) for number in range(4)]
        store.put_parts("a/large", iter(sent), {"Content-Type": "text/csv", "Content-Encoding": "gzip"})
        assert store.get("a/large") == b"".join(sent)
        store.put_parts("a/small", [b"", b"x"], {})
        assert store.get("a/small") == b"x"

    def test_an_object_is_not_there_if_its_parts_end_in_an_error(self, store: Store) -> None:
        def parts() -> Iterator[bytes]:
            yield b"x" * (9 << 20)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            store.put_parts("a/b", parts(), {})
        assert store.head("a/b") is None
        assert list(store.list("")) == []

    def test_a_copy_has_the_bytes_and_a_time_of_its_own(self, store: Store) -> None:
        store.put("a/b", b"one")
        store.copy("a/b", "c/d e.txt")
        store.put("a/b", b"another")
        assert store.get("c/d e.txt") == b"one"
        store.copy("a/b", "c/e")
        copied, source = store.head("c/e"), store.head("a/b")
        assert copied is not None
        assert source is not None
        assert copied.modified_ms >= source.modified_ms
        with pytest.raises(ObjectNotFound):
            store.copy("a/missing", "c/f")
        assert store.head("c/f") is None

    def test_a_copy_is_made_again_but_never_over_other_content(self, store: Store) -> None:
        store.put("a", b"one")
        store.put("b", b"two")
        for _ in range(2):
            store.copy("a", "c")
            assert store.get("c") == b"one"
        if self.copies_on_condition:
            with pytest.raises(KeyTaken, match="c exists already"):
                store.copy("b", "c")
            assert store.get("c") == b"one"

    def test_a_new_object_never_replaces_other_content(self, store: Store, tmp_path: Path) -> None:
        bodies = {"few": b"rows", "none": b"", "many": bytes(range(256)) * 10_000}
        for name, body in bodies.items():
            local = tmp_path / name
            local.write_bytes(body)
            attempts: dict[str, Callable[[str], None]] = {
                "bytes": lambda key, body=body: store.put_new(key, body),  # type: ignore[misc]
                "many": lambda key, body=body: store.put_new_many({key: body}),  # type: ignore[misc]
                "file": lambda key, local=local: store.put_new_file(key, local),  # type: ignore[misc]
            }
            for how, attempt in attempts.items():
                key = f"{name}/{how}"
                attempt(key)
                attempt(key)  # as after a lost answer
                assert store.get(key) == body
                for other in (body + b"x", b"x" + body[1:] if body else b"x", b"y"):
                    store.put(key, other)
                    with pytest.raises(KeyTaken, match=key):
                        attempt(key)
                    assert store.get(key) == other
                store.delete([key])
                attempt(key)
                assert store.get(key) == body

    def test_put_if_absent_never_replaces(self, store: Store) -> None:
        assert store.put_if_absent("k", b"first") is PutResult.CREATED
        assert store.put_if_absent("k", b"second") is PutResult.EXISTS
        assert store.get("k") == b"first"
        store.delete(["k"])
        assert store.put_if_absent("k", b"third") is PutResult.CREATED
        assert store.get("k") == b"third"

    def test_put_if_same_replaces_only_what_was_read(self, store: Store) -> None:
        store.put("k", b"first")
        data, tag = store.get_tagged("k")
        assert data == b"first"
        assert store.put_if_same("k", b"second", tag)
        assert store.get("k") == b"second"
        assert not store.put_if_same("k", b"third", tag)
        assert store.get("k") == b"second"
        _, tag = store.get_tagged("k")
        store.delete(["k"])
        assert not store.put_if_same("k", b"fourth", tag)
        assert store.head("k") is None
        with pytest.raises(ObjectNotFound, match="k"):
            store.get_tagged("k")

    def test_of_racing_threads_one_creates_the_object(self, store: Store) -> None:
        threads, rounds = 8, 10
        barrier = threading.Barrier(threads)

        def attempt(number: int, key: str) -> PutResult:
            barrier.wait()
            return store.put_if_absent(key, bytes([number]) * 1000)

        with ThreadPoolExecutor(threads) as pool:
            for round_ in range(rounds):
                key = f"race/{round_}"
                results = list(pool.map(attempt, range(threads), [key] * threads))
                (winner,) = [at for at, result in enumerate(results) if result is PutResult.CREATED]
                assert store.get(key) == bytes([winner]) * 1000

    def test_an_object_is_seen_whole_or_not_at_all(self, store: Store) -> None:
        bodies = [bytes([number]) * 300_000 for number in range(2)]
        keys = {f"new/{number}" for number in range(30)}
        stop = threading.Event()

        def write() -> None:
            for number in range(30):
                store.put("replaced", bodies[number % 2])
                store.put_if_absent(f"new/{number}", bodies[0])
            stop.set()

        store.put("replaced", bodies[0])
        with ThreadPoolExecutor(1) as pool:
            written = pool.submit(write)
            while not stop.is_set() and not written.done():
                assert store.get("replaced") in bodies
                for info in list(store.list("new/")):
                    if self.shows_half_written and info.key not in keys:
                        continue
                    assert info.key in keys
                    assert info.size == 300_000
                    assert store.get(info.key) == bodies[0]
            written.result()

    @pytest.mark.parametrize(
        ("start", "end", "expected"),
        [
            (0, None, b"0123456789"),
            (3, None, b"3456789"),
            (3, 5, b"34"),
            (0, 100, b"0123456789"),
            (9, 10, b"9"),
            (10, None, b""),
            (50, 60, b""),
            (4, 4, b""),
            (0, 0, b""),
            (5, 3, b""),
            (-3, None, b"789"),
            (-10, None, b"0123456789"),
            (-100, None, b"0123456789"),
        ],
    )
    def test_a_range_is_the_bytes_asked_for(self, store: Store, start: int, end: int | None, expected: bytes) -> None:
        store.put("digits", b"0123456789")
        assert store.get("digits", start, end) == expected

    @pytest.mark.parametrize(("start", "end"), [(0, None), (0, 5), (3, None), (-3, None)])
    def test_every_range_of_an_empty_object_is_empty(self, store: Store, start: int, end: int | None) -> None:
        store.put("empty", b"")
        assert store.get("empty", start, end) == b""

    def test_a_range_of_a_missing_object_is_an_error(self, store: Store) -> None:
        with pytest.raises(ObjectNotFound):
            store.get("missing", 4, 4)
        with pytest.raises(Invalid, match="takes no end"):
            store.get("missing", -4, 2)

    def test_head_tells_size_and_time(self, store: Store) -> None:
        store.put("a/b", b"12345")
        (listed,) = store.list("a/")
        assert store.head("a/b") == listed
        assert listed.size == 5
        assert abs(listed.modified_ms - SystemClock().now_ms()) < 120_000
        assert store.head("a") is None
        assert store.head("a/c") is None
