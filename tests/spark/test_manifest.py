from __future__ import annotations

import resource
from collections.abc import Iterator
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alluvia.errors import Corrupt, Invalid
from alluvia.store import CountingStore, MemoryStore
from alluvia_spark.sources import manifest
from alluvia_spark.sources.files import FileSplit, SourceFile
from alluvia_spark.sources.manifest import (
    OPEN_COST_BYTES,
    file_page,
    open_manifest,
    portion_of,
    read_splits,
    write_manifest,
)
from alluvia_spark.sources.places import Found


def _files(sizes: list[int]) -> list[SourceFile]:
    return [SourceFile(f"s3://b{at % 2}", f"k/{at}", size, f"etag{at}") for at, size in enumerate(sizes)]


def _pages(files: list[SourceFile], cut: list[bool]) -> Iterator[pa.RecordBatch]:
    for file, may_be_cut in zip(files, cut, strict=True):
        yield file_page(Found([file.root], [file.key], [file.size], [file.etag]), [may_be_cut])


def _splits(sizes: list[int], cut: list[bool], target_bytes: int) -> list[list[FileSplit]]:
    store = MemoryStore()
    planned = write_manifest(store, "m", _pages(_files(sizes), cut)).splits(target_bytes)
    return [read_splits(store, "m", portion_of(planned, task)) for task in range(len(planned))]


def test_big_files_are_cut_if_they_may_be() -> None:
    plain, packed = _files([250, 250])
    assert _splits([250, 250], [True, False], 100) == [
        [FileSplit(plain, 0, 83)],
        [FileSplit(plain, 83, 166)],
        [FileSplit(plain, 166, 250)],
        [FileSplit(packed, 0, 250)],
    ]


def test_small_files_share_a_task_in_order() -> None:
    tasks = _splits([1] * 10, [True] * 10, 4 * OPEN_COST_BYTES)
    assert [len(task) for task in tasks] == [4, 4, 2]
    assert [split.file for task in tasks for split in task] == _files([1] * 10)


def test_files_of_one_size_are_divided_evenly() -> None:
    planned = write_manifest(MemoryStore(), "m", _pages(_files([1_000_000] * 8), [True] * 8))
    assert planned.bytes == 8_000_000
    assert len(planned.splits(planned.cost_bytes // 4)) == 4


@given(
    st.lists(st.tuples(st.integers(1, 400_000), st.booleans()), min_size=1, max_size=30),
    st.integers(1000, 10**6),
    st.integers(1, 7),
)
def test_every_byte_is_in_one_task_in_order(files: list[tuple[int, bool]], target_bytes: int, group_rows: int) -> None:
    sizes, cut = [size for size, _ in files], [may_be_cut for _, may_be_cut in files]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manifest, "GROUP_ROWS", group_rows)
        tasks = _splits(sizes, cut, target_bytes)
    found: dict[str, list[tuple[int, int]]] = {}
    for task in tasks:
        assert len(task) == 1 or sum(s.end - s.start + OPEN_COST_BYTES for s in task) <= target_bytes + OPEN_COST_BYTES
        for split in task:
            found.setdefault(split.file.key, []).append((split.start, split.end))
    assert list(found) == [file.key for file in _files(sizes)]
    for (_, parts), size, may_be_cut in zip(found.items(), sizes, cut, strict=True):
        assert parts[0][0] == 0
        assert parts[-1][1] == size
        assert all(one[1] == other[0] for one, other in pairwise(parts))
        assert len(parts) == 1 or may_be_cut


def test_a_million_files_are_columns_and_a_task_reads_its_own() -> None:
    """As JSON they were 100 MB, and grew the driver by a gigabyte."""
    count = 100_000

    def pages() -> Iterator[pa.RecordBatch]:
        for at in range(0, count, 1000):
            rows = range(at, at + 1000)
            etags = [f'"{hash(str(row)):032x}"' for row in rows]
            keys = [f"archive/2024/{row % 365:03}/server-{row:08}.ndjson.gz" for row in rows]
            found = Found(["s3://bucket"] * 1000, keys, [50_000] * 1000, etags)
            yield file_page(found, [False] * 1000)

    store = CountingStore(MemoryStore())
    write_manifest(store, "warm", pages())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = write_manifest(store, "m", pages())
    planned = found.splits(64 << 20)
    grown_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    assert grown_kb < 20_000  # 200 bytes a file
    assert len(found.sizes) == count
    store.reset()
    splits = read_splits(store, "m", portion_of(planned, 0))
    read_splits(store, "m", portion_of(planned, 1))
    assert splits[7].file.key == "archive/2024/007/server-00000007.ndjson.gz"
    assert store.requests == {"get": 3}  # the footer once
    assert store.bytes_read < 1_000_000


def test_a_manifest_that_is_gone_or_damaged_is_named() -> None:
    store = MemoryStore()
    with pytest.raises(Invalid, match=r"_alluvia/m is gone.*another job_id"):
        open_manifest(store, "_alluvia/m")
    store.put("_alluvia/m", b"PAR1 and no more")
    with pytest.raises(Corrupt, match="_alluvia/m is not a manifest"):
        open_manifest(store, "_alluvia/m")
