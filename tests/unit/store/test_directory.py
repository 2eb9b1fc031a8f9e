"""The directory store's own promises: flushed to the disk, in the right order, and clean after a crash."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from alluvia.errors import AnswerLost, Invalid, ObjectNotFound, StoreRefused, Unavailable
from alluvia.store import DirectoryStore, PutResult


@pytest.fixture
def store(tmp_path: Path) -> DirectoryStore:
    return DirectoryStore(tmp_path / "lake")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the calls that change the disk: what is flushed, linked, renamed."""
    found: list[str] = []
    fsync = os.fsync

    def recorded_fsync(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        kind = "folder" if stat.S_ISDIR(os.fstat(descriptor).st_mode) else "file"
        name = path.name if kind == "folder" else path.name.split(".")[0]
        found.append(f"fsync {kind} {name}")
        fsync(descriptor)

    def recorded(name: str) -> None:
        original: Callable[..., Any] = getattr(os, name)

        def wrapper(source: Any, target: Any, *rest: Any, **keywords: Any) -> Any:
            found.append(f"{name} to {Path(target).name}")
            return original(source, target, *rest, **keywords)

        monkeypatch.setattr(os, name, wrapper)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    recorded("link")
    recorded("replace")
    return found


def test_a_conditional_put_is_flushed_before_and_after_it_gets_its_name(
    store: DirectoryStore, calls: list[str]
) -> None:
    store.put("log/0", b"")
    calls.clear()
    store.put_if_absent("log/1", b"commit")
    assert calls == ["fsync file 1", "link to 1", "fsync folder log"]


def test_a_put_is_flushed_before_and_after_it_gets_its_name(
    store: DirectoryStore, calls: list[str], tmp_path: Path
) -> None:
    store.put("log/0", b"")
    calls.clear()
    store.put("log/1", b"data")
    assert calls == ["fsync file 1", "replace to 1", "fsync folder log"]
    calls.clear()
    (tmp_path / "local").write_bytes(b"x")
    store.put_new_file("log/2", tmp_path / "local")
    assert calls.pop(0).startswith("link to 2.")
    assert calls == ["fsync file 2", "link to 2", "fsync folder log"]


def test_a_file_of_the_same_file_system_is_not_copied(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    local = tmp_path / "local"
    local.write_bytes(b"rows")
    store.put_new_file("linked", local)
    assert (tmp_path / "lake" / "linked").samefile(local)

    link = os.link

    def refused(source: Path, target: Path, **folders: Any) -> None:
        if source == local:
            raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))
        link(source, target, **folders)

    monkeypatch.setattr(os, "link", refused)
    store.put_new_file("copied", local)
    assert not (tmp_path / "lake" / "copied").samefile(local)
    local.unlink()
    assert store.get("linked") == store.get("copied") == b"rows"
    assert sorted(info.key for info in store.list("")) == ["copied", "linked"]


def test_the_names_of_new_folders_are_flushed_too(store: DirectoryStore, calls: list[str], tmp_path: Path) -> None:
    store.put_if_absent("a/b/c", b"")
    assert calls == [
        "fsync folder a",
        "fsync folder lake",
        f"fsync folder {tmp_path.name}",
        "fsync file c",
        "link to c",
        "fsync folder b",
    ]


def test_temporary_files_are_no_objects(store: DirectoryStore, tmp_path: Path) -> None:
    store.put("a/kept", b"")
    leftover = tmp_path / "lake" / "a" / f"x.{'0' * 32}.tmp"
    leftover.write_bytes(b"half")
    assert [info.key for info in store.list("")] == ["a/kept"]
    leftover.rename(tmp_path / "lake" / f"x.{'0' * 32}.tmp")
    assert list(store.list_folders("")) == ["a"]
    with pytest.raises(Invalid, match="temporary"):
        store.get(f"x.{'0' * 32}.tmp")
    with pytest.raises(Invalid, match="temporary"):
        store.put(f"x.{'0' * 32}.tmp", b"")


