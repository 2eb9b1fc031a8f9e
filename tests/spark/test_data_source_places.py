"""Places that the data source of Spark finds, and those that it refuses."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, DataFrameWriter, SparkSession

import alluvia
import alluvia_spark
from alluvia.api.lake import Lake
from alluvia.errors import Invalid
from alluvia_spark.data_source import AlluviaSource
from alluvia_spark.options import AlluviaOptions
from alluvia_spark.tables import folder_of
from tests.spark.sources import writer


def test_a_place_that_no_lake_lists_is_refused(registered: SparkSession, lake: Lake) -> None:
    lake.create_table("t", {"n": "long"})
    for path, message in (
        (f"{lake.uri}/My Table", "table name 'My Table': use up to 128 lower-case letters"),
        (f"{lake.uri}/t/inside", "is a table, and a table cannot contain another"),
    ):
        with pytest.raises(PySparkException, match=message):
            writer(registered.range(1), "append").save(path)
        with pytest.raises(Invalid, match=message):
            alluvia_spark.write_table(registered.range(1), path)
    assert lake.tables() == ["t"]


def test_a_table_in_a_schema_is_found_by_its_name_and_by_its_path(registered: SparkSession, lake: Lake) -> None:
    rows = registered.range(2).toDF("n")
    for write, path in ((named(rows), lake.uri), (writer(rows, "append"), f"{lake.uri}/bronze.t")):
        with pytest.raises(PySparkException, match="there is no schema 'bronze': create it with CREATE"):
            write.save(path)
    lake.create_schema("bronze")
    named(rows).save(lake.uri)
    writer(rows, "append").save(f"{lake.uri}/bronze.t")
    alluvia_spark.write_table(rows, lake, "bronze.t")
    read = registered.read.format("alluvia")
    assert read.load(f"{lake.uri}/bronze.t").count() == read.option("table", "bronze.t").load(lake.uri).count() == 6
    assert (lake.tables(), lake["bronze.t"].count()) == (["bronze.t"], 6)


def named(frame: DataFrame) -> DataFrameWriter:
    """Return what appends to the table `bronze.t` of a lake."""
    return writer(frame, "append").option("table", "bronze.t")


def test_a_relative_path_begins_where_the_source_was_registered(
    registered: SparkSession, lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    alluvia_spark.register(registered)
    registered.range(3).write.format("alluvia").mode("append").save("lake/t")
    assert alluvia.connect("lake")["t"].count() == 3
    assert registered.read.format("alluvia").load("lake/t").count() == 3
    registered.range(3).write.format("alluvia").option("table", "u").mode("append").save("./lake")
    assert alluvia.connect(str(tmp_path / "here" / "lake")).tables() == ["t", "u"]
    registered.dataSource.register(AlluviaSource)
    with pytest.raises(PySparkException, match="path 'lake/t' is relative, and Spark works in another folder"):
        registered.range(3).write.format("alluvia").mode("append").save("lake/t")
    alluvia_spark.register(registered)


def test_a_server_on_another_machine_knows_no_relative_path() -> None:
    class Session:
        client = SimpleNamespace(host="spark.example.com")

    Session.__module__ = "pyspark.sql.connect.session"
    assert folder_of(cast("SparkSession", Session())) is None
    Session.client.host = "localhost"
    assert folder_of(cast("SparkSession", Session())) == str(Path.cwd())


def test_options() -> None:
    found = AlluviaOptions.of({"PATH": "/x", "partitionby": "a, bucket(4, n)", "DELTA.APPENDONLY": "true"})
    assert found.names("partitionBy") == ["a", "bucket(4, n)"]
    assert found.properties == {"delta.appendOnly": "true"}
    assert "secret" not in repr(AlluviaOptions.of({"path": "/x", "secret_access_key": "secret"}))
