from __future__ import annotations

import gzip
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alluvia.errors import Invalid
from alluvia.store import MemoryStore
from alluvia_spark import lines
from alluvia_spark.lines import Block, read_blocks, whole_lines
from alluvia_spark.source import FileSplit, SourceFile

LIMIT = 1000


def _store(key: str, data: bytes) -> tuple[MemoryStore, SourceFile]:
    store = MemoryStore()
    store.put(key, data)
    return store, SourceFile("memory://", key, len(data))


def _lines(blocks: list[Block]) -> list[tuple[int, bytes]]:
    """Each line with its place."""
    found = []
    for block in blocks:
        place = block.offset
        for line in block.data.split(b"\n"):
            if line:
                found.append((place, line))
            place += len(line) + 1
    return found


def _expected(text: bytes) -> list[tuple[int, bytes]]:
    return _lines([Block(0, text)])


@given(st.lists(st.sampled_from([b"a", b"bb", b"\n", b"\r\n", b"ccccc"]), max_size=40), st.integers(1, 7), st.data())
def test_every_line_is_read_once_wherever_a_file_is_cut(parts: list[bytes], pieces: int, data: st.DataObject) -> None:
    text = b"".join(parts)
    store, file = _store("a", text)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), min_size=pieces, max_size=pieces)))
    splits = [FileSplit(file, start, end) for start, end in itertools.pairwise([0, *cuts, len(text)]) if start < end]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "TAIL_BYTES", 2)
        patch.setattr(lines, "FETCH_BYTES", 5)
        patch.setattr(lines, "BLOCK_BYTES", 3)
        found = [line for split in splits for line in _lines(list(read_blocks(store, split, line_limit_bytes=LIMIT)))]
    assert found == _expected(text)


@given(st.lists(st.sampled_from([b"a", b"bb", b"\n", b"ccccc"]), min_size=1, max_size=40), st.integers(1, 9))
def test_gzip_of_several_members_reads_as_one_text(parts: list[bytes], block_bytes: int) -> None:
    data = b"".join(gzip.compress(part) for part in parts)
    store, file = _store("a.gz", data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "FETCH_BYTES", 3 * block_bytes)
        patch.setattr(lines, "BLOCK_BYTES", block_bytes)
        found = _lines(list(read_blocks(store, FileSplit(file, 0, file.size), line_limit_bytes=LIMIT)))
    assert found == _expected(b"".join(parts))


def test_zeros_between_gzip_members_are_padding() -> None:
    store, file = _store("a.gz", gzip.compress(b"one\n") + bytes(100) + gzip.compress(b"two\n") + bytes(7))
    blocks = list(read_blocks(store, FileSplit(file, 0, file.size), line_limit_bytes=LIMIT))
    assert _lines(blocks) == [(0, b"one"), (4, b"two")]


@pytest.mark.parametrize("damage", [lambda data: data[:-3], lambda data: data[:20] + b"####" + data[24:]])
def test_damaged_gzip_is_named(damage: object) -> None:
    data = gzip.compress(bytes(range(256)) * 10)
    store, file = _store("logs/a.gz", damage(data))  # type: ignore[operator]
    with pytest.raises(Invalid, match=r"logs/a\.gz is (truncated|not valid gzip)"):
        list(read_blocks(store, FileSplit(file, 0, file.size), line_limit_bytes=LIMIT))


def test_gzip_under_a_plain_name_is_refused_and_not_made_into_rejects() -> None:
    store, file = _store("a.ndjson", gzip.compress(b"{}\n"))
    with pytest.raises(Invalid, match=r"name it \.gz"):
        list(read_blocks(store, FileSplit(file, 0, file.size), line_limit_bytes=LIMIT))


def test_a_file_that_shrank_since_the_job_began_is_refused() -> None:
    store, file = _store("a.ndjson", b"{}\n{}\n")
    store.put("a.ndjson", b"{}\n")
    with pytest.raises(Invalid, match="shorter than the 6 bytes"):
        list(read_blocks(store, FileSplit(file, 0, 6), line_limit_bytes=LIMIT))


def test_bytes_added_since_the_job_began_are_not_read() -> None:
    store, file = _store("a.ndjson", b"1\n2\n")
    store.put("a.ndjson", b"1\n2\n3\n")
    assert _lines(list(read_blocks(store, FileSplit(file, 0, 4), line_limit_bytes=LIMIT))) == [(0, b"1"), (2, b"2")]


def test_a_line_far_over_the_limit_is_cut_and_what_follows_keeps_its_place() -> None:
    blocks = list(whole_lines(100, [b"ok\nxx", b"xxxx", b"xxxx", b"x\nnext\n", b"last"], 4))
    assert blocks == [Block(100, b"ok\n"), Block(103, b"xxxx", 7), Block(115, b"next\n"), Block(120, b"last")]


def test_a_last_line_over_the_limit_is_cut_too() -> None:
    assert list(whole_lines(0, [b"xxxx", b"xxxx", b"xx"], 4)) == [Block(0, b"xxxx", 6)]
