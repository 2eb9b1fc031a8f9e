from __future__ import annotations

from pathlib import Path

import pytest

from alluvia.errors import ObjectNotFound
from alluvia.store import CountingStore, DirectoryStore, MemoryStore, PutResult


def test_requests_and_bytes_are_counted_by_kind(tmp_path: Path) -> None:
    store = CountingStore(MemoryStore("m"))
    store.put("a/1", b"12345")
    store.put_if_absent("a/2", b"123")
    assert store.put_if_absent("a/2", b"123") is PutResult.EXISTS
    store.get("a/1")
    store.get("a/1", 1, 3)
    store.head("a/1")
    with pytest.raises(ObjectNotFound):
        store.get("none")
    assert list(store.list_folders("")) == ["a"]
    local = tmp_path / "file"
    store.get_file("a/1", local)
    store.put_new_file("a/3", local)
    store.delete(["a/1", "a/2"])
    assert store.requests == {"put": 4, "get": 4, "head": 1, "list": 1, "delete": 1}
    assert store.bytes_written == 5 + 3 + 3 + 5
    assert store.bytes_read == 5 + 2 + 5
    store.reset()
    assert store.requests.total() == store.bytes_read == store.bytes_written == 0


@pytest.mark.parametrize(("keys", "pages"), [(0, 1), (1, 1), (1000, 1), (1001, 2), (2000, 2), (2001, 3)])
def test_a_listing_is_a_request_per_thousand_keys(keys: int, pages: int) -> None:
    inner = MemoryStore("m")
    for number in range(keys):
        inner.put(f"k/{number:05d}", b"")
    store = CountingStore(inner)
    assert len(list(store.list("k/"))) == keys
    assert store.requests == {"list": pages}


@pytest.mark.parametrize(("keys", "batches"), [(0, 0), (1, 1), (1000, 1), (1001, 2)])
def test_a_bulk_delete_is_a_request_per_thousand_keys(keys: int, batches: int) -> None:
    store = CountingStore(MemoryStore("m"))
    store.delete(f"k/{number}" for number in range(keys))
    assert store.requests.total() == batches


def test_the_rest_is_as_the_inner_store_has_it(tmp_path: Path) -> None:
    inner = DirectoryStore(tmp_path)
    store = CountingStore(inner)
    inner.put("a", b"12345")
    assert (store.uri, store.parallel, store.url("a")) == (inner.uri, inner.parallel, inner.url("a"))
    assert store.requests.total() == 0
    assert store.local_path("a") == tmp_path / "a"
    assert (store.requests, store.bytes_read) == ({"get": 1}, 5)
    assert CountingStore(MemoryStore("m")).local_path("a") is None
