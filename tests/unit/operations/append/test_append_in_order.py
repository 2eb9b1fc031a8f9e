"""Rows that come a part at a time: files are as large as the table asks for, and few rows are held."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.errors import Invalid
from alluvia.operations.append import append
from alluvia.store import CountingStore

ROWS = 50_000
PART = 700
TARGET = 30_000
GROUP = 1000
PROPERTIES = {"alluvia.target_file_size": f"{TARGET}", "alluvia.row_group_rows": f"{GROUP}"}


@pytest.fixture(autouse=True)
def parts_are_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append, "GATHERED_BYTES", 40_000)


@pytest.fixture
def rows() -> pa.Table:
    ids = range(ROWS)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": [None if at % 7 == 3 else f"name {at * 7919 % ROWS}" for at in ids],
            "place": [{"x": float(at % 13), "tags": [f"t{at % 3}"] * (at % 4)} for at in ids],
        }
    )


def reader(rows: pa.Table) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(rows.schema, rows.to_batches(max_chunksize=PART))


def files_of(table: Table, store: CountingStore) -> list[tuple[pq.ParquetFile, dict[str, Any], int]]:
    """Return each file, with its statistics and size, in the order of their first ids."""
    found = []
    for file in table.snapshot().files:
        data = store.get(f"t/{file.path}")
        assert len(data) == file.size
        found.append((pq.ParquetFile(io.BytesIO(data)), json.loads(file.stats or "{}"), file.size))
    return sorted(found, key=lambda each: each[1]["minValues"]["id"])


@pytest.mark.parametrize("more", [{}, {"delta.constraints.small": f"id < {ROWS}"}])
def test_files_have_the_size_and_the_order_of_the_rows(
    lake: Lake, store: CountingStore, rows: pa.Table, more: dict[str, str]
) -> None:
    table = lake.create_table("t", rows.schema, properties=PROPERTIES | more)
    store.reset()
    commit = table.append(reader(rows))
    assert (commit.rows, store.requests["put"]) == (ROWS, commit.files + 1)
    assert table.to_arrow().sort_by("id").equals(rows)
    files = files_of(table, store)
    assert len(files) > 3
    assert all(0.85 * TARGET < size < 1.25 * TARGET for _, _, size in files[:-1]), [size for *_, size in files]
    start = 0
    for file, stats, _ in files:
        own = rows.slice(start, file.metadata.num_rows)
        assert file.read()["id"].to_pylist() == own["id"].to_pylist()
        groups = [file.metadata.row_group(at).num_rows for at in range(file.metadata.num_row_groups)]
        assert set(groups[:-1]) == {GROUP}
        names = [name for name in own["name"].to_pylist() if name is not None]
        assert stats["numRecords"] == len(own)
        assert (stats["minValues"]["id"], stats["maxValues"]["id"]) == (start, start + len(own) - 1)
        assert (stats["minValues"]["name"], stats["maxValues"]["name"]) == (min(names), max(names))
        assert stats["nullCount"]["name"] == len(own) - len(names)
        start += len(own)
    assert start == ROWS


def test_a_row_that_breaks_a_rule_late_stops_the_commit(lake: Lake, rows: pa.Table) -> None:
    table = lake.create_table("t", rows.schema, properties=PROPERTIES | {"delta.constraints.small": f"id < {ROWS - 1}"})
    with pytest.raises(Invalid, match="small"):
        table.append(reader(rows))
    assert table.snapshot().version == 0


def test_rows_of_a_table_with_an_order_are_sorted(lake: Lake, store: CountingStore, rows: pa.Table) -> None:
    table = lake.create_table("t", rows.schema, sort_by=["name"], properties=PROPERTIES)
    table.append(reader(rows))
    for file in table.snapshot().files:
        names = pq.read_table(io.BytesIO(store.get(f"t/{file.path}")))["name"].to_pylist()
        assert names == sorted(names, key=lambda name: (name is None, name))


@pytest.mark.parametrize("count", [0, 1, PART, 2 * PART + 1, 2 * GROUP])
def test_few_rows(lake: Lake, rows: pa.Table, count: int) -> None:
    table = lake.create_table("t", rows.schema, properties=PROPERTIES)
    commit = table.append(reader(rows.slice(0, count)))
    assert (commit.rows, commit.files) == (count, 1 if count else 0)
    assert table.to_arrow().sort_by("id").equals(rows.slice(0, count))


def test_columns_with_other_names_in_files(lake: Lake, rows: pa.Table) -> None:
    table = lake.create_table("t", rows.schema, properties=PROPERTIES)
    table.evolve(rename={"name": "called"})
    rows = rows.rename_columns(["id", "called", "place"]).cast(table.snapshot().schema)
    assert table.append(reader(rows)).files > 3
    assert table.to_arrow().sort_by("id").equals(rows)
    assert table.to_arrow(where=f"id >= {ROWS - 10}").num_rows == 10


def test_variants_in_one_file_have_the_same_columns(lake: Lake) -> None:
    schema = {"id": "long", "properties": "string"}
    table = lake.create_table("t", schema, properties={**PROPERTIES, "alluvia.properties": "variant"})
    texts = ['{"a":1}' if at < ROWS // 2 else '{"b":"x"}' for at in range(ROWS)]
    table.append(reader(pa.table({"id": range(ROWS), "properties": texts})))
    assert table.to_arrow().sort_by("id")["properties"].to_pylist() == texts


@pytest.mark.parametrize("target", [TARGET // 3, TARGET])
def test_files_have_their_size_also_if_one_row_group_could_exceed_it(
    lake: Lake, store: CountingStore, rows: pa.Table, target: int
) -> None:
    properties = {"alluvia.target_file_size": f"{target}"}
    table = lake.create_table("t", rows.schema, properties=properties)
    commit = table.append(reader(rows))
    assert (commit.rows, table.to_arrow().sort_by("id").equals(rows)) == (ROWS, True)
    sizes = [size for *_, size in files_of(table, store)]
    assert all(0.85 * target < size < 1.25 * target for size in sizes[:-1]), sizes


def test_bloom_filters_of_a_column_with_another_name_in_files(disk: Lake, rows: pa.Table) -> None:
    table = disk.create_table("t", rows.schema, properties=PROPERTIES)
    table.evolve(rename={"name": "called"}, properties={"alluvia.bloom_filters": '["called"]'})
    rows = rows.rename_columns(["id", "called", "place"]).cast(table.snapshot().schema)
    assert table.append(reader(rows)).files > 3
    for file in table.snapshot().files:
        path = disk.store.local_path(table.snapshot().key(file))
        probe = f"SELECT bool_or(bloom_filter_excludes) FROM parquet_bloom_probe('{path}', 'name', 'no name')"
        assert duckdb.sql(probe).fetchall() == [(True,)]


@pytest.mark.parametrize("evolve", [False, True])
def test_an_append_that_stops_leaves_no_files(lake: Lake, store: CountingStore, rows: pa.Table, evolve: bool) -> None:
    table = lake.create_table("t", rows.schema, properties=PROPERTIES)
    more = rows.append_column("more", rows["id"]) if evolve else rows

    def stopping() -> Iterator[pa.RecordBatch]:
        yield from more.to_batches(max_chunksize=PART)
        raise Invalid("the rest cannot be read")

    with pytest.raises(Invalid, match="the rest cannot be read"):
        table.append(pa.RecordBatchReader.from_batches(more.schema, stopping()), evolve=evolve)
    assert store.requests["put"] > 3
    assert [each for each in store.list("t/") if each.key.endswith(".parquet")] == []
