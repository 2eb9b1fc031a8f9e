"""Objects as files for DuckDB: positions of threads, names, and what cannot be read."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from alluvia.clock import SystemClock
from alluvia.delta.data_files.column_chunks import ColumnChunks
from alluvia.store import Address, open_store
from alluvia.store.caches.engine_files import EngineFiles, Unserved
from alluvia.store.caches.served import ServedFile, WantedColumns, name_of, packed, unpacked

DATA = bytes(range(256)) * 40
NAME = name_of(0)


def served(lake: str, *, size: int = len(DATA), tail: bytes = b"", number: int = 0, key: str = "a") -> ServedFile:
    uri = f"memory://{lake}"
    open_store(uri, SystemClock()).put("a", DATA)
    return ServedFile(NAME, Address(uri, {}, key), number, size, 1_700_000_000_123, tail=tail)


def engine_files(files: Sequence[ServedFile]) -> EngineFiles:
    return EngineFiles(files, ColumnChunks)


def test_threads_that_share_a_file_have_positions_of_their_own() -> None:
    file = engine_files([served("threads")]).open(NAME)

    def read(number: int) -> bool:
        found = True
        for at in range(200):
            start = (number * 977 + at * 31) % 10_000
            file.seek(start)
            found = found and file.read(64) == DATA[start : start + 64] and file.tell() == start + 64
        return found

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(read, range(8)))


def test_reads_at_the_end_and_of_all() -> None:
    file = engine_files([served("ends", tail=DATA[-100:])]).open(NAME)
    file.seek(len(DATA) - 10)
    assert (file.read(50), file.read(50)) == (DATA[-10:], b"")
    file.seek(len(DATA) - 150)  # from before the tail
    assert file.read(60) == DATA[-150:-90]
    file.seek(0)
    assert file.read() == DATA


def test_only_files_of_the_query_are_there_and_none_is_written() -> None:
    files = engine_files([served("names")])
    assert (files.glob(NAME), files.glob("alluvia://*"), files.glob("alluvia:///0.parquet")) == ([NAME], [], [])
    assert (files.isfile(NAME), files.exists("memory://names/a"), files.size(NAME)) == (True, False, len(DATA))
    assert files.modified(NAME).isoformat() == "2023-11-14T22:13:20+00:00"
    with pytest.raises(FileNotFoundError):
        files.open("alluvia://1.parquet")
    with pytest.raises(PermissionError):
        files.open(NAME, "wb")
    assert files.unserved is None


@pytest.mark.parametrize(
    ("file", "why"),
    [(served("short", size=len(DATA) + 1), "short"), (served("gone", key="nothing"), "missing")],
)
def test_what_cannot_be_read_is_noted_and_no_byte_is_given(file: ServedFile, why: str) -> None:
    files = engine_files([file])
    with pytest.raises(OSError, match=r"alluvia://0\.parquet cannot be read"):
        files.open(NAME).read()
    assert files.unserved == Unserved(NAME, why)


def test_what_was_read_of_one_store_is_not_taken_for_an_object_of_another() -> None:
    assert engine_files([served("same", number=1)]).open(NAME).read() == DATA
    open_store("memory://same", SystemClock()).put("a", DATA[::-1])
    file = served("other", number=2)._replace(address=Address("memory://same", {}, "a"))
    assert engine_files([file]).open(NAME).read() == DATA[::-1]


def test_files_are_told_of_over_a_pipe() -> None:
    address = Address("s3://b", {"region": "r", "secret_access_key": "s"}, "k", "etag")
    files = [
        ServedFile(name_of(0), address, 3, 10, 20, 1, WantedColumns(("a", "b"), ("b",)), b"tail"),
        ServedFile(name_of(1), address._replace(uri="s3://c", etag=""), 3, 11, 21),
        ServedFile(name_of(2), address._replace(key="l"), 3, 12, 22, tail=b"end"),
    ]
    request, tails = packed(files)
    assert len(request["places"]) == 2
    assert unpacked(**request, tails=tails) == files
