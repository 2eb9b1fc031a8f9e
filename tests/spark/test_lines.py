from __future__ import annotations

import gzip
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alluvia.errors import Invalid
from alluvia.files import file_text
from alluvia.store import CountingStore, MemoryStore
from alluvia_spark.sources import files, lines
from alluvia_spark.sources.files import BadFile, FileSplit, SourceFile
from alluvia_spark.sources.formats import read_blocks
from alluvia_spark.sources.lines import Block, whole_lines

LIMIT = 1000


def _store(key: str, data: bytes) -> tuple[MemoryStore, SourceFile]:
    store = MemoryStore()
    store.put(key, data)
    (info,) = store.list(key)
    return store, SourceFile("memory://", key, len(data), info.etag)


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
        patch.setattr(files, "FETCH_BYTES", 5)
        patch.setattr(lines, "PIECE_BYTES", 3)
        found = [line for split in splits for line in _lines(list(read_blocks(store, split, line_limit_bytes=LIMIT)))]
    assert found == _expected(text)


@given(st.lists(st.sampled_from([b"a", b"bb", b"\n", b"ccccc"]), min_size=1, max_size=40), st.integers(1, 9))
def test_gzip_of_several_members_reads_as_one_text(parts: list[bytes], block_bytes: int) -> None:
    data = b"".join(gzip.compress(part) for part in parts)
    store, file = _store("a.gz", data)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "FETCH_BYTES", 3 * block_bytes)
        patch.setattr(file_text, "PIECE_BYTES", block_bytes)
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
    with pytest.raises(BadFile, match=r"logs/a\.gz cannot be read further: the gzip data is damaged"):
        list(read_blocks(store, FileSplit(file, 0, file.size), line_limit_bytes=LIMIT))


@pytest.mark.parametrize("fetch_bytes", [3, 100])
@pytest.mark.parametrize("start", [0, 4])
def test_a_file_that_changed_since_the_job_began_is_refused(
    start: int, fetch_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of equal length was read, the start of one content with the end of another."""
    monkeypatch.setattr(files, "FETCH_BYTES", fetch_bytes)
    store, file = _store("logs/a.ndjson", b"1\n2\n3\n4\n5\n")
    blocks = read_blocks(store, FileSplit(file, start, file.size), line_limit_bytes=LIMIT)
    if fetch_bytes == 3:
        assert next(blocks).data == (b"3\n" if start else b"1\n")
    store.put("logs/a.ndjson", b"6\n7\n8\n9\n0\n")
    with pytest.raises(Invalid, match=r"logs/a\.ndjson has changed since the job began") as raised:
        list(blocks)
    assert not isinstance(raised.value, BadFile)


def test_a_file_without_an_etag_is_read_up_to_its_size_and_not_as_a_mix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "FETCH_BYTES", 6)
    store, _ = _store("a", b"{}\n" * 5)
    whole = FileSplit(SourceFile("memory://", "a", 12), 0, 12)
    assert _lines(list(read_blocks(store, whole, line_limit_bytes=LIMIT))) == [(at, b"{}") for at in (0, 3, 6, 9)]
    blocks = read_blocks(store, whole, line_limit_bytes=LIMIT)
    assert next(blocks).data == b"{}\n{}\n"
    store.put("a", b"[]\n" * 5)
    with pytest.raises(Invalid, match="has changed"):
        list(blocks)
    store.put("a", b"{}\n")
    with pytest.raises(Invalid, match="has changed"):
        list(read_blocks(store, whole, line_limit_bytes=LIMIT))


@pytest.mark.parametrize("etag", ["", "1"])
def test_a_file_that_is_gone_is_named(etag: str) -> None:
    with pytest.raises(BadFile, match="memory://a is missing"):
        list(read_blocks(MemoryStore(), FileSplit(SourceFile("memory://", "a", 4, etag), 0, 4), line_limit_bytes=LIMIT))


@pytest.mark.parametrize("data", [b"1\n" * 500, gzip.compress(b"1\n" * 500, mtime=0)])
def test_requests(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    key = "a.gz" if data[:2] == b"\x1f\x8b" else "a"
    inner, file = _store(key, data)
    store = CountingStore(inner)

    def requests(start: int, end: int) -> int:
        store.reset()
        list(read_blocks(store, FileSplit(file, start, end), line_limit_bytes=LIMIT))
        return store.requests.total()

    assert requests(0, len(data)) == 1
    if key == "a":
        monkeypatch.setattr(lines, "TAIL_BYTES", 2)
        assert [requests(0, 500), requests(500, 1000)] == [1, 1]
        monkeypatch.setattr(files, "FETCH_BYTES", 100)
        assert [requests(0, 500), requests(500, 1000)] == [5, 6]  # the byte before tells whether a line begins


def test_a_line_far_over_the_limit_is_cut_and_what_follows_keeps_its_place() -> None:
    blocks = list(whole_lines(100, [b"ok\nxx", b"xxxx", b"xxxx", b"x\nnext\n", b"last"], 4))
    assert blocks == [Block(100, b"ok\n"), Block(103, b"xxxx", 7), Block(115, b"next\n"), Block(120, b"last")]


def test_a_last_line_over_the_limit_is_cut_too() -> None:
    assert list(whole_lines(0, [b"xxxx", b"xxxx", b"xx"], 4)) == [Block(0, b"xxxx", 6)]
