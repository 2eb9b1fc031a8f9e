from __future__ import annotations

from pathlib import Path

import pytest

from alluvia.clock import ManualClock
from alluvia.errors import Invalid, ObjectNotFound
from alluvia.store import CountingStore, DirectoryStore, MemoryStore, open_wide_store
from alluvia.store.uris import canonical_path, key_below


@pytest.mark.parametrize(
    ("path", "canonical"),
    [
        *(("file:/a/b", "/a/b"), ("file:///a b", "/a b"), ("FILE:///a", "/a"), ("/a", "/a")),
        *(("s3a://b/k", "s3://b/k"), ("s3n://b/k", "s3://b/k"), ("abfss://c@h/k", "abfss://c@h/k")),
        *(("part=file:x/y", "part=file:x/y"), ("a/b", "a/b")),
    ],
)
def test_a_path_has_one_form(path: str, canonical: str) -> None:
    assert canonical_path(path) == canonical


@pytest.mark.parametrize(
    ("path", "root", "key"),
    [
        *(
            ("s3://b/lake/t/x", "s3://b/lake", "t/x"),
            ("s3a://b/x", "s3://b", "x"),
            ("s3://b/lakes/x", "s3://b/lake", None),
        ),
        *(("/a b/c", "file:///a%20b", "c"), ("file:///a/c", "file:///a", "c"), ("/a", "file:///a", None)),
        *(("s3://other/lake/x", "s3://b/lake", None), ("/x", "file:///", "x")),
    ],
)
def test_a_key_is_what_lies_below_the_root(path: str, root: str, key: str | None) -> None:
    assert key_below(path, root) == key


def test_a_directory_finds_its_files_by_either_name(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    store = CountingStore(DirectoryStore(tmp_path / "link"))
    assert store.locate(f"file://{tmp_path}/link/t/x") == "t/x"
    assert store.locate(f"{tmp_path}/real/t/../u/x") == "u/x"
    assert store.locate(f"{tmp_path}/link/../secret") is None


def test_a_wide_store_reads_beside_its_root_and_writes_below_it(tmp_path: Path) -> None:
    store = open_wide_store(str(tmp_path / "lake"), ManualClock())
    outside = tmp_path / "other" / "x"
    outside.parent.mkdir()
    outside.write_bytes(b"abc")
    key = store.locate(f"file://{outside}")
    assert key == str(outside)
    assert (store.get(key, 1), store.url(key), store.local_path(key)) == (b"bc", key, outside)
    assert (store.get_tagged(key)[0], store.get_same(key, "another")) == (b"abc", None)
    store.get_file(key, tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == b"abc"
    found = store.head(key)
    assert found is not None
    assert found.size == 3
    store.put("t/x", b"1")
    inside = store.locate(f"{tmp_path}/lake/t/x")
    assert inside == "t/x"
    assert store.get(inside) == b"1"
    assert store.locate("s3://bucket/x") is None
    for write in (lambda: store.put(key, b""), lambda: store.put_if_absent(key, b""), lambda: store.delete([key])):
        with pytest.raises(Invalid):
            write()
    with pytest.raises(ObjectNotFound):
        store.get(f"{tmp_path}/none")


def test_a_memory_store_has_nothing_beside_it() -> None:
    assert isinstance(open_wide_store("memory://wide", ManualClock()), MemoryStore)