def test_sweeping_takes_old_temporary_files_only(store: DirectoryStore, tmp_path: Path) -> None:
    store.put("t/a.tmp", b"")
    store.put("other/a", b"")
    names = [f"x.{number:032x}.tmp" for number in range(2)]
    for folder in ("t", "other"):
        for name, seconds in zip(names, (1000, 2000), strict=True):
            path = tmp_path / "lake" / folder / name
            path.write_bytes(b"")
            os.utime(path, (seconds, seconds))
    store.sweep("t/", 1_500_000)
    left = sorted(str(path.relative_to(tmp_path / "lake")) for path in (tmp_path / "lake").rglob("*.tmp"))
    assert left == sorted([f"t/{names[1]}", "t/a.tmp", f"other/{names[0]}", f"other/{names[1]}"])


def test_a_full_disk_leaves_no_trace(store: DirectoryStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store.put("a", b"old")
    (tmp_path / "local").write_bytes(b"x")

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        for attempt in (
            lambda: store.put("a", b"new"),
            lambda: store.put_if_absent("b", b"new"),
            lambda: store.put_new_file("c", tmp_path / "local"),
        ):
            with pytest.raises(Unavailable, match="No space left"):
                attempt()
    assert [path.name for path in (tmp_path / "lake").iterdir()] == ["a"]
    assert store.get("a") == b"old"


def test_nothing_is_stored_if_a_part_cannot_be_read(store: DirectoryStore, tmp_path: Path) -> None:
    def parts() -> Iterator[bytes]:
        yield b"first"
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), "second")

    store.put("a", b"old")
    with pytest.raises(Unavailable, match="cannot write a: No such file"):
        store.put_parts("a", parts(), {})
    assert [path.name for path in (tmp_path / "lake").iterdir()] == ["a"]
    assert store.get("a") == b"old"


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.EPERM])
def test_what_the_machines_operator_must_mend_is_told_apart(
    number: int, store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StoreRefused, match=f"cannot write a: {os.strerror(number)}"):
        store.put("a", b"")


def test_a_commit_whose_folder_cannot_be_flushed_is_no_clear_answer(
    store: DirectoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put("log/0", b"")
    fsync = os.fsync

    def fails_on_folders(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fails_on_folders)
    with pytest.raises(AnswerLost, match="log/1"):
        store.put_if_absent("log/1", b"commit")
    assert store.get("log/1") == b"commit"


def test_a_key_that_the_file_system_cannot_hold_is_the_callers_fault(store: DirectoryStore, tmp_path: Path) -> None:
    store.put("a", b"")
    (tmp_path / "local").write_bytes(b"x")
    long = "x" * 300
    for key in (long, f"{long}/b", "a/b"):
        for attempt in (
            lambda key=key: store.put(key, b""),
            lambda key=key: store.put_if_absent(key, b""),
            lambda key=key: store.put_new_file(key, tmp_path / "local"),
        ):
            with pytest.raises(Invalid, match="cannot write"):
                attempt()
        with pytest.raises(ObjectNotFound):
            store.get(key)
        assert store.head(key) is None
        store.delete([key])
    store.put("folder/x", b"")
    with pytest.raises(Invalid, match="cannot write"):
        store.put_if_absent("folder", b"")
    assert store.put_if_absent("x" * 255, b"as long as a name may be") is PutResult.CREATED


def test_its_url_is_the_files_path(store: DirectoryStore, tmp_path: Path) -> None:
    store.put("a b/c%20d", b"x")
    url = store.url("a b/c%20d")
    assert url == str(tmp_path / "lake" / "a b" / "c%20d")
    assert Path(url).read_bytes() == b"x"
    assert store.local_path("a b/c%20d") == Path(url)
    with pytest.raises(ObjectNotFound):
        store.local_path("a b/none")
    with pytest.raises(Invalid):
        store.url("../x")


def test_a_root_that_does_not_exist_is_an_empty_store(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "none")
    assert list(store.list("")) == []
    assert list(store.list_folders("")) == []
    assert store.head("x") is None
    assert not (tmp_path / "none").exists()


def test_a_file_whose_name_is_not_utf8_is_named_where_keys_are_columns(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path) + b"/t/caf\xe9.parquet")).write_bytes(b"")
    with pytest.raises(Invalid, match=r"t/caf\\udce9.parquet': the name of this file is not UTF-8"):
        list(DirectoryStore(tmp_path).list_pages("t/"))
