from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from alluvia.delta.deletion_vectors.storage import mask_of, numbers, positions_of


@given(st.integers(0, 20), st.data())
def test_positions_and_masks_are_each_other(rows: int, data: st.DataObject) -> None:
    held = sorted(data.draw(st.sets(st.integers(0, rows - 1)))) if rows else []
    mask = mask_of(pa.array(held, pa.int64()), rows)
    assert mask.to_pylist() == [at in held for at in range(rows)]
    assert positions_of(mask).to_pylist() == held
    assert numbers(rows).to_pylist() == list(range(rows))
