"""Rows of data frames: the types that libraries send, and columns that would take more than they seem to."""

from __future__ import annotations

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake
from alluvia.errors import Invalid
from alluvia.flight.bulk_ingest import APPEND, BARE_VALUES_MAX, CREATE, IngestTarget, ingest

TARGET = IngestTarget("t", CREATE, APPEND)


def ingested(lake: Lake, rows: pa.Table | pa.RecordBatch) -> int:
    reader = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches() if isinstance(rows, pa.Table) else [rows])
    with lake.transaction() as inner:
        return ingest(inner, TARGET, reader, None, lambda: None)


def test_types_of_libraries_become_those_of_tables(lake: Lake) -> None:
    long = "longer than the twelve bytes that a view holds"
    rows = pa.table(
        {
            "text": pa.array(["a", None, long], pa.string_view()),
            "data": pa.array([b"a", None, b"b"], pa.binary_view()),
            "many": pa.array(["x"] * 3, pa.large_string()),
            "at": pa.array([0, 1000, None], pa.timestamp("ns")),
            "tags": pa.array([["a"], [], None], pa.large_list(pa.string())),
        }
    )
    assert ingested(lake, rows.slice(1)) == 2
    assert ingested(lake, rows) == 3
    assert [str(each.type) for each in lake["t"].schema] == [
        *("string", "binary", "string", "timestamp[us]", "list<element: string>")
    ]
    assert lake.sql("SELECT text, data FROM t ORDER BY ALL").to_pylist() == [
        *({"text": "a", "data": b"a"}, {"text": long, "data": b"b"}, {"text": long, "data": b"b"}),
        *({"text": None, "data": None},) * 2,
    ]


_, VIEWS, TEXT = pa.array(["x" * 100_000], pa.string_view()).buffers()
ALIASES = pa.Array.from_buffers(pa.string_view(), 1000, [None, pa.py_buffer(bytes(VIEWS)[:16] * 1000), TEXT])
WORDS = pa.DictionaryArray.from_arrays(pa.array([0] * 1000, pa.int8()), pa.array(["x" * 100_000]))
LISTS = pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array([["x"]]))
NOTHING = pa.ListArray.from_arrays(pa.array([0, 1_000_000], pa.int32()), pa.nulls(1_000_000))


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        (ALIASES, "repeats the same bytes"),
        (WORDS, "repeats the same bytes"),
        (LISTS, "plain values"),
        (pa.array([[[]]], pa.list_(pa.list_(pa.int8(), 0))), "plain values"),
        (pa.array([[b""]], pa.list_(pa.binary(0))), "plain values"),
        (NOTHING, "plain values"),
        (pa.array([["x"]], pa.list_(pa.string_view())), "plain values"),
        (pa.array([[{}]], pa.list_(pa.struct([]))), "plain values"),
        (pa.array([{"a": "x"}], pa.struct([("a", pa.dictionary(pa.int8(), pa.string()))])), "plain values"),
        (pa.array([1], pa.duration("s")), "column c"),
    ],
)
def test_columns_that_would_take_more_than_they_seem_to(lake: Lake, column: pa.Array, reason: str) -> None:
    with pytest.raises(Invalid, match=reason):
        ingested(lake, pa.record_batch({"c": column}))
    assert lake.tables() == []


def test_columns_that_share_bytes_are_bounded_together(lake: Lake) -> None:
    half = WORDS.slice(0, 150)
    assert ingested(lake, pa.record_batch({"a": half, "id": range(150)})) == 150
    with pytest.raises(Invalid, match="column b repeats the same bytes"):
        ingested(lake, pa.record_batch({"a": half, "b": half}))


def test_rows_of_nothing_are_bounded(lake: Lake) -> None:
    lake.create_table("t", {"id": "long", "name": "string"})
    assert ingested(lake, pa.record_batch({"id": pa.array([1, 2]), "name": pa.nulls(2)})) == 2
    half = pa.nulls(BARE_VALUES_MAX // 2 + 1)
    for rows in (pa.record_batch({"id": pa.nulls(BARE_VALUES_MAX + 1)}), pa.record_batch({"id": half, "name": half})):
        with pytest.raises(Invalid, match="nothing in too many rows"):
            ingested(lake, rows)
    assert lake["t"].count() == 2


def test_values_that_arrow_does_not_have(lake: Lake) -> None:
    wrong = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(b"\0\0\0\0\1\0\0\0"), pa.py_buffer(b"\xff")])
    with pytest.raises(Invalid, match="not a stream of Arrow"):
        ingested(lake, pa.record_batch({"c": wrong}))
