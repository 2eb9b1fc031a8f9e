"""Columns whose names Delta allows only with column mapping: every way to make one, and other readers' rows."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import alluvia
from alluvia.api.lake import Lake, Table
from alluvia.delta.log.features import COLUMN_MAPPING
from alluvia.delta.schema.column_mapping import ID, MAX_ID, NAME
from alluvia.errors import Invalid
from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import Limits
from alluvia.operations.tables.evolve import plan_merge
from tests import judges

SPECIAL = ["order id", "a,b", "a;b", "{a}", "sum(x)", "tab\tname", "two\nlines", "a=b"]
ROWS = [{name: f"{name} {number}" for name in SPECIAL} | {"plain": number} for number in range(3)]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return alluvia.connect(str(tmp_path))


def _agree(table: Table, *partitions: str) -> None:
    """delta_scan takes the values of a partition column that has another name in the log for null."""
    for version in range(table.snapshot().version + 1):
        rows = judges.ours(table, version)
        by_sql = judges.canonical(judges.deltalake_sql_table(table, version))
        assert by_sql == rows, f"deltalake reads other rows of version {version}"
        mine = table.to_arrow(version=version).drop_columns(list(partitions))
        by_duckdb = judges.duckdb_table(table, version).drop_columns(list(partitions))
        assert judges.canonical(by_duckdb) == judges.canonical(mine), f"delta_scan reads other rows of {version}"


def test_a_new_table_has_column_mapping_if_a_name_needs_it(lake: Lake, tmp_path: Path) -> None:
    plain = lake.create_table("p", {"plain": "long", "x-y": "string", "é": "string"})
    assert COLUMN_MAPPING not in (plain.snapshot().protocol.writer_features or ())
    table = lake.create_table("t", dict.fromkeys(SPECIAL, "string") | {"plain": "long"}, sort_by=["order id"])
    table.append(ROWS)
    assert table.to_arrow().sort_by("plain").to_pylist() == ROWS
    assert table.snapshot().physical_name("plain") == "plain"
    (file,) = (tmp_path / "t").glob("*.parquet")
    stored = pq.read_schema(file).names
    assert (len(stored), stored[-1], set(stored) & set(SPECIAL)) == (len(ROWS[0]), "plain", set())
    table.update({"order id": "'new'"}, "\"sum(x)\" = 'sum(x) 1'")
    table.upsert([ROWS[2] | {"a=b": "changed"}, dict.fromkeys(SPECIAL, "more")], on=["order id"])
    table.delete("\"two\nlines\" = 'two\nlines 0'")
    assert lake.sql('SELECT "order id", "a=b" FROM t ORDER BY ALL').to_pylist() == [
        {"order id": "more", "a=b": "more"},
        {"order id": "new", "a=b": "a=b 1"},
        {"order id": "order id 2", "a=b": "changed"},
    ]
    table.optimize(full=True)
    assert not table.verify(full=True).findings
    _agree(table)


def test_a_column_that_is_added_or_renamed_turns_mapping_on(lake: Lake) -> None:
    table = lake.create_table("t", {"n": "long", "s": "struct<x:long>"})
    table.append([{"n": 1, "s": {"x": 1}}])
    table.evolve(add={"order id": "string"})
    table.append([{"n": 2, "order id": "a", "s": None}])
    table.append([{"n": 3, "order id": "b", "s": {"x": 3}, "new column": 1.5}], evolve=True)
    table.evolve(rename={"order id": "id of the order", "n": "number (n)"})
    assert table.to_arrow().sort_by("number (n)").to_pylist() == [
        {"number (n)": 1, "s": {"x": 1}, "id of the order": None, "new column": None},
        {"number (n)": 2, "s": None, "id of the order": "a", "new column": None},
        {"number (n)": 3, "s": {"x": 3}, "id of the order": "b", "new column": 1.5},
    ]
    _agree(table)
    table.restore(version=1)
    table.append([{"n": 4, "s": {"x": 4}}])
    assert table.to_arrow().sort_by("n").column("n").to_pylist() == [1, 4]
    _agree(table)


def test_a_field_in_a_struct_turns_mapping_on(lake: Lake) -> None:
    table = lake.create_table("t", {"n": "long", "s": "struct<x:long>"})
    table.append([{"n": 1, "s": {"x": 1}}])
    rows = pa.Table.from_pylist([{"n": 2, "s": {"x": 2, "in it": 3}}])
    metadata = plan_merge(table.snapshot().state.metadata, rows.schema, seed=str(UUID(int=1)))
    fields = json.loads(metadata.schema_string)["fields"]
    ids = [field["metadata"][ID] for field in (*fields, *fields[1]["type"]["fields"])]
    assert (sorted(ids), metadata.configuration[MAX_ID]) == ([1, 2, 3, 4], "4")
    assert fields[1]["type"]["fields"][0]["metadata"][NAME] == "x"
    nested = lake.create_table("m", rows.schema)
    nested.append(rows)
    assert nested.to_arrow().to_pylist() == rows.to_pylist()
    _agree(nested)


def test_partition_columns_may_have_such_names(lake: Lake) -> None:
    schema = {"at (utc)": "timestamp", "the country": "string", "n": "long"}
    table = lake.create_table("t", schema, partition_by=["day(at (utc))", "the country"])
    table.append(
        [{"at (utc)": datetime(2026, 11, 20, tzinfo=UTC), "the country": c, "n": n} for n, c in enumerate(["a b", "c"])]
    )
    assert [file.partition_values for file in table.snapshot().files] == [
        {table.snapshot().physical_name("the country"): value} for value in ("a b", "c")
    ]
    assert table.scan(where="\"the country\" = 'c'").read_all().column("n").to_pylist() == [1]
    _agree(table, "the country")
    brackets = lake.create_table("b", {"count(*)": "long", "n": "long"}, partition_by=["count(*)"])
    brackets.append([{"count(*)": 1, "n": 1}])
    assert brackets.to_arrow().to_pylist() == [{"count(*)": 1, "n": 1}]


def test_a_table_is_made_of_a_query_with_its_names(lake: Lake) -> None:
    lake.sql('CREATE TABLE t AS SELECT 1 AS "order id", count(*) FROM range(3)')
    assert lake.table("t").to_arrow().to_pylist() == [{"order id": 1, "count_star()": 3}]
    lake.sql('CREATE OR REPLACE TABLE t ("a b" INTEGER, c VARCHAR)')
    lake.sql("INSERT INTO t VALUES (1, 'x')")
    lake.sql('ALTER TABLE t ADD COLUMN "d e" VARCHAR')
    assert lake.sql('SELECT "a b", "d e" FROM t').to_pylist() == [{"a b": 1, "d e": None}]
    _agree(lake.table("t"))


@pytest.mark.parametrize(
    "columns", [{" ": "long"}, {"s": "struct<x:long>", "": "long"}, {"a b": "long", "A B": "long"}]
)
def test_names_must_differ_and_say_something(lake: Lake, columns: dict[str, str]) -> None:
    with pytest.raises(Invalid, match="column names must differ, apart from case"):
        lake.create_table("t", columns)


def test_files_with_such_names_are_converted_and_read_where_they_are(lake: Lake, tmp_path: Path) -> None:
    rows = [{"order id": 1, "by day": "x"}, {"order id": 2, "by day": "y"}]
    outside = tmp_path / "t"
    outside.mkdir()
    pq.write_table(pa.Table.from_pylist(rows), outside / "1.parquet")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "2.csv").write_text("order id,by day\n1,x\n2,y\n")
    converted = lake.convert("t", "t")
    converted.append([{"order id": 3, "by day": "z"}])
    assert converted.to_arrow().sort_by("order id").to_pylist() == [*rows, {"order id": 3, "by day": "z"}]
    _agree(converted)
    elsewhere = alluvia.connect(str(tmp_path / "other"), outside=[str(outside), str(tmp_path / "out")])
    for name, kind, file in (("p", "parquet", "t/1.parquet"), ("c", "csv", "out/2.csv")):
        elsewhere.sql(f"CREATE EXTERNAL TABLE {name} USING {kind} LOCATION '{tmp_path / file}'")
        assert elsewhere.table(name).to_arrow().to_pylist() == rows
        assert elsewhere.sql(f'SELECT "by day" FROM {name} WHERE "order id" = 2').to_pylist() == [{"by day": "y"}]


def test_events_fill_such_columns(lake: Lake) -> None:
    events = lake.create_events("e", {"order id": "string"})
    events.evolve(add={"unit price": "double"})
    sent = split(
        b'{"order id":"a","unit price":1.5,"left over":true}', content_type=None, content_encoding=None, limits=Limits()
    )
    assert ingest_batch(lake.catalog, "e", sent.events, arrival_us=1_800_000_000_000_000).stored == 1
    found = lake.sql('SELECT "order id", "unit price", properties FROM e').to_pylist()
    shown = '{"unit price":1.5,"left over":true}'
    assert found == [{"order id": "a", "unit price": 1.5, "properties": shown}]
