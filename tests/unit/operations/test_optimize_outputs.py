"""Rows on their way from a stream into files."""

from __future__ import annotations

import pyarrow as pa

from alluvia.operations.optimize_outputs import SortedRows

SCHEMA = pa.schema([("text", pa.string())])


def test_no_more_is_taken_at_once_than_fits_the_memory() -> None:
    batches = [pa.record_batch([pa.array([letter * 1000] * 10)], schema=SCHEMA) for letter in "abcd"]
    rows = SortedRows(pa.RecordBatchReader.from_batches(SCHEMA, batches), SCHEMA, bytes_max=15_000)
    taken = [rows.take(1000) for _ in range(3)]
    assert [table.num_rows for table in taken] == [20, 20, 0]
    assert pa.concat_tables(taken) == pa.Table.from_batches(batches)


def test_without_a_limit_as_many_are_taken_as_are_asked_for() -> None:
    batches = [pa.record_batch([pa.array([letter * 1000] * 10)], schema=SCHEMA) for letter in "abcd"]
    rows = SortedRows(pa.RecordBatchReader.from_batches(SCHEMA, batches), SCHEMA)
    assert [rows.take(count).num_rows for count in (25, 3, 1000, 1)] == [25, 3, 12, 0]
    assert rows.rest() == 0
