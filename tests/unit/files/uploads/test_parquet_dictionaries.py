"""Parquet is read in little memory: long values that a dictionary repeats stay in it, all other texts are plain."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alluvia.files import parquet_dictionaries
from alluvia.files.limits import Misfit
from alluvia.files.parquet_dictionaries import longest_values
from alluvia.files.parquet_rows import PIECE_BYTES, ParquetRows
from tests.damaged_parquet import without_dictionary_offset

COUNT = 20_000
WORDS = [f"word {at % 300}" for at in range(COUNT)]
IDS = [f"{at * 7919 % COUNT:032x}" for at in range(COUNT)]
CODECS = [{"compression": name} for name in ("none", "gzip", "brotli", "lz4", "zstd")]
VALUE = "x" * 200_000
LONG = [VALUE if at % 2 else "y" for at in range(3000)]


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
        def __init__(self, *args: Any, read_dictionary: list[str] | None = None, **named: Any) -> None:
            self.asked = read_dictionary or []
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
        *CODECS,
    ],
)
def test_short_texts_are_read_as_they_are(read_as_dictionaries: list[list[str]], options: dict[str, Any]) -> None:
    table = pa.table({"id": IDS, "word": WORDS, "data": [each.encode() for each in WORDS], "n": range(COUNT)})
    rows, _ = rows_of(table, **options)
    assert pa.Table.from_batches(rows.batches()).equals(table)
    assert {name for names in read_as_dictionaries for name in names} == set()


@pytest.mark.parametrize("options", [{}, {"dictionary_pagesize_limit": 300_000}])
@pytest.mark.parametrize("form", ["list", "struct", "map"])
def test_long_values_within_columns_are_read_from_several_row_groups(form: str, options: dict[str, Any]) -> None:
    texts = [f"{at % 5}" if at % 9 else VALUE for at in range(3000)]
    text = pa.string()
    kind = {"list": pa.list_(text), "struct": pa.struct({"a": text}), "map": pa.map_(text, text)}[form]
    values: list[Any] = [[each, "b"] if form == "list" else {"a": each} for each in texts]
    if form == "map":
        values = [[*value.items()] for value in values]
    rows, _ = rows_of(pa.table({"of": pa.array(values, kind)}), row_group_size=1100, **options)
    found = [value for batch in rows.batches() for value in batch["of"].to_pylist()]
    assert found == values


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dictionary_pagesize_limit": 300_000},
        {"row_group_size": 800},
        *(pytest.param(each, marks=pytest.mark.at_length) for each in CODECS),
    ],
)
def test_long_values_that_repeat_are_read_as_dictionaries(
    read_as_dictionaries: list[list[str]], options: dict[str, Any]
) -> None:
    rows, file = rows_of(pa.table({"id": IDS[: len(LONG)], "long": LONG}), **options)
    assert len(file().getvalue()) < (4_000_000 if options.get("compression") == "none" else 2_000_000)
    start = 0
    for batch in rows.batches():
        assert batch.nbytes < PIECE_BYTES * 1.1
        assert batch["long"].to_pylist() == LONG[start : start + len(batch)]
        start += len(batch)
    assert start == len(LONG)
    assert {name for names in read_as_dictionaries for name in names} == {"long"}


def test_a_dictionary_that_the_footer_does_not_name(read_as_dictionaries: list[list[str]]) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"long": LONG, "id": IDS[: len(LONG)]}), sink)
    data = without_dictionary_offset(sink.getvalue())
    assert not pq.read_metadata(io.BytesIO(data)).row_group(0).column(0).has_dictionary_page
    batches = list(ParquetRows(lambda: io.BytesIO(data)).batches())
    assert max(batch.nbytes for batch in batches) < PIECE_BYTES * 1.1
    assert sum(map(len, batches)) == len(LONG)
    assert read_as_dictionaries[-1] == ["long"]


def test_each_row_group_is_read_in_its_own_way(read_as_dictionaries: list[list[str]]) -> None:
    table = pa.table({"text": [*WORDS[:10_000], *LONG[:2000], *WORDS[10_000:]]})
    rows, _ = rows_of(table, row_group_size=2000)
    assert sum(len(batch) for batch in rows.batches()) == len(table)
    assert read_as_dictionaries == [[], ["text"], []]


@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY"])
def test_few_rows_of_long_texts_without_a_dictionary_are_read_at_once(
    monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    texts = [f"{at}" + "x" * 100_000 for at in range(2000)]
    rows, _ = rows_of(pa.table({"t": texts}), use_dictionary=False, column_encoding={"t": encoding})
    monkeypatch.setattr("alluvia.files.parquet_rows._pieces", lambda batch: [batch])
    batches = list(rows.batches())
    assert [text for batch in batches for text in batch["t"].to_pylist()] == texts
    assert max(batch.nbytes for batch in batches) < PIECE_BYTES * 1.1


def test_texts_in_nested_columns(read_as_dictionaries: list[list[str]]) -> None:
    tags = pa.array([[] if at % 3 == 0 else [WORDS[at], None] for at in range(COUNT)], pa.list_(pa.string()))
    maps = pa.array([[(WORDS[at], WORDS[at - 1])] for at in range(COUNT)], pa.map_(pa.string(), pa.string()))
    structs = pa.array([None if at % 5 == 0 else {"a": WORDS[at], "b": [WORDS[at]]} for at in range(COUNT)])
    table = pa.table({"tags": tags, "map": maps, "struct": structs})
    rows, _ = rows_of(table, row_group_size=7000)
    assert pa.Table.from_batches(rows.batches()).to_pylist() == table.to_pylist()
    assert {name for names in read_as_dictionaries for name in names} == set()


def test_lists_of_one_long_text(read_as_dictionaries: list[list[str]]) -> None:
    lists = pa.array([["x" * 100_000] * 20] * 200)
    rows, _ = rows_of(pa.table({"texts": lists, "n": range(200)}))
    assert max(batch.nbytes for batch in rows.batches()) < PIECE_BYTES * 1.1
    assert {name for names in read_as_dictionaries for name in names} == {"texts.list.element"}


def lengths(data: bytes) -> dict[int, int]:
    """Return the length of the longest value in the dictionary of each column, by the column's number."""
    group = pq.read_metadata(io.BytesIO(data)).row_group(0)
    return longest_values(io.BytesIO(data), {at: group.column(at) for at in range(group.num_columns)})


