"""Checkpoints of a few kilobytes that stand for gigabytes are refused before these are allocated."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alluvia.delta.log.files.parquet import ActionFile
from alluvia.delta.log.files.sidecars import Sidecar, SidecarFile
from alluvia.errors import Corrupt

ROWS = 4000
LONG = "x" * 400_000
FIELDS = [("path",), ("stats",), ("partitionValues",)]
FEW = pa.array([f"p{number}" for number in range(ROWS)])


def repeated(text: str, at: int = 0) -> pa.Array:
    """Return a text in every row, or one of two in the first rows alone."""
    numbers = pa.array([0 if not at or row < at else 1 for row in range(ROWS)], pa.int32())
    return pa.DictionaryArray.from_arrays(numbers, pa.array([text, "short"]))


def written(
    path: pa.Array = FEW, stats: pa.Array = FEW, key: pa.Array = FEW, value: pa.Array = FEW, **how: Any
) -> bytes:
    """Return the bytes of a file of adds."""
    arrays: Any = pa.MapArray  # whose types are those of lists
    maps = arrays.from_arrays(pa.array(range(ROWS + 1), pa.int32()), key, value)
    columns = [path, stats, maps, pa.array([1] * ROWS)]
    adds = pa.StructArray.from_arrays(columns, ["path", "stats", "partitionValues", "modificationTime"])
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"add": adds}), sink, **{"compression": "zstd", **how})
    return sink.getvalue().to_pybytes()


def read(file: ActionFile) -> pa.StructArray:
    file.few()
    return file.read("add", 0, FIELDS)


@contextmanager
def at_most(peak: int) -> Iterator[None]:
    """Fail if Arrow has more than some bytes at once."""
    memory: Any = pa  # whose types lack these functions
    before = memory.default_memory_pool()
    fresh = memory.proxy_memory_pool(before)
    memory.set_memory_pool(fresh)
    try:
        yield
    finally:
        memory.set_memory_pool(before)
    assert fresh.max_memory() < peak


PREFIXED: dict[str, Any] = {"use_dictionary": False, "column_encoding": {"add.stats": "DELTA_BYTE_ARRAY"}}


@pytest.mark.parametrize(
    ("column", "how"),
    [
        ("path", {}),
        ("stats", {}),
        ("key", {}),
        ("value", {}),
        ("stats", {"compression": "snappy"}),
        ("stats", {"data_page_version": "2.0"}),
        ("stats", {"compression": "none"}),
    ],
)
def test_a_repeated_text_is_refused_before_it_is_decoded(column: str, how: dict[str, Any]) -> None:
    data = written(**{column: repeated(LONG)}, **how)
    assert len(data) < 1_000_000
    with at_most(64 << 20):
        file = ActionFile("checkpoint 7", data)
        for _ in range(2):
            with pytest.raises(Corrupt, match=rf"checkpoint 7 has {len(data)} bytes, but its columns take more than"):
                read(file)


def test_texts_that_repeat_the_one_before_are_refused() -> None:
    data = written(stats=pa.array([LONG] * ROWS), **PREFIXED)
    with (
        at_most(1 << 30),
        pytest.raises(Corrupt, match=r"add\.stats in row group 0: write"),
    ):
        read(ActionFile("checkpoint 7", data))


def test_pages_that_unpack_to_gigabytes_are_refused() -> None:
    data = written(stats=pa.array([LONG] * ROWS), use_dictionary=False)
    with at_most(64 << 20), pytest.raises(Corrupt, match="take more than 1073741824 once decoded"):
        read(ActionFile("checkpoint 7", data))


def test_a_sidecar_is_refused_as_well() -> None:
    data = written(path=repeated(LONG))
    sidecar = SidecarFile(Sidecar("_delta_log/_sidecars/s.parquet", len(data), 1), lambda _: [data])
    with (
        at_most(64 << 20),
        pytest.raises(Corrupt, match=r"_sidecars/s\.parquet has \d+ bytes, but"),
    ):
        sidecar.file.read("add", 0, FIELDS)


def test_many_repeated_partition_values_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    data = written(key=repeated("day"), value=repeated("2026-11-28"))
    opened: list[Any] = []
    real = pq.ParquetFile.__init__

    def counted(self: pq.ParquetFile, *args: Any, **named: Any) -> None:
        opened.append(named)
        real(self, *args, **named)

    monkeypatch.setattr(pq.ParquetFile, "__init__", counted)
    rows = read(ActionFile("checkpoint 7", data))
    assert rows.field("partitionValues").to_pylist() == [[("day", "2026-11-28")]] * ROWS
    assert len(opened) == 1


@pytest.mark.parametrize("how", [{}, {"compression": "snappy"}, {"data_page_version": "2.0"}])
def test_one_long_text_among_short_ones_is_read(how: dict[str, Any]) -> None:
    data = written(stats=repeated(LONG, 3), **how)
    assert read(ActionFile("checkpoint 7", data)).field("stats").to_pylist() == [LONG] * 3 + ["short"] * (ROWS - 3)
