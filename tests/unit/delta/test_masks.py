from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alluvia.delta.deletion_vectors.storage import count, definite, interleaved, mask_of, numbers, positions_of


@given(st.integers(0, 20), st.data())
def test_positions_and_masks_are_each_other(rows: int, data: st.DataObject) -> None:
    held = sorted(data.draw(st.sets(st.integers(0, rows - 1)))) if rows else []
    mask = mask_of(pa.array(held, pa.int64()), rows)
    assert mask.to_pylist() == [at in held for at in range(rows)]
    assert positions_of(mask).to_pylist() == held
    assert count(mask) == len(held)
    assert numbers(rows).to_pylist() == list(range(rows))


def test_null_is_false() -> None:
    assert definite(pa.array([True, None, False], pa.bool_())).to_pylist() == [True, False, False]


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
