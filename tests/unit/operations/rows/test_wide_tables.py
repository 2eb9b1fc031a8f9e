"""What a table of very many columns costs: in proportion to them, counted in steps of Python's interpreter."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import alluvia
from alluvia.api.lake import Table

FEW, MANY = 50, 200
Work = Callable[[Table, list[dict[str, Any]]], object]
WORKS: dict[str, Work] = {
    "upsert": lambda table, rows: table.upsert(rows, on=["k"]),
    "upsert of an Arrow table": lambda table, rows: table.upsert(pa.Table.from_pylist(rows), on=["k"]),
    "update": lambda table, rows: table.update({"c1": "c1 + 1"}, where="k = 1"),
    "delete": lambda table, rows: table.delete("k = 1"),
    "append": lambda table, rows: table.append(rows),
    "read": lambda table, rows: table.to_arrow(),
}


def steps_of(work: Callable[[], object]) -> int:
    steps = 0

    def traced(frame: FrameType, event: str, argument: object) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = True
        steps += event == "opcode"
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        work()
    finally:
        sys.settrace(before)
    return steps


def cost(name: str, columns: int) -> int:
    lake = alluvia.connect(f"memory://wide-{name}-{columns}")
    table = lake.create_table("t", {"k": "long"} | {f"c{at}": "long" for at in range(columns)})
    rows = [{"k": number} | {f"c{at}": number for at in range(columns)} for number in range(3)]
    table.append(rows)
    return steps_of(lambda: WORKS[name](table, rows[1:]))


@pytest.mark.parametrize("name", WORKS)
def test_the_cost_grows_as_the_columns_do(name: str) -> None:
    cost(name, 5)  # what is loaded, and kept, once
    assert cost(name, MANY) < cost(name, FEW) * MANY / FEW * 1.5
