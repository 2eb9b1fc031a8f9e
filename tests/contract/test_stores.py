"""What every store guarantees: one class of tests, which each store inherits."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

from alluvia.clock import SystemClock
from alluvia.errors import Invalid
from alluvia.store import CountingStore, DirectoryStore, MemoryStore, Store, WideStore, Wrapper, open_store
from alluvia.store.s3.bucket import S3Store
from tests.contract.keys_and_listings import KeysAndListings
from tests.contract.many_objects import ManyObjects
from tests.contract.one_object import OneObject
from tests.contract.workers import race
from tests.proved import proved
from tests.s3server import S3Endpoint, S3Server


class StoreContract(OneObject, KeysAndListings, ManyObjects):
    """Subclasses say which store, by a fixture `store`: empty and not shared with another test."""


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
