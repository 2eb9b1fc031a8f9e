"""Appending rows with new columns: columns and rows in one commit."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake
from alluvia.errors import Invalid
from alluvia.store import CountingStore
from tests.unit.operations.races import Race

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string())])


def test_new_columns_come_with_their_rows(lake: Lake) -> None:
    table = lake.create_table("t", SCHEMA)
    table.append([{"id": 1}])
    commit = table.append(pa.table({"id": [2], "score": [1.5], "tags": [["x"]]}), evolve=True)
    assert (commit.version, commit.rows) == (2, 1)
    assert table.snapshot().schema == pa.schema(
        [*SCHEMA, ("score", pa.float64()), ("tags", pa.list_(pa.field("element", pa.string())))]
    )
    assert table.scan().read_all().to_pylist() == [
        {"id": 1, "name": None, "score": None, "tags": None},
        {"id": 2, "name": None, "score": 1.5, "tags": ["x"]},
    ]
    assert table.snapshot(1).schema == SCHEMA


def test_without_new_columns_it_is_an_append_like_any_other(lake: Lake, store: CountingStore) -> None:
    table = lake.create_table("t", SCHEMA)
    store.reset()
    table.append([{"id": 1}], evolve=True)
    assert store.requests == {"put": 2}


def test_columns_that_must_not_be_null_become_nullable(lake: Lake) -> None:
    table = lake.create_table("t", SCHEMA)
    rows = pa.table({"id": [1], "n": [1]}, pa.schema([("id", pa.int64()), pa.field("n", pa.int32(), nullable=False)]))
    table.append(rows, evolve=True)
    assert table.snapshot().schema.field("n").nullable


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        ([{"id": 1, "extra": None}], "column extra: all its values are null"),
        ([{"id": 1, "extra": 1}, {"id": 1, "extra": "x"}], "column extra: its values do not have one type"),
        ([{"id": "x", "extra": 1}], "column id: 'x' is not a valid long"),
        (pa.table({"id": ["x"], "extra": [1]}), "column id is long in the table, but the rows have string: cast them"),
        (pa.table({"id": [1.5], "extra": [1]}), "column id is long in the table, but the rows have double"),
        (
            pa.table({"ID": [1]}),
            "column id already exists, as long; a column cannot change its type: add a column with another",
        ),
        (pa.table({"id": [1], "Name": [1]}), "column name already exists, as string"),
        (pa.table({"id": [1], "big": pa.array([1], pa.uint64())}), "column big"),
    ],
)
def test_what_would_narrow_rename_or_change_is_refused_by_name(lake: Lake, rows: Any, named: str) -> None:
    table = lake.create_table("t", SCHEMA)
    with pytest.raises(Invalid, match=named):
        table.append(rows, evolve=True)
    assert table.snapshot().version == 0


def test_unknown_columns_are_refused_without_it(lake: Lake) -> None:
    table = lake.create_table("t", SCHEMA)
    with pytest.raises(Invalid, match="column extra is not in the table"):
        table.append([{"id": 1, "extra": 1}])


def test_once_for_each_txn(lake: Lake) -> None:
    table = lake.create_table("t", SCHEMA)
    for _ in range(2):
        assert table.append([{"id": 1, "extra": 1}], txn=("app", 1), evolve=True).version == 1
    assert table.append([{"id": 2, "other": 1}], txn=("app", 1), evolve=True).rows == 0
    assert len(table.scan().read_all()) == 1
    with pytest.raises(Invalid, match="txn"):
        table.append([{"id": 2, "other": 1}], txn=("app", -1), evolve=True)


# Concurrent commits: they win right before ours is put.


def test_the_same_column_that_wins(lake: Lake) -> None:
    lake.create_table("t", SCHEMA)
    race = Race(lake)
    row = {"id": 1, "extra": 1}
    ours = race.table(lambda theirs: theirs.append([row], evolve=True))
    assert ours.append([row], evolve=True).version == 2
    assert lake.table("t").scan().read_all().to_pylist() == [{"id": 1, "name": None, "extra": 1}] * 2
    assert [entry.operation for entry in lake.table("t").history(2)] == ["WRITE", "WRITE"]


def test_another_column_that_wins(lake: Lake) -> None:
    lake.create_table("t", SCHEMA)
    race = Race(lake)
    ours = race.table(lambda theirs: theirs.append([{"id": 2, "theirs": 1}], evolve=True))
    race.store.reset()
    ours.append([{"id": 1, "ours": 1}], evolve=True)
    assert lake.table("t").snapshot().schema.names == ["id", "name", "theirs", "ours"]
    assert len([key for kind, key in race.store.keys if kind == "put" and "/part-" in key]) == 1


def test_the_same_column_of_another_type_that_wins(lake: Lake) -> None:
    lake.create_table("t", SCHEMA)
    race = Race(lake)
    ours = race.table(lambda theirs: theirs.append([{"id": 2, "extra": "text"}], evolve=True))
    with pytest.raises(Invalid, match="column extra"):
        ours.append([{"id": 1, "extra": 1}], evolve=True)
    assert len(lake.table("t").scan().read_all()) == 1


def test_a_reader_cannot_be_read_again(lake: Lake) -> None:
    lake.create_table("t", SCHEMA)
    race = Race(lake)
    rows = pa.table({"id": [1], "extra": [1]})

    def batches() -> Iterator[pa.RecordBatch]:
        yield from rows.to_batches()

    ours = race.table(lambda theirs: theirs.evolve(properties={"alluvia.sort_by": '["id"]'}))
    with pytest.raises(Invalid, match="changed in the meantime: append again"):
        ours.append(pa.RecordBatchReader.from_batches(rows.schema, batches()), evolve=True)
    assert ours.append(rows, evolve=True).version == 2
