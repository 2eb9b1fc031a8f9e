"""SHOW CREATE TABLE gives a text that, run, makes the same table."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import alluvia
from alluvia.errors import Invalid
from alluvia.store.memory import MemoryStore
from tests.examples import examples

NAMES = ["a", "Day", "select", 'q"uote', "it's", "ä", "b-c", "dotted.name", "1st", "from"]
LEAVES = [
    *(pa.string(), pa.int64(), pa.int32(), pa.int16(), pa.int8(), pa.float32(), pa.float64(), pa.bool_()),
    *(pa.binary(), pa.date32(), pa.timestamp("us", tz="UTC"), pa.timestamp("us"), pa.decimal128(38, 0)),
    *(pa.decimal128(10, 2), pa.decimal128(5, 5)),
]


def nested(kinds: st.SearchStrategy[pa.DataType]) -> st.SearchStrategy[pa.DataType]:
    field = st.builds(pa.field, st.just("element"), kinds, nullable=st.booleans())
    fields = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique_by=str.lower).flatmap(
        lambda names: st.tuples(*(st.builds(pa.field, st.just(name), kinds, nullable=st.booleans()) for name in names))
    )
    return st.one_of(
        field.map(pa.list_),
        st.builds(pa.map_, st.sampled_from(LEAVES[:3]), field),
        fields.map(lambda each: pa.struct(list(each))),
    )


KINDS = st.recursive(st.sampled_from(LEAVES), nested, max_leaves=4)


def transforms(kind: pa.DataType) -> list[str]:
    """Return how a table may be partitioned by a column of a type without fields, most often."""
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return ["{}", "day({})", "hour({})"]
    if pa.types.is_string(kind) or pa.types.is_integer(kind):
        return ["{}", "bucket(8, {})", "truncate({}, 3)"]
    return ["{}"]


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    """Arguments of `create_table`, most of which make a table."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=2, max_size=5, unique_by=str.lower))
    comments = st.sampled_from([None, None, {"comment": 'it\'s\n-- "ä"; $$'}])
    fields = [pa.field(name, draw(KINDS), draw(st.booleans()), draw(comments)) for name in names]
    schema = pa.schema([pa.field("id", pa.int64()), pa.field("w-x", pa.int32()), *fields])
    flat = [field for field in fields if not pa.types.is_nested(field.type)]
    some = st.lists(st.sampled_from(flat), max_size=2, unique=True) if flat else st.just([])
    partition_by = [draw(st.sampled_from(transforms(field.type))).format(field.name) for field in draw(some)]
    properties = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "mine": st.sampled_from(["", "it's", '"', "ä\n--", "$x?"]),
                "it's.own": st.just("x"),
                "delta.appendOnly": st.just("true"),
                "delta.enableDeletionVectors": st.just("true"),
                "delta.enableChangeDataFeed": st.just("true"),
                "alluvia.target_file_size": st.just("1mb"),
                "alluvia.codec": st.just("snappy"),
                "delta.checkpointInterval": st.just("7"),
            },
        )
    )
    checks = {"c": "id IS NULL OR id > 0", 'Od"d': "id IN (1, 2) OR id IS NULL", "tick": "`w-x` IS NULL OR `w-x` > 0"}
    for name in draw(st.lists(st.sampled_from(sorted(checks)), unique=True)):
        properties[f"delta.constraints.{name}"] = checks[name]
    sort_by = [field.name for field in draw(some)]
    comment = draw(st.sampled_from([None, "what it's for"]))
    layout = {"partition_by": partition_by, "sort_by": sort_by}
    return {"schema": schema, "properties": properties, "comment": comment, **layout}


@pytest.mark.usefixtures("light")
@settings(max_examples=examples(25))
@given(tables())
def test_what_show_create_table_gives_makes_the_same_table(arguments: dict[str, Any]) -> None:
    lake = alluvia.Lake(MemoryStore("created"), alluvia.clock.SystemClock())
    try:
        one = lake.create_table("one", **arguments)
    except Invalid:  # a struct to sort by, or a day of a text: there is no such table
        assume(False)
    shown = lake.sql("SHOW CREATE TABLE one").to_pylist()[0]["create_statement"]
    lake.sql(shown.replace("CREATE TABLE one", "CREATE TABLE other", 1))
    before, after = one.snapshot().state, lake["other"].snapshot().state
    assert json.loads(after.metadata.schema_string) == json.loads(before.metadata.schema_string)
    assert after.metadata.description == before.metadata.description
    assert after.metadata.partition_columns == before.metadata.partition_columns
    assert {name: text.strip() for name, text in after.metadata.configuration.items()} == {
        name: text.strip() for name, text in before.metadata.configuration.items()
    }
    assert after.protocol == before.protocol
    assert lake.sql("SHOW CREATE TABLE other").to_pylist()[0]["create_statement"] == shown.replace(
        " one ", " other ", 1
    )
