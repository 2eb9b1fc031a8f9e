"""What every store guarantees: one class of tests, which each store inherits."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from alluvia.clock import SystemClock
from alluvia.errors import Invalid, KeyTaken, ObjectNotFound
from alluvia.store import (
    ByteRange,
    CountingStore,
    DirectoryStore,
    MemoryStore,
    PutResult,
    Store,
    WideStore,
    Wrapper,
    open_store,
)
from alluvia.store.s3.bucket import S3Store
from tests.contract.workers import race
from tests.proved import proved
from tests.s3server import S3Endpoint, S3Server

ODD_KEYS = [
    "a b/c d.txt",
    "p=100%/x",
    "p=a%20b/x",
    "p=a%2520b/x",
    "é/ü/漢字/🌊",
    "#fragment/x#y",
    "what?/x?y=z",
    "a+b/x+y",
    'quote\'d/"x"',
    "a&b=c;d,e/@:!$()*",
    "[a]{b}^`|~/<x>",
    "..a/b..",
    "back\\slash/x",
]
ESCAPES = ["../x", "a/../x", "a/../../x", "a/..", "..", ".", "./a", "a/.", "/etc/passwd", "a//b", "", "a\0b", "a/"]


class StoreContract:
    """Subclasses say which store, by a fixture `store`: empty and not shared with another test."""

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

    def test_a_listing_is_in_the_order_of_utf8(self, store: Store) -> None:
        keys = ["a-b/x", "a/x", "a/y", "a.txt", "a0", "b", "Z", "é", "\uff5a", "a/b/c", "a b"]
        for key in keys:
            store.put(key, key.encode())
        found = list(store.list(""))
        assert [info.key for info in found] == sorted(keys, key=str.encode)
        assert [info.size for info in found] == [len(info.key.encode()) for info in found]
        assert [info.key for info in store.list("a/")] == ["a/b/c", "a/x", "a/y"]
        assert [info.key for info in store.list("a")] == ["a b", "a-b/x", "a.txt", "a/b/c", "a/x", "a/y", "a0"]
        assert [info.key for info in store.list("a/", "a/b/c")] == ["a/x", "a/y"]
        assert [info.key for info in store.list("a/", "a/b")] == ["a/b/c", "a/x", "a/y"]
        assert [info.key for info in store.list("a/", "a/z")] == []
        assert [info.key for info in store.list("", "a0")] == ["b", "é", "\uff5a"]
        assert list(store.list("none/")) == []

    def test_more_keys_than_a_page_are_listed_and_deleted(self, store: Store) -> None:
        keys = [f"many/{number:05d}" for number in range(1_003)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: store.put(key, b""), [*keys, "kept"]))
        assert [info.key for info in store.list("many/")] == keys
        assert [info.key for info in store.list("many/", keys[1])] == keys[2:]
        store.delete([*keys, "many/absent"])
        assert [info.key for info in store.list("")] == ["kept"]

    def test_folders_are_those_directly_below(self, store: Store) -> None:
        for key in ("top", "b/x", "a/x/y", "a/z", "a b/c", "é/x"):
            store.put(key, b"")
        assert list(store.list_folders("")) == ["a b", "a", "b", "é"]  # as their keys sort: a slash after a space
        assert list(store.list_folders("a/")) == ["x"]
        assert list(store.list_folders("none/")) == []
        store.delete(["b/x"])
        assert list(store.list_folders("")) == ["a b", "a", "é"]

    def test_deleting_what_is_absent_is_fine(self, store: Store) -> None:
        store.put("a/b", b"")
        store.delete(["a/b", "a/c", "none/x", "a/b/c"])
        store.delete([])
        assert store.head("a/b") is None
        assert list(store.list("")) == []

    def test_what_was_listed_is_read_until_it_is_written_again(self, store: Store) -> None:
        store.put_new_many({"a/b": b"0123456789", "a/empty": b""})
        listed, empty = store.list("a/")
        assert store.get_same("a/b", listed.etag) == b"0123456789"
        assert store.get_same("a/b", listed.etag, 2, 4) == b"23"
        assert store.get_same("a/b", listed.etag, -1) == b"9"
        assert store.get_same("a/b", listed.etag, 50, 60) == b""
        assert store.get_same("a/empty", empty.etag, 0, 5) == b""
        (page,) = store.list_pages("a/")
        assert list(page.infos()) == [listed, empty]
        store.put("a/b", b"9876543210")
        assert store.get_same("a/b", listed.etag, 2, 4) is None
        assert store.get_same("a/b", listed.etag) is None
        with pytest.raises(ObjectNotFound, match="a/c"):
            store.get_same("a/c", listed.etag)

    def test_pages_hold_what_a_listing_does(self, store: Store) -> None:
        store.put_new_many({f"a/{name}": b"x" * size for size, name in enumerate(("b", "c d", "e/f", "p=%20", "é"), 1)})
        store.put_new_many({"A": b"1", "ab/c": b"1"})
        for prefix, after in (("a/", None), ("a/", "a/c d"), ("a/e/", None), ("a/", "a/é"), ("none/", None)):
            found = [info for page in store.list_pages(prefix, after) for info in page.infos()]
            assert found == list(store.list(prefix, after))
        (page,) = store.list_pages("a/", "a/b")
        assert page.keys.to_pylist() == ["a/c d", "a/e/f", "a/p=%20", "a/é"]
        assert page.sizes.to_pylist() == [2, 3, 4, 5]

    def test_head_tells_size_and_time(self, store: Store) -> None:
        store.put("a/b", b"12345")
        (listed,) = store.list("a/")
        assert store.head("a/b") == listed
        assert listed.size == 5
        assert abs(listed.modified_ms - SystemClock().now_ms()) < 120_000
        assert store.head("a") is None
        assert store.head("a/c") is None

    @pytest.mark.parametrize("key", ODD_KEYS)
    def test_a_key_is_taken_as_it_is(self, store: Store, key: str, tmp_path: Path) -> None:
        assert store.put_if_absent(key, b"odd") is PutResult.CREATED
        assert store.put_if_absent(key, b"odd") is PutResult.EXISTS
        assert store.get(key) == b"odd"
        assert store.get(key, 1) == b"dd"
        assert store.head(key) is not None
        folder, _, name = key.partition("/")
        assert [info.key for info in store.list("")] == [key]
        assert [info.key for info in store.list(f"{folder}/{name[:1]}")] == [key]
        assert list(store.list_folders("")) == [folder]
        store.get_file(key, tmp_path / "copy")
        assert (tmp_path / "copy").read_bytes() == b"odd"
        store.delete([key])
        assert list(store.list("")) == []

    @pytest.mark.parametrize("key", ESCAPES)
    def test_a_key_cannot_lead_out(self, store: Store, key: str, tmp_path: Path) -> None:
        local = tmp_path / "file"
        local.write_bytes(b"x")
        attempts: list[Callable[[], object]] = [
            lambda: store.get(key),
            lambda: store.get_same(key, "etag"),
            lambda: store.put(key, b""),
            lambda: store.put_if_absent(key, b""),
            lambda: store.put_new(key, b""),
            lambda: store.head(key),
            lambda: store.delete([key]),
            lambda: store.get_file(key, local),
            lambda: store.put_new_file(key, local),
        ]
        for attempt in attempts:
            with pytest.raises(Invalid, match="object key"):
                attempt()

    @pytest.mark.parametrize("prefix", ["../", "a/../", "a/../../b", "/", "/etc/", "a//"])
    def test_a_listing_cannot_lead_out(self, store: Store, prefix: str) -> None:
        with pytest.raises(Invalid):
            list(store.list(prefix))
        with pytest.raises(Invalid):
            list(store.list_folders(prefix))

    def test_a_file_goes_in_and_comes_out(self, store: Store, tmp_path: Path) -> None:
        source, target = tmp_path / "in", tmp_path / "out"
        source.write_bytes(bytes(range(256)) * 10_000)
        store.put_new_file("big/file", source)
        store.get_file("big/file", target)
        assert target.read_bytes() == source.read_bytes()
        assert store.get("big/file") == source.read_bytes()
        source.write_bytes(b"")
        store.put_new_file("big/empty", source)
        store.get_file("big/empty", target)
        assert target.read_bytes() == b""
        with pytest.raises(ObjectNotFound):
            store.get_file("big/none", target)

    @pytest.mark.parametrize("count", [0, 1, 2, 40])
    def test_many_objects_are_written_and_read_in_order(self, store: Store, count: int, tmp_path: Path) -> None:
        objects = {f"many/{number * 7 % 40}": b"%d" % number * (number + 1) for number in range(count)}
        store.put_new_many(objects)
        assert {info.key: info.size for info in store.list("many/")} == {key: len(objects[key]) for key in objects}
        assert list(store.get_many(map(ByteRange, objects))) == list(objects.values())
        assert list(store.map(store.head, objects)) == [store.head(key) for key in objects]
        assert list(store.map_ahead(store.head, objects)) == [store.head(key) for key in objects]
        files = {key: tmp_path / str(at) for at, key in enumerate(objects)}
        store.get_files(files)
        assert [path.read_bytes() for path in files.values()] == list(objects.values())

    def test_many_ranges_are_the_bytes_asked_for(self, store: Store) -> None:
        store.put("digits", b"0123456789")
        wanted = [ByteRange("digits", 3, 5), ByteRange("digits"), ByteRange("digits", -2), ByteRange("digits", 4, 4)]
        assert list(store.get_many(wanted)) == [b"34", b"0123456789", b"89", b""]

    def test_the_first_of_many_that_fails_is_named(self, store: Store, tmp_path: Path) -> None:
        store.put_new_many({"a": b"1", "b": b"2"})
        with pytest.raises(ObjectNotFound, match="none/1"):
            store.get_many(map(ByteRange, ["a", "none/1", "b", "none/2"]))
        with pytest.raises(ObjectNotFound, match="none/1"):
            store.get_files({key: tmp_path / key.replace("/", "-") for key in ("a", "none/1", "none/2")})
        with pytest.raises(Invalid, match="object key"):
            store.put_new_many({"c": b"3", "../c": b"4"})

    @pytest.mark.parametrize("count", [0, 1, 2, 30])
    def test_objects_come_as_files_each_until_the_next(self, store: Store, count: int) -> None:
        bodies = {f"ahead/{number}": b"%d" % number for number in range(count)}
        store.put_new_many(bodies)
        there: list[Path] = []
        for path, body in zip(store.prefetch((key, 1) for key in bodies), bodies.values(), strict=True):
            assert path is not None
            assert path.read_bytes() == body
            assert store.local_path("ahead/0") is not None or not any(before.exists() for before in there)
            there.append(path)
        assert {info.key for info in store.list("ahead/")} == bodies.keys()
        assert [path for path in there if path.exists()] == [path for path in map(store.local_path, bodies) if path]

    def test_a_missing_file_is_none_and_the_others_come(self, store: Store) -> None:
        store.put_new_many({"a": b"1", "c": b"3"})
        found = store.prefetch([("a", 1), ("b", 1), ("c", 1), ("d", 1)])
        assert [path and path.read_bytes() for path in found] == [b"1", None, b"3", None]

    def test_who_stops_early_leaves_no_file(self, store: Store) -> None:
        store.put_new_many({f"{number}": b"1" for number in range(20)})
        found = store.prefetch((f"{number}", 1) for number in range(20))
        assert isinstance(found, Generator)
        path = next(found)
        assert path is not None
        found.close()
        assert path.exists() == (store.local_path("0") is not None)


class AmongProcesses:
    """For the stores that processes can share. `uri` and `options` say where."""

    @pytest.mark.slow
    def test_of_racing_processes_one_creates_each_object(self, store: Store, options: dict[str, str]) -> None:
        keys = [f"race/{number}" for number in range(60)]
        contents = [f"process {number}" for number in range(6)]
        jobs = [
            ("put_if_absent", {"uri": store.uri, "options": options, "keys": keys, "content": text})
            for text in contents
        ]
        won = race(jobs)
        assert sorted(key for each in won for key in each) == sorted(keys)
        for content, mine in zip(contents, won, strict=True):
            assert {store.get(key) for key in mine} <= {content.encode()}


class BeyondSixteenBits:
    """For the stores that list every key in the order of UTF-8, as S3 does: UTF-16 has another beyond 16 bits."""

    def test_a_listing_is_in_the_order_of_utf8_and_not_of_utf16(self, store: Store) -> None:
        for key in ("\uff5a", "🌊"):
            store.put(key, b"")
        assert [info.key for info in store.list("")] == ["\uff5a", "🌊"]
        assert [info.key for info in store.list("", "\uff5a")] == ["🌊"]


class TestMemory(StoreContract, BeyondSixteenBits):
    @pytest.fixture
    def store(self) -> Store:
        return MemoryStore("test")


class TestWrapper(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return Wrapper(MemoryStore("test"))

    def test_it_passes_on_all_that_is_for_one_object(self) -> None:
        for_many = {"list_pages", "map", "map_ahead", "get_many", "put_new_many", "get_files", "prefetch"}
        methods = {name for name, value in vars(Store).items() if callable(value) and not name.startswith("_")}
        assert methods - for_many <= vars(Wrapper).keys()
        for wrapper in (CountingStore, WideStore):
            assert vars(wrapper).keys().isdisjoint(for_many)


class SignsUrls:
    """Of stores whose objects others may be let at by a URL."""

    def test_a_signed_url_needs_no_keys(self, store: Store) -> None:
        for key in ("a b/c d.txt", "p=a%20b/é?x=y&z#"):
            url = store.signed_url("PUT", key, 60)
            assert url is not None
            with urlopen(Request(url, b"sent", {"Content-Type": "text/plain"}, method="PUT"), timeout=30) as answer:
                assert answer.status == 200
            url = store.signed_url("GET", key, 60)
            assert url is not None
            with urlopen(url, timeout=30) as answer:
                assert answer.read() == b"sent"
            with urlopen(Request(url, headers={"Range": "bytes=1-2"}), timeout=30) as answer:
                assert (answer.status, answer.read()) == (206, b"en")


class TestCounting(StoreContract):
    @pytest.fixture
    def store(self) -> Store:
        return CountingStore(MemoryStore("test"))


class TestWide(StoreContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return WideStore(DirectoryStore(tmp_path / "lake"), DirectoryStore(tmp_path))


class TestDirectory(StoreContract, AmongProcesses, BeyondSixteenBits):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return DirectoryStore(tmp_path / "a lake [1]")

    @pytest.fixture
    def options(self) -> dict[str, str]:
        return {}


class TestS3(StoreContract, AmongProcesses, BeyondSixteenBits, SignsUrls):
    @pytest.fixture
    def store(self, s3_server: S3Server) -> Store:
        return proved(open_store(f"s3://{s3_server.new_bucket()}/some/lake", SystemClock(), **s3_server.options))

    @pytest.fixture
    def options(self, s3_server: S3Server) -> dict[str, str]:
        return s3_server.options

    def test_the_marks_of_folders_are_no_objects(self, store: Store, s3_server: S3Server) -> None:
        """Consoles and Hadoop leave empty objects whose names end in a slash."""
        assert isinstance(store, S3Store)
        for key in ("", "a/", "a/b/", "a/none/", "a-c/"):
            s3_server.client.put_object(Bucket=store.bucket, Key=f"some/lake/{key}", Body=b"")
        for key in ("a/b/x", "a-b", "a/empty", "z"):
            store.put(key, b"" if key == "a/empty" else b"x")
        assert [info.key for info in store.list("")] == ["a-b", "a/b/x", "a/empty", "z"]
        assert [info.key for info in store.list("a/")] == ["a/b/x", "a/empty"]
        assert list(store.list_folders("")) == ["a-c", "a"]
        for key, folder in (("a//x", "a"), ("b/./x", "b"), ("c/../x", "c"), ("d/\x07", "d")):
            s3_server.client.put_object(Bucket=store.bucket, Key=f"some/lake/{key}", Body=b"")
            with pytest.raises(
                Invalid, match=rf"cannot list some/lake/{folder} in the bucket .*{re.escape(repr(key)[1:])} has"
            ):
                list(store.list(f"{folder}/"))

    def test_a_lost_answer_to_a_new_object_is_recognised_by_content(self, store: Store, s3_server: S3Server) -> None:
        s3_server.requests()
        s3_server.inject({"method": "PUT", "match": "/lost$", "fault": "lost", "times": 1})
        store.put_new("lost", b"rows")
        assert store.get("lost") == b"rows"
        assert s3_server.requests() == {"PUT": 2, "GET": 2}

    def test_copies_go_on_where_no_condition_is_known(self, store: Store, s3_server: S3Server) -> None:
        store.put("a", b"one")
        s3_server.requests()
        s3_server.inject({"method": "PUT", "match": "/copied$", "fault": "status:501", "times": 1})
        store.copy("a", "copied")
        assert s3_server.requests() == {"PUT": 2}
        assert store.get("copied") == b"one"

    def test_parts_are_sent_again_and_a_failed_upload_leaves_none(self, store: Store, s3_server: S3Server) -> None:
        assert isinstance(store, S3Store)
        s3_server.inject({"method": "PUT", "match": "/once$", "fault": "status:503", "times": 1})
        store.put_parts("once", [b"x" * (9 << 20)], {"Content-Type": "text/csv", "Content-Encoding": "gzip"})
        told = s3_server.client.head_object(Bucket=store.bucket, Key="some/lake/once")
        assert (told["ContentType"], told["ContentEncoding"], told["ContentLength"]) == ("text/csv", "gzip", 9 << 20)
        s3_server.inject({"method": "PUT", "match": "/never$", "fault": "status:403", "times": 9})
        with pytest.raises(Invalid, match="S3 refuses never"):
            store.put_parts("never", [b"x" * (9 << 20)], {})
        s3_server.inject()
        assert "Uploads" not in s3_server.client.list_multipart_uploads(Bucket=store.bucket)

    @pytest.mark.slow
    def test_more_keys_than_a_page_are_listed_and_deleted(self, store: Store) -> None:
        super().test_more_keys_than_a_page_are_listed_and_deleted(store)

    @pytest.mark.slow
    def test_a_listing_goes_on_after_a_page_that_failed(self, store: Store, s3_server: S3Server) -> None:
        keys = [f"many/{number:05d}" for number in range(1_003)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda key: store.put(key, b"x"), keys))
        listing = store.list("many/")
        found = [next(listing).key]
        s3_server.inject({"method": "GET", "match": ".", "fault": "status:503", "times": 2})
        assert found + [info.key for info in listing] == keys
        pages = store.list_pages("many/")
        found = next(pages).keys.to_pylist()
        s3_server.inject({"method": "GET", "match": ".", "fault": "status:503", "times": 2})
        assert found + [key for page in pages for key in page.keys.to_pylist()] == keys
        s3_server.requests()
        assert len(list(store.list("many/"))) == len(keys)
        assert s3_server.requests() == {"LIST": 2}
        assert [len(page.keys) for page in store.list_pages("many/")] == [1000, 3]
        assert s3_server.requests() == {"LIST": 2}


@pytest.mark.slow
class TestS3Proxy(StoreContract, AmongProcesses, SignsUrls):
    copies_on_condition = False
    shows_half_written = True

    @pytest.fixture
    def store(self, s3proxy: S3Endpoint) -> Store:
        return proved(open_store(f"s3://{s3proxy.new_bucket()}/some/lake", SystemClock(), **s3proxy.options))

    @pytest.fixture
    def options(self, s3proxy: S3Endpoint) -> dict[str, str]:
        return s3proxy.options
