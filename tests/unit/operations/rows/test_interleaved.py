"""Rows of a file of which some are replaced, in their places."""

from __future__ import annotations

import pyarrow as pa
import pytest

from alluvia.operations.rows.edits import interleaved


@pytest.mark.parametrize("replaced", [[False] * 4, [True] * 4, [False, True, True, False], [True, False, False, True]])
def test_rows_are_replaced_in_their_places(replaced: list[bool]) -> None:
    schema = pa.schema([("id", pa.int64()), ("l", pa.list_(pa.string())), ("s", pa.struct([("x", pa.int32())]))])
    rows = pa.Table.from_pylist([{"id": n, "l": ["a"], "s": {"x": n}} for n in range(4)], schema)
    new = [{"l": None, "id": 100 + n, "s": {"x": None}} for n, changed in enumerate(replaced) if changed]
    order = pa.schema([schema.field("l"), schema.field("id"), schema.field("s")])
    found = interleaved(rows, pa.array(replaced, pa.bool_()), pa.Table.from_pylist(new, order))
    assert found.schema == schema
    assert found["id"].to_pylist() == [100 + n if changed else n for n, changed in enumerate(replaced)]
    assert found["l"].to_pylist() == [None if changed else ["a"] for changed in replaced]