@pytest.mark.parametrize("held", [0, 1 << 20])
def test_a_dictionary_that_cannot_be_read_has_no_longest_value(monkeypatch: pytest.MonkeyPatch, held: int) -> None:
    monkeypatch.setattr(parquet_dictionaries, "_HELD_BYTES", held)
    sink = io.BytesIO()
    table = pa.table({"a": ["x" * 300, "y"] * 500, "b": ["zz"] * 1000, "none": pa.nulls(1000, pa.string())})
    pq.write_table(table, sink, compression="none")
    data = sink.getvalue()
    assert lengths(data) == {0: 300, 1: 2}
    start = pq.read_metadata(sink).row_group(0).column(0).dictionary_page_offset
    assert start is not None
    for at in range(start, data.index(b"xxx")):
        for value in range(256):
            damaged = data[:at] + bytes([value]) + data[at + 1 :]
            found = lengths(damaged)
            assert found[1] == 2
            assert found.get(0, 300) == 300, f"byte {at} as {value}"


def test_a_damaged_dictionary_is_an_error_of_the_file() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"a": [f"{at % 900:0200}" for at in range(COUNT)]}), sink)
    data = sink.getvalue()
    start = pq.read_metadata(sink).row_group(0).column(0).dictionary_page_offset
    assert start is not None
    damaged = data[:start] + bytes(40) + data[start + 40 :]
    with pytest.raises(Misfit, match="damaged"):
        list(ParquetRows(lambda: io.BytesIO(damaged)).batches())
