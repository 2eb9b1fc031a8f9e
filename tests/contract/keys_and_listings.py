"""What every store guarantees of keys and listings: their order, and that none leads out."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from alluvia.errors import Invalid, ObjectNotFound
from alluvia.store import PutResult, Store

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


class KeysAndListings:
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
