"""Folders of a directory that hold nothing any more: vacuum removes them, and no writer fails because of it."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

import alluvia
from alluvia.store import DirectoryStore, flushed_files


def test_vacuum_removes_the_folders_of_partitions_that_are_gone(tmp_path: Path) -> None:
    table = alluvia.connect(str(tmp_path)).create_table(
        "t", {"p": "string", "q": "string", "n": "long"}, partition_by=["p", "q"]
    )
    table.append([{"p": p, "q": q, "n": 1} for p in "ab" for q in "xy"])
    table.delete("p = 'a' OR q = 'x'")
    table.vacuum(retention=timedelta(0))
    found = {str(path.relative_to(tmp_path / "t")) for path in (tmp_path / "t").glob("p=*/**") if path.is_dir()}
    assert found == {"p=b", "p=b/q=y"}
    table.append([{"p": "a", "q": "x", "n": 2}])
    assert sorted(row["n"] for row in table.to_arrow().to_pylist()) == [1, 2]
    assert (tmp_path / "t" / "_delta_log").is_dir()


def test_a_writer_whose_folder_is_removed_makes_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, made, removed = DirectoryStore(tmp_path), flushed_files._make_folder, list[Path]()

    def make_and_lose(path: Path) -> None:
        made(path)
        if len(removed) < 2:
            removed.append(path)
            path.rmdir()

    monkeypatch.setattr(flushed_files, "_make_folder", make_and_lose)
    store.put("t/p=a/file", b"rows")
    assert (store.get("t/p=a/file"), removed) == (b"rows", [tmp_path / "t" / "p=a"] * 2)


def test_a_sweep_keeps_its_own_folder_and_what_is_not_empty(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path)
    store.put("t/a/b/file", b"")
    (tmp_path / "t" / "c" / "d").mkdir(parents=True)
    (tmp_path / "u").mkdir()
    store.sweep("t/", 0)
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "t", "t/a", "t/a/b", "t/a/b/file", "u",
    ]  # fmt: skip
    store.delete(["t/a/b/file"])
    store.sweep("t/", 0)
    assert set(tmp_path.rglob("*")) == {tmp_path / "t", tmp_path / "u"}
