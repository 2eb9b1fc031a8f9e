"""Parquet is read in little memory: long values that a dictionary repeats stay in it, all other texts are plain."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alluvia.files.parquet_rows import PIECE_BYTES, ParquetRows

COUNT = 20_000
WORDS = [f"word {at % 300}" for at in range(COUNT)]
IDS = [f"{at * 7919 % COUNT:032x}" for at in range(COUNT)]
LONG = ["x" * 200_000 if at % 2 else "y" for at in range(COUNT)]


def rows_of(table: pa.Table, **options: Any) -> tuple[ParquetRows, Callable[[], io.BytesIO]]:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return ParquetRows(lambda: io.BytesIO(sink.getvalue())), lambda: sink


@pytest.fixture
def read_as_dictionaries(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return which texts were read as dictionaries each time that rows, not only dictionaries, were read."""
    found: list[list[str]] = []
    read = pq.ParquetFile.iter_batches

    class Noted(pq.ParquetFile):
        def __init__(self, *args: Any, read_dictionary: list[str], **named: Any) -> None:
            self.asked = read_dictionary
            super().__init__(*args, read_dictionary=read_dictionary, **named)

        def iter_batches(self, *args: Any, **named: Any) -> Any:
            if named.get("columns") is None:
                found.append(self.asked)
            return read(self, *args, **named)

    monkeypatch.setattr(pq, "ParquetFile", Noted)
    return found


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_dictionary": False},
        {"dictionary_pagesize_limit": 2000},
        {"row_group_size": 3000, "dictionary_pagesize_limit": 2000},
        {"use_dictionary": False, "column_encoding": {"id": "DELTA_BYTE_ARRAY", "word": "DELTA_LENGTH_BYTE_ARRAY"}},
        {"data_page_version": "2.0", "compression": "zstd"},
    ],
)
def test_short_texts_are_read_as_they_are(read_as_dictionaries: list[list[str]], options: dict[str, Any]) -> None:
    table = pa.table({"id": IDS, "word": WORDS, "data": [each.encode() for each in WORDS], "n": range(COUNT)})
    rows, _ = rows_of(table, **options)
    assert pa.Table.from_batches(rows.batches()).equals(table)
    assert {name for names in read_as_dictionaries for name in names} == set()


@pytest.mark.parametrize("options", [{}, {"dictionary_pagesize_limit": 300_000}, {"row_group_size": 5000}])
def test_long_values_that_repeat_are_read_as_dictionaries(
    read_as_dictionaries: list[list[str]], options: dict[str, Any]
) -> None:
    rows, file = rows_of(pa.table({"id": IDS, "long": LONG}), **options)
    assert len(file().getvalue()) < 2_000_000
    start = 0
    for batch in rows.batches():
        assert batch.nbytes < PIECE_BYTES * 1.1
        assert batch["long"].to_pylist() == LONG[start : start + len(batch)]
        start += len(batch)
    assert start == COUNT
    assert {name for names in read_as_dictionaries for name in names} == {"long"}


def test_row_groups_are_read_each_in_its_way(read_as_dictionaries: list[list[str]]) -> None:
    table = pa.table({"text": [*WORDS[:10_000], *LONG[10_000:12_000], *WORDS[10_000:]]})
    rows, _ = rows_of(table, row_group_size=2000)
    assert sum(len(batch) for batch in rows.batches()) == len(table)
    assert read_as_dictionaries == [[], ["text"], []]


def test_texts_in_nested_columns(read_as_dictionaries: list[list[str]]) -> None:
    tags = pa.array([[] if at % 3 == 0 else [WORDS[at], None] for at in range(COUNT)], pa.list_(pa.string()))
    maps = pa.array([[(WORDS[at], WORDS[at - 1])] for at in range(COUNT)], pa.map_(pa.string(), pa.string()))
    structs = pa.array([None if at % 5 == 0 else {"a": WORDS[at], "b": [WORDS[at]]} for at in range(COUNT)])
    table = pa.table({"tags": tags, "map": maps, "struct": structs})
    rows, _ = rows_of(table, row_group_size=7000)
    assert pa.Table.from_batches(rows.batches()).to_pylist() == table.to_pylist()
    assert {name for names in read_as_dictionaries for name in names} == set()


def test_lists_of_one_long_text(read_as_dictionaries: list[list[str]]) -> None:
    lists = pa.array([["x" * 100_000] * 20] * 1500)
    rows, _ = rows_of(pa.table({"texts": lists, "n": range(1500)}))
    assert max(batch.nbytes for batch in rows.batches()) < PIECE_BYTES * 1.1
    assert {name for names in read_as_dictionaries for name in names} == {"texts.list.element"}
