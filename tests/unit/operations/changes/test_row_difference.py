"""Rows that only one of two collections has: the same whether they are few, or come in batches to a table first."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from alluvia.operations.changes import row_difference
from alluvia.operations.changes.row_difference import RowDifference

SCHEMA = pa.schema([("sign", pa.string()), ("x", pa.float64())])


def batches(*rows: tuple[str | None, float | None]) -> Iterator[pa.RecordBatch]:
    for row in rows:
        yield pa.RecordBatch.from_pylist([dict(zip(SCHEMA.names, row, strict=True))] * 2, SCHEMA)


@pytest.mark.parametrize("few_bytes_max", [0, 50, 8_000_000])
def test_rows_are_counted(monkeypatch: pytest.MonkeyPatch, few_bytes_max: int) -> None:
    monkeypatch.setattr(row_difference, "_FEW_BYTES_MAX", few_bytes_max)
    old = batches(("a", 1.0), ("a", 1.0), (None, None), ("b", float("nan")), ("c", 0.0))
    new = batches((None, None), ("a", 1.0), ("b", float("nan")), ("c", -0.0), ("c", None), ("d", 2.0), ("d", 2.0))
    with RowDifference(SCHEMA, old, new) as difference:
        only_old = [tuple(row.values()) for batch in difference.only_old() for row in batch.to_pylist()]
        only_new = [tuple(row.values()) for batch in difference.only_new() for row in batch.to_pylist()]
    assert only_old == [("a", 1.0)] * 2
    assert sorted(only_new, key=str) == [("c", None)] * 2 + [("d", 2.0)] * 4
    with RowDifference(SCHEMA, iter(()), iter(())) as difference:
        assert [*difference.only_old(), *difference.only_new()] == []
