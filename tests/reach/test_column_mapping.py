"""Tables with column mapping: Spark's, which we go on with, and ours, which Spark goes on with."""

from __future__ import annotations

from pathlib import Path

import pytest

import alluvia
from alluvia.api.lake import Table
from alluvia.delta.schema.former_names import former_names
from tests import judges
from tests.reach.delta_spark import BY_SPARK, DeltaSpark, judged, named
from tests.reach.tables import OPEN

pytestmark = BY_SPARK


def _agree(table: Table, spark: DeltaSpark, first: int = 0, partition: str | None = None) -> None:
    """Assert that every reader reads the same rows of the versions from `first` on, Spark those of `judged`.

    deltalake's Arrow dataset refuses such tables.

    delta_scan takes the values of a partition column that has another name in the log for null, Spark's own too.
    """
    newest = table.snapshot().version
    for version in range(first, newest + 1):
        rows = judges.ours(table, version)
        if version in judged(newest):
            assert judges.canonical(spark.read(table, version)) == rows, f"delta-spark reads others of {version}"
        by_duckdb, mine = judges.duckdb_table(table, version), table.to_arrow(version=version)
        if partition is not None:
            by_duckdb, mine = by_duckdb.drop_columns(partition), mine.drop_columns(partition)
        assert judges.canonical(by_duckdb) == judges.canonical(mine), f"delta_scan reads others of {version}"
        by_sql = judges.deltalake_sql_table(table, version)
        assert judges.canonical(by_sql) == rows, f"deltalake reads others of {version}"


@pytest.mark.parametrize("mode", ["name", pytest.param("id", marks=pytest.mark.at_length)])
def test_we_go_on_with_a_table_of_sparks(mode: str, delta_spark: DeltaSpark, tmp_path: Path) -> None:
    table = alluvia.connect(str(tmp_path)).table("made")
    delta_spark.run(
        f"CREATE TABLE {named(table)} (id BIGINT, a STRING, s STRUCT<x: INT>, p STRING) USING delta "
        f"PARTITIONED BY (p) TBLPROPERTIES ('delta.columnMapping.mode' = '{mode}', "
        "'delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'true', "
        "'delta.checkpointInterval' = '4')",
        f"INSERT INTO {named(table)} VALUES (1, 'a', named_struct('x', 1), 'u'), (2, 'b', NULL, 'v')",
        f"ALTER TABLE {named(table)} RENAME COLUMN a TO b",
        f"ALTER TABLE {named(table)} RENAME COLUMN p TO q",
    )
    first = table.snapshot().version
    table.append([{"id": 3, "b": "c", "s": {"x": 3}, "q": "u"}])
    table.update({"b": "'A'"}, "id = 1")
    table.upsert([{"id": 2, "b": "B"}, {"id": 4, "b": "d", "q": "u"}], on=["id"])
    table.evolve(rename={"b": "c"}, add={"b": "long"}, drop=["s"])
    table.append([{"id": 5, "c": "e", "b": 5, "q": "v"}])
    table.optimize(full=True)
    table.delete("c = 'c'")
    left = [(row["id"], row["c"], row["b"]) for row in table.to_arrow().sort_by("id").to_pylist()]
    assert left == [(1, "A", None), (2, "B", None), (4, "d", None), (5, "e", 5)]
    _agree(table, delta_spark, first, partition="q")
    delta_spark.run(
        f"INSERT INTO {named(table)} VALUES (6, 'f', 'u', 6)",
        f"ALTER TABLE {named(table)} ADD COLUMN (last STRING)",
        f"UPDATE {named(table)} SET last = 'z' WHERE id = 1",
    )
    assert table.count() == 5
    findings = table.verify(full=True).findings
    assert {finding.kind for finding in findings} <= {"orphan-files"}, findings  # Spark leaves a change file behind
    _agree(table, delta_spark, table.snapshot().version, partition="q")


def test_spark_goes_on_with_a_table_of_ours(delta_spark: DeltaSpark, tmp_path: Path) -> None:
    schema = {"id": "long", "a": "string", "gone": "string"}
    table = alluvia.connect(str(tmp_path)).create_table("made", schema, properties=OPEN)
    table.append([{"id": 1, "a": "one", "gone": "x"}])
    table.evolve(rename={"a": "b"}, drop=["gone"])
    table.append([{"id": 2, "b": "two"}])
    table.evolve(add={"a": "string"})
    delta_spark.run(
        f"INSERT INTO {named(table)} VALUES (3, 'three', 'new')",
        f"ALTER TABLE {named(table)} RENAME COLUMN a TO c",
        f"DELETE FROM {named(table)} WHERE id = 1",
    )
    assert table.to_arrow().sort_by("id").to_pylist() == [
        {"id": 2, "b": "two", "c": None},
        {"id": 3, "b": "three", "c": "new"},
    ]
    assert former_names(table.snapshot().properties) == {
        "a": ("b",),
        "gone": ("gone",),
        table.snapshot().physical_name("c"): ("a",),
    }
    table.optimize(full=True)
    _agree(table, delta_spark)


def test_every_reader_has_names_that_need_column_mapping(delta_spark: DeltaSpark, tmp_path: Path) -> None:
    lake = alluvia.connect(str(tmp_path))
    schema = {"order id": "long", "amount (EUR)": "double", "a,b;c={d}": "string", "two\nlines\tx": "string"}
    table = lake.create_table("made", schema, properties=OPEN)
    table.append([dict(zip(schema, (1, 1.5, "a", "b"), strict=True))])
    plain = lake.create_table("plain", {"n": "long"}, properties=OPEN)
    plain.append([{"n": 1}])
    plain.evolve(add={"order id": "string"})
    plain.append([{"n": 2, "order id": "b"}])
    delta_spark.run(
        f"INSERT INTO {named(table)} VALUES (2, 2.5, 'c', 'd')",
        f"UPDATE {named(table)} SET `amount (EUR)` = 9 WHERE `order id` = 1",
        f"INSERT INTO {named(plain)} VALUES (3, 'c')",
    )
    assert table.to_arrow().sort_by("order id").column("amount (EUR)").to_pylist() == [9, 2.5]
    assert plain.to_arrow().sort_by("n").column("order id").to_pylist() == [None, "b", "c"]
    for each in (table, plain):
        each.optimize(full=True)
        _agree(each, delta_spark)
