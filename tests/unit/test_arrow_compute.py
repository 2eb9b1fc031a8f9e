"""Arrow's functions that are made one by one do what those of `pyarrow.compute` do."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute
import pytest

from alluvia import arrow_compute
from alluvia.arrow_compute import pc

LIBRARY = Path(arrow_compute.__file__).parent
USED = sorted({name for path in LIBRARY.rglob("*.py") for name in re.findall(r"\bpc\.(\w+)", path.read_text())})
NUMBERS = pa.array([3, 1, None, 2])
TEXTS = pa.array(["b,a", None, "a"])
Call = Callable[[Any], Any]
CALLS: list[Call] = [
    lambda pc: pc.add(NUMBERS, 1),
    lambda pc: pc.and_(pa.array([True, None]), pa.array([True, False])),
    lambda pc: pc.fill_null(NUMBERS, 0),
    lambda pc: pc.fill_null(NUMBERS, pa.array([9, 9, 9, 9])),
    lambda pc: pc.fill_null(pa.chunked_array([NUMBERS]), pa.scalar(7)),
    lambda pc: pc.binary_join_element_wise(TEXTS, "x", "-", null_handling="skip"),
    lambda pc: pc.is_in(NUMBERS, value_set=pa.array([1, None])),
    lambda pc: pc.is_in(NUMBERS, pa.array([1, None]), skip_nulls=True),
    lambda pc: pc.min_max(NUMBERS, skip_nulls=False),
    lambda pc: pc.sum(NUMBERS, skip_nulls=False),
    lambda pc: pc.sum(NUMBERS, options=vars(pyarrow.compute)["ScalarAggregateOptions"](skip_nulls=False)),
    lambda pc: pc.sort_indices(NUMBERS, sort_keys=[("", "descending")]),
    lambda pc: pc.split_pattern(TEXTS, ","),
    lambda pc: pc.struct_field(pa.array([{"a": {"b": 1}}]), ["a", "b"]),
    lambda pc: pc.index(NUMBERS, 1),
    lambda pc: pc.cast(NUMBERS, pa.string()),
    lambda pc: pc.cast(pa.array([1.5]), pa.int64(), safe=False),
    lambda pc: pc.filter(pa.record_batch({"a": NUMBERS}), pc.is_valid(NUMBERS)),
    lambda pc: pc.take(NUMBERS, pa.array([1, 0])),
    lambda pc: pc.field("a").equals(pc.field("a")),
]
WRONG: list[Call] = [
    lambda pc: pc.add(NUMBERS),
    lambda pc: pc.add(NUMBERS, 1, 2),
    lambda pc: pc.add(NUMBERS, 1, skip_nulls=True),
    lambda pc: pc.is_in(NUMBERS),
    lambda pc: pc.is_in(NUMBERS, nothing=1),
    lambda pc: pc.split_pattern(TEXTS),
    lambda pc: pc.cast(pa.array([1.5]), pa.int64()),
    lambda pc: pc.take(NUMBERS, pa.array([9])),
]


@pytest.mark.parametrize("call", CALLS)
def test_functions_and_their_options(call: Call) -> None:
    assert call(pc) == call(pyarrow.compute)


@pytest.mark.parametrize("call", WRONG)
def test_wrong_arguments_are_refused(call: Call) -> None:
    with pytest.raises((TypeError, pa.ArrowException)) as expected:
        call(pyarrow.compute)
    with pytest.raises(expected.type):
        call(pc)


@pytest.mark.parametrize("name", USED)
def test_what_pyarrow_defines_itself_is_not_taken_from_the_registry(name: str) -> None:
    is_generated = hasattr(getattr(pyarrow.compute, name), "__arrow_compute_function__")
    assert is_generated or name in ("cast", "fill_null", "index", "take")  # which are compared above


def test_names_that_are_not_there() -> None:
    with pytest.raises(AttributeError, match="no_such_function"):
        pc.no_such_function  # type: ignore[attr-defined] # noqa: B018


def test_one_function_does_not_load_the_others() -> None:
    code = (
        "import sys; import pyarrow as pa; from alluvia.arrow_compute import pc;"
        "print(pc.fill_null(pc.sum(pa.array([1, 2])), 0), 'pyarrow.compute' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["3", "False"]


CHANGES = """
import sys
import alluvia
table = alluvia.connect(sys.argv[1]).create_table("t", {"id": "long", "name": "string", "value": "double"})
table.append([{"id": row, "name": f"n{row}", "value": row / 2} for row in range(100)])
print(table.delete("id % 10 = 3").rows_deleted, table.update({"value": "value + 1"}, "id % 10 = 4").rows_updated)
print("pyarrow.compute" in sys.modules)
"""


def test_rows_change_without_the_module_of_all_functions(tmp_path: Path) -> None:
    """Loading it takes a sixth of the CPU time of an update of 10,000 of a million rows."""
    command = [sys.executable, "-c", CHANGES, str(tmp_path)]
    found = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert found.stdout.split() == ["10", "10", "False"]
