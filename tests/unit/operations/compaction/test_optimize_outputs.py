"""Rows on their way from a stream into files."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake
from alluvia.delta.partitioning.transforms import Span
from alluvia.operations.compaction import optimize_outputs
from alluvia.operations.compaction.optimize_outputs import Outputs, SortedRows

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


@pytest.mark.parametrize("encoders", [2, 8])
def test_sizes_are_learned_while_a_file_is_written(
    disk: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoders: int
) -> None:
    """Rows take ten times what was expected, and many row groups may be encoded at once."""
    monkeypatch.setattr(optimize_outputs, "ENCODERS", encoders)
    snapshot = disk.create_table("t", {"n": "long"}).snapshot()
    chance = random.Random(1)
    rows = pa.table({"n": [chance.getrandbits(62) for _ in range(200_000)]})
    reader = pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(max_chunksize=2048))
    outputs = Outputs(snapshot, SortedRows(reader, rows.schema), tmp_path, 40_000, row_bytes=0.8)
    written = outputs.write([(len(rows), Span((), ()))])
    assert sum(each.rows for each in written) == len(rows)
    row_group_bytes = 8 * 40_000 / 0.8 / optimize_outputs.ROW_GROUPS
    assert max(each.path.stat().st_size for each in written) < 4 * row_group_bytes
