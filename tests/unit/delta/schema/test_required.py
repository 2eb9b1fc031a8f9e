"""Nulls inside structs, lists and maps, where a table has none."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from alluvia.api.lake import connect
from alluvia.delta.schema.nesting import check_required, has_required
from alluvia.errors import Invalid

NUMBER = pa.field("a", pa.int64(), nullable=False)
STRUCT = pa.struct([NUMBER, pa.field("b", pa.struct([pa.field("c", pa.string(), nullable=False)]))])
LIST = pa.list_(pa.field("element", pa.int64(), nullable=False))
MAP = pa.map_(pa.string(), pa.field("value", pa.int64(), nullable=False))
DEEP = pa.list_(pa.struct([pa.field("m", pa.map_(pa.string(), pa.struct([NUMBER])))]))

FREE = {
    str(STRUCT): pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string())]))]),
    str(LIST): pa.large_list(pa.int64()),
    str(MAP): pa.map_(pa.string(), pa.int64()),
    str(DEEP): pa.list_(pa.struct([("m", pa.map_(pa.string(), pa.struct([("a", pa.int64())])))])),
}


@pytest.mark.parametrize("kind", [pa.int64(), pa.list_(pa.int64()), pa.map_(pa.string(), pa.int64())])
def test_types_without_required_fields_are_known(kind: pa.DataType) -> None:
    assert not has_required(kind)
    check_required(pa.chunked_array([pa.nulls(2, kind)]), kind, "x")


@pytest.mark.parametrize("sliced", [0, 1])
@pytest.mark.parametrize(
    ("kind", "values", "named"),
    [
        (STRUCT, [{"a": None, "b": None}], "x.a must not be null, but 1 of its 2"),
        (STRUCT, [{"a": 1, "b": {"c": None}}], "x.b.c must not be null, but 1 of its 1"),
        (LIST, [[1, None]], "x.element must not be null"),
        (MAP, [[("k", None)]], "x.value must not be null"),
        (DEEP, [[{"m": [("k", {"a": None})]}]], "x.element.m.value.a must not be null"),
    ],
)
def test_a_null_is_named_by_its_path(kind: pa.DataType, values: list[Any], named: str, sliced: int) -> None:
    good: list[Any] = [None, {"a": 1, "b": None}] if kind is STRUCT else [None, []]
    array = pa.array([None, *values, *good], FREE[str(kind)]).slice(sliced)
    with pytest.raises(Invalid, match=named):
        check_required(pa.chunked_array([array]), kind, "x")
    check_required(pa.chunked_array([array.slice(2 - sliced)]), kind, "x")


def test_a_struct_that_lacks_the_field_has_no_value_for_it() -> None:
    column = pa.chunked_array([pa.array([None, {"z": 1}], pa.struct([("z", pa.int64())]))])
    with pytest.raises(Invalid, match=r"x\.a must not be null, but 1 of its 1"):
        check_required(column, STRUCT, "x")


def test_appends_are_refused_by_the_path(tmp_path: Any) -> None:
    table = connect(str(tmp_path)).create_table("t", pa.schema([("k", pa.int64()), ("st", STRUCT)]))
    table.append([{"st": None}, {"st": {"a": 1, "b": {"c": "x"}}}])
    for rows in ([{"st": {"a": None}}], pa.table({"st": pa.array([{"a": None, "b": None}], FREE[str(STRUCT)])})):
        with pytest.raises(Invalid, match=r"column st.a must not be null"):
            table.append(rows)
    with pytest.raises(Invalid, match="st"):
        table.update({"st": "{'a': NULL, 'b': NULL}"})
    assert len(table.scan().read_all()) == 2
