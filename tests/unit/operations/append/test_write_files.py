"""Committing files that many processes have written: what others did to the table in the meantime."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.errors import Invalid, Unsupported
from alluvia.operations.append.write_files import FileWrite, commit_written, file_writer, plan_write
from tests.unit.operations.row_samples import ids, make

NONE = pa.schema([])


def written(
    table: Table,
    numbers: Sequence[int],
    replaces: str | None = None,
    *,
    new: pa.Schema = NONE,
    txn: tuple[str, int] | None = None,
) -> Callable[[], int | None]:
    """Write files, and return what commits them and gives the number of rows."""
    handle = table.lake.catalog.handle(table.name)
    base = handle.newest()
    write: FileWrite = plan_write(handle, base, new, replaces, txn)
    rows = pa.table({"id": numbers, "name": ["new"] * len(numbers), "place": ["z"] * len(numbers)})
    for field in new:
        rows = rows.append_column(field, pa.array([1.5] * len(numbers), field.type))
    adds = file_writer(handle, write, base).write(rows.cast(write.snapshot(base).schema))
    return lambda: commit_written(handle, write, adds).rows


def test_appended_files_follow_what_others_commit(lake: Lake) -> None:
    table = make(lake)
    commit = written(table, [100])
    table.append([{"id": 200, "place": "z"}])
    table.delete("id < 10")
    table.evolve(add={"more": "long"})
    assert commit() == 1
    assert ids(table) == [*range(10, 30), 100, 200]


def test_what_is_replaced_is_what_is_there_when_it_commits(lake: Lake) -> None:
    table = make(lake, "vectors")
    commit = written(table, [100], "place = 'z' OR id = 7")
    table.append([{"id": 200, "place": "z"}, {"id": 201, "place": "y"}])
    table.optimize(full=True)
    assert commit() == 1
    assert ids(table) == [*range(7), *range(8, 30), 100, 201]
    assert table.history(1)[0].parameters == {"mode": "Overwrite", "predicate": "place = ? OR id = ?"}
    assert written(table, [], "true")() == 0
    assert ids(table) == []


def test_a_transaction_is_committed_once(lake: Lake) -> None:
    table = make(lake)
    first, second = (written(table, [100], "true", txn=("app", 1)) for _ in range(2))
    assert (first(), second()) == (1, 0)
    assert ids(table) == [100]


def test_columns_come_with_the_files_even_where_another_writer_adds_them_too(lake: Lake) -> None:
    table, new = make(lake), pa.schema([("score", pa.float64())])
    commit, other = written(table, [100], new=new), written(table, [101], new=new)
    assert (commit(), other()) == (1, 1)
    assert table.snapshot().schema.names == ["id", "name", "place", "score"]
    assert table.to_arrow(["score"], "id > 99")["score"].to_pylist() == [1.5, 1.5]
    table.evolve(rename={"name": "title"})
    commit, other = written_mapped(table, 7), written_mapped(table, 8)
    assert commit() == 1
    with pytest.raises(Invalid, match="write again"):  # the other's files have another name for the column
        other()
    assert table.to_arrow(["more"], "more IS NOT NULL")["more"].to_pylist() == [7]


def written_mapped(table: Table, value: int) -> Callable[[], int | None]:
    """Write a file with a new column to a table that names its columns in files otherwise."""
    handle = table.lake.catalog.handle(table.name)
    base = handle.newest()
    write = plan_write(handle, base, pa.schema([("more", pa.int64())]))
    schema = write.snapshot(base).schema
    rows = pa.Table.from_pylist([{"more": value}], schema)
    adds = file_writer(handle, write, base).write(rows)
    return lambda: commit_written(handle, write, adds).rows


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.evolve(rename={"name": "title"}),
        lambda table: table.evolve(properties={"alluvia.target_file_size": "1 MB"}),
        lambda table: (table.lake.drop_table("t"), make(table.lake)),
    ],
    ids=["a column renamed", "a property set", "a new table"],
)
def test_files_for_another_table_are_not_committed(lake: Lake, change: Callable[[Table], object]) -> None:
    table = make(lake)
    commit = written(table, [100])
    change(table)
    with pytest.raises(Invalid, match="changed in the meantime: write again"):
        commit()
    assert 100 not in ids(table)


def test_part_of_a_file_is_not_replaced_where_the_change_feed_would_miss_rows(lake: Lake) -> None:
    table = make(lake, properties={"delta.enableChangeDataFeed": "true"})
    with pytest.raises(Unsupported, match="change data feed"):
        written(table, [100], "place = 'z' OR id = 5")()
    assert written(table, [100], "place = 'z' OR id >= 10 AND id < 20")() == 1
    assert ids(table) == [*range(10), *range(20, 30), 100]
