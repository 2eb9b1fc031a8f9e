"""Spark reads and writes the text of `properties`, whatever files hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import alluvia_spark
from alluvia.api.lake import Lake, Table
from alluvia.delta.schema.variant_shredding import FORM_TAG
from tests import judges
from tests.spark.backfills import event_of, filler, numbers_of, rejects_of, write

MANY: list[dict[str, Any]] = [
    {"event_id": f"e{n}", "n": n, "o": {"z": [n, None]}, "user_id": f"u{n % 9}"} for n in range(1200)
]
ODD: list[dict[str, Any]] = [{"event_id": "odd", "n": "many", "exact": 0.25, "x.y": None}, {"event_id": "none"}]


@pytest.fixture
def table(lake: Lake) -> Table:
    lake.sql(
        "CREATE TABLE clicks (event_id STRING NOT NULL, ts TIMESTAMP, properties STRING) "
        "TBLPROPERTIES ('alluvia.properties' = 'variant', 'delta.enableDeletionVectors' = 'true')"
    )
    lake["clicks"].ingest(MANY)
    lake["clicks"].ingest(ODD)
    return lake["clicks"]


def by_id(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {row["event_id"]: row["properties"] and json.loads(row["properties"]) for row in rows}


def check(spark: SparkSession, table: Table) -> None:
    mine = by_id(table.scan(["event_id", "properties"]).read_all().to_pylist())
    native = alluvia_spark.read_table(spark, judges.uri_of(table)).select("event_id", "properties")
    assert by_id(native.toArrow().to_pylist()) == mine
    source = spark.read.format("alluvia").load(judges.uri_of(table)).select("event_id", "properties")
    assert by_id(source.toArrow().to_pylist()) == mine


def test_rows_are_read_and_changed(registered: SparkSession, table: Table) -> None:
    check(registered, table)
    found = alluvia_spark.read_table(registered, judges.uri_of(table)).where("get_json_object(properties, '$.n') = '7'")
    assert [row.event_id for row in found.collect()] == ["e7"]
    rows = registered.sql("SELECT 'new' AS event_id, now() AS ts, '{\"b\":1,\"a\":[true]}' AS properties")
    rows.write.format("alluvia").mode("append").save(judges.uri_of(table))
    changed = registered.sql("SELECT 'e7' AS event_id, now() AS ts, '{\"n\":70}' AS properties")
    assert alluvia_spark.upsert(judges.uri_of(table), changed, ["event_id"]).rows_updated == 1
    alluvia_spark.delete(registered, judges.uri_of(table), "properties LIKE '%\"u3\"%'")
    shown = by_id(table.scan(["event_id", "properties"]).read_all().to_pylist())
    assert (shown["new"], shown["e7"], "e3" in shown) == ({"a": [True], "b": 1}, {"n": 70}, False)
    check(registered, table)
    assert table.verify().ok


def test_what_is_not_json_is_refused_by_name(registered: SparkSession, table: Table) -> None:
    rows = registered.sql("SELECT 'new' AS event_id, now() AS ts, 'plain' AS properties")
    with pytest.raises(PySparkException, match="properties: the table stores JSON here, and a text is not"):
        rows.write.format("alluvia").mode("append").save(judges.uri_of(table))
    assert table.version == 2


def test_an_empty_table_has_the_same_columns(registered: SparkSession, lake: Lake) -> None:
    empty = lake.create_events("empty", properties={"alluvia.properties": "variant"})
    assert dict(alluvia_spark.read_table(registered, judges.uri_of(empty)).dtypes)["properties"] == "string"


def test_a_backfill_writes_variants_and_rejects_what_they_cannot_hold(
    spark: SparkSession, lake: Lake, tmp_path: Path
) -> None:
    made = lake.create_events("requests", properties={"alluvia.properties": "variant"})
    lines = [event_of(n, user_id=f"u{n % 9}", o={"b": n, "a": 1}) for n in range(1200)]
    source = write(tmp_path / "source" / "events.ndjson", [*lines, b'{"event_id":"bad","n":1e400}'])
    report = filler(spark, lake)(source)
    assert (report.rows, report.rejects) == (1200, 1)
    [(reason, _)] = rejects_of(lake)
    assert "1e400 is larger than any number" in reason
    assert numbers_of(made) == list(range(1200))
    assert [json.loads(file.tags[FORM_TAG]).get("user_id") for file in made.snapshot().files] == ["string"]
    found = lake.sql("SELECT count(DISTINCT properties->>'user_id') AS u FROM requests").to_pylist()
    assert found == [{"u": 9}]
    made.optimize(full=True)
    assert numbers_of(made) == list(range(1200))


def test_promoted_fields_of_files_of_both_kinds(registered: SparkSession, table: Table) -> None:
    table.evolve(add={"user_id": "string"})
    table.ingest([{**each, "event_id": f"later-{each['event_id']}"} for each in MANY])
    check(registered, table)
    table.optimize(backfill=True)
    check(registered, table)
