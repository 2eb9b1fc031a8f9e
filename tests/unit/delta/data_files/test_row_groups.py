"""Row groups are small if that lets queries skip rows, and large otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from alluvia import connect
from alluvia.api.lake import Table
from alluvia.delta.data_files.row_groups import SELECTIVE_ROWS
from alluvia.delta.properties import ROW_GROUP_ROWS_MAX

ROWS = ROW_GROUP_ROWS_MAX + 1000
NUMBERS = pa.array(range(ROWS), pa.int64())
KINDS = pa.array([row * 3 // ROWS for row in range(ROWS)], pa.int64())


def groups(table: Table) -> list[int]:
    found = table.lake.sql(f"SELECT rows FROM row_groups('{table.name}') ORDER BY row_group")
    return [int(rows) for rows in found["rows"].to_pylist()]


def written(folder: Path, rows: pa.Table, sort_by: Sequence[str], **properties: str) -> Table:
    table = connect(str(folder)).create_table("t", rows.schema, sort_by=sort_by, properties=properties)
    table.append(rows)
    return table


def test_sorted_rows_of_many_values_are_in_small_groups_also_after_a_merge_and_an_update(tmp_path: Path) -> None:
    rows = pa.table({"id": NUMBERS, "kind": KINDS})
    table = written(tmp_path, rows, ["id"])
    assert groups(table) == [*[SELECTIVE_ROWS] * 4, 1000]
    table.append(rows.slice(0, 10))
    table.optimize()
    assert max(groups(table)) == SELECTIVE_ROWS
    assert sum(groups(table)) == ROWS + 10
    table.update({"kind": "5"}, where="id = 7")
    assert max(groups(table)) == SELECTIVE_ROWS
    bounds = table.lake.sql("SELECT statistics.id.min AS low, statistics.id.max AS high FROM row_groups('t')")
    assert sum(each["low"] <= 100_000 <= each["high"] for each in bounds.to_pylist()) == 1
    assert table.count() == ROWS + 10


def test_times_after_the_year_9999_are_sorted_too(tmp_path: Path) -> None:
    after_9999 = pc.add(NUMBERS, 253_402_300_800_000_000).cast(pa.timestamp("us", "UTC"))
    assert groups(written(tmp_path, pa.table({"ts": after_9999}), ["ts"])) == [*[SELECTIVE_ROWS] * 4, 1000]


@pytest.mark.parametrize("sort_by", [[], ["kind"]])
def test_rows_without_an_order_or_with_few_values_are_in_large_groups(tmp_path: Path, sort_by: list[str]) -> None:
    table = written(tmp_path, pa.table({"id": NUMBERS, "kind": pa.nulls(ROWS, pa.int64())}), sort_by)
    assert groups(table) == [ROW_GROUP_ROWS_MAX, 1000]


def test_small_files_have_one_group(tmp_path: Path) -> None:
    assert groups(written(tmp_path, pa.table({"id": NUMBERS.slice(0, SELECTIVE_ROWS)}), ["id"])) == [SELECTIVE_ROWS]


def test_groups_of_many_columns_stay_large_because_every_query_reads_the_footer(tmp_path: Path) -> None:
    rows = pa.table({"id": NUMBERS, **{f"c{at}": pa.nulls(ROWS, pa.int64()) for at in range(300)}})
    assert groups(written(tmp_path, rows, ["id"])) == [ROW_GROUP_ROWS_MAX, 1000]


def test_a_size_that_is_set_wins(tmp_path: Path) -> None:
    properties = {"alluvia.row_group_rows": "100000"}
    assert groups(written(tmp_path, pa.table({"id": NUMBERS}), ["id"], **properties)) == [100_000, ROWS - 100_000]


@pytest.mark.parametrize("order", ["sort_by", "cluster_by"])
def test_groups_stay_small_after_the_sorted_column_was_renamed(tmp_path: Path, order: str) -> None:
    table = connect(str(tmp_path)).create_table("t", pa.schema([("id", pa.int64())]))
    table.evolve(rename={"id": "number"}, properties={f"alluvia.{order}": '["number"]'})
    table.append(pa.table({"number": NUMBERS}))
    assert groups(table) == [*[SELECTIVE_ROWS] * 4, 1000]
    table.append(pa.table({"number": NUMBERS.slice(0, 10)}))
    table.optimize()
    assert max(groups(table)) == SELECTIVE_ROWS
    table.update({"number": "number + 1"}, where="number = 7")
    assert max(groups(table)) == SELECTIVE_ROWS
