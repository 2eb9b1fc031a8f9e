"""An erasure leaves the rows that plain Python keeps, and none of the others in any object, whatever came before."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.store import MemoryStore
from tests.erased import traces
from tests.examples import examples
from tests.transactions import APPLY_OF_A, DECISION, stopped

Row = dict[str, Any]
NAMES = ("t", "u")
CONDITIONS: dict[str, Callable[[Row], bool]] = {
    "u = 'mallory'": lambda row: row["u"] == "mallory",
    "u = 'mallory' AND n < 3": lambda row: row["u"] == "mallory" and row["n"] < 3,
    "u IS NULL OR n = 2": lambda row: row["u"] is None or row["n"] == 2,
    "u LIKE 'c%'": lambda row: row["u"] is not None and row["u"].startswith("c"),
}
ROWS = st.lists(
    st.fixed_dictionaries({"u": st.sampled_from(["a", "mallory", "cc", None]), "n": st.integers(0, 5)}),
    min_size=1,
    max_size=4,
)
TOGETHER = st.tuples(ROWS, st.booleans())
"""What a transaction over two tables appends whose process dies, and whether it had happened before."""
STEPS = st.lists(
    st.one_of(ROWS, TOGETHER, st.sampled_from(["delete", "optimize", "checkpoint"])), min_size=1, max_size=5
)


def carry_out(table: Table, steps: list[Any]) -> list[Row]:
    """Return the rows that a table has after some steps."""
    rows: list[Row] = []
    for step in steps:
        if step == "delete":
            table.delete("n = 1")
            rows = [row for row in rows if row["n"] != 1]
        elif step == "optimize":
            table.optimize(full=True)
        elif step == "checkpoint":
            table.checkpoint()
        elif isinstance(step, tuple):
            added, happened = step
            stopped(table.lake, APPLY_OF_A if happened else DECISION, partial(append_to_both, added))
            rows += added if happened else []
        else:
            table.append(step)
            rows += step
    return rows


def append_to_both(rows: list[Row], lake: Lake) -> None:
    with lake.transaction(NAMES) as tx:
        for name in NAMES:
            tx.table(name).append(rows)


def order(rows: list[Row]) -> list[tuple[str, int]]:
    return sorted((str(row["u"]), row["n"]) for row in rows)


@settings(max_examples=examples(25), deadline=None)
@given(STEPS, st.sampled_from(sorted(CONDITIONS)), st.booleans())
def test_an_erasure_of_plain_rows(steps: list[Any], where: str, vectors: bool) -> None:
    clock = ManualClock()
    lake = Lake(MemoryStore("erase", clock), clock)
    properties = {"delta.enableDeletionVectors": str(vectors).lower()}
    for name in NAMES:
        lake.create_table(name, {"u": "string", "n": "long"}, sort_by=["n"], properties=properties)
    table = lake.table("t")
    rows = carry_out(table, steps)
    report = table.erase(where, prove=True)
    gone = CONDITIONS[where]
    assert report.ok
    assert report.rows == sum(map(gone, rows))
    assert order(table.to_arrow().to_pylist()) == order([row for row in rows if not gone(row)])
    for info in lake.store.list("t/part-"):
        assert not any(map(gone, pq.read_table(pa.BufferReader(lake.store.get(info.key))).to_pylist()))
    if where == "u = 'mallory'":
        assert traces(lake.store, "mallory", "t/") == []
