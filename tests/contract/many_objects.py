"""What every store guarantees of many objects at once, and of files."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from alluvia.errors import Invalid, ObjectNotFound
from alluvia.store import ByteRange, Store


class ManyObjects:
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
