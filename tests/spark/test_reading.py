from __future__ import annotations

import datetime as dt
import json
import random
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyspark.sql import SparkSession, types

import alluvia
import alluvia_spark
from alluvia.api.lake import Table
from alluvia.errors import Invalid, TableNotFound, VersionNotFound
from alluvia_spark.reading import deleted_rows, file_scan
from alluvia_spark.reading.filters import constant
from alluvia_spark.schemas import written_schema
from tests import judges
from tests.property import row_model as model
from tests.reach.tables import APART, EVERY_TYPE
from tests.spark.sessions import settings

VECTORS = {"delta.enableDeletionVectors": "true"}
STRANGE = {
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.parser.quotedRegexColumnNames": "true",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.session.timeZone": "Asia/Kolkata",
}
"""Settings by which a session reads SQL otherwise."""


def check(spark: SparkSession, table: Table, **options: Any) -> None:
    """Assert that Spark reads the rows and types that we read."""
    mine = table.scan(**options).read_all()
    theirs = alluvia_spark.read_table(spark, judges.uri_of(table), **options).toArrow()
    assert judges.canonical(theirs) == judges.canonical(mine)
    assert judges.kinds(theirs.schema) == judges.kinds(mine.schema)


def rows(places: tuple[str | None, ...]) -> list[dict[str, Any]]:
    found = []
    for n, place in enumerate(places * 3):
        moment = dt.datetime(2024, 1, 1, n, tzinfo=dt.UTC)
        found.append({"n": n, "place": place, "ts": moment, "day": moment.date(), "s": {"a": n, "b": [{"c": str(n)}]}})
    return found


SCHEMA = pa.schema(
    [
        pa.field("n", pa.int64()),
        pa.field("place", pa.string()),
        pa.field("ts", pa.timestamp("us", "UTC")),
        pa.field("day", pa.date32()),
        pa.field("s", pa.struct([("a", pa.int64()), ("b", pa.list_(pa.struct([("c", pa.string())])))])),
    ]
)


@pytest.mark.parametrize("kind", ["string", "long", "double", "timestamp"])
def test_promoted_fields_of_files_of_both_kinds(spark: SparkSession, tmp_path: Path, kind: str) -> None:
    values: dict[str, list[Any]] = {
        "string": ["a", 'b"', None],
        "long": [1, 2.0, None],
        "double": [0.5, 1e20, "x"],
        "timestamp": [1, "2026-11-20T10:00Z", None],
    }
    table = alluvia.connect(tmp_path).create_table("t", {"n": "long", "properties": "string"}, properties=VECTORS)
    texts = [json.dumps({"o": at, "k": value}) for at, value in enumerate(values[kind])]
    given = [{"n": at, "properties": text} for at, text in enumerate([*texts, None, "{}", "[1]"])]
    table.append(given)
    table.evolve(add={"k": kind})
    table.append(given)
    table.delete("n = 4")
    assert len(table.snapshot().files) == 2
    check(spark, table)
    check(spark, table, where="k IS NOT NULL")
    read = alluvia_spark.read_table(spark, judges.uri_of(table))
    assert read.where("k IS NOT NULL").count() == table.scan(where="k IS NOT NULL").read_all().num_rows
    table.optimize(backfill=True)
    check(spark, table)


def test_branches_tags_and_clones(spark: SparkSession, tmp_path: Path) -> None:
    lake = alluvia.connect(tmp_path)
    table = lake.create_table("t", SCHEMA, partition_by=["place"], properties=VECTORS)
    table.append(rows(("a", "b", None)))
    table.tag("own")
    lake.tag("all")
    fix = lake.branch("fix").table("t")
    fix.delete("n = 1")
    fix.append([{"n": 100, "place": "a"}, {"n": 101, "place": "new"}])
    table.delete("n < 5")
    clone = lake.clone("t", "dev")
    clone.append([{"n": 200, "place": "b"}])
    alluvia_spark.register(spark)
    place = str(tmp_path)
    cases: list[tuple[str, dict[str, Any], pa.Table]] = [
        ("t", {"branch": "fix"}, fix.to_arrow()),
        ("t", {"tag": "own"}, table.to_arrow(tag="own")),
        ("t", {"tag": "all"}, table.to_arrow(tag="all")),
        ("t", {}, table.to_arrow()),
        ("dev", {}, clone.to_arrow()),
    ]
    for name, options, mine in cases:
        assert len(mine)
        by_spark: Any = alluvia_spark.read_table(spark, place, name, **options)
        by_source = spark.read.format("alluvia").options(table=name, **options).load(place)
        for theirs in (by_spark, by_source):
            assert judges.canonical(theirs.toArrow()) == judges.canonical(mine)
    for _, options, _ in cases[:2]:
        with pytest.raises(Invalid, match="give the lake's path"):
            alluvia_spark.read_table(spark, f"{place}/t", **options)


@pytest.mark.parametrize("way", ["by constants", "by row_index", "by joins"])
@pytest.mark.parametrize("places", [("a b", "x/y", None), ("ü→€", "50%", None)], ids=["in paths", "not in paths"])
def test_partitions_deleted_rows_and_other_names(
    spark: SparkSession, tmp_path: Path, places: tuple[str | None, ...], way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "by row_index":
        monkeypatch.setattr(file_scan, "_number_column", lambda *_: None)
    if way == "by joins":
        monkeypatch.setattr(file_scan, "CASES_MAX", 0)
        monkeypatch.setattr(deleted_rows, "NUMBERS_MAX", 0)
    lake = alluvia.connect(str(tmp_path))
    table = lake.create_table("t", SCHEMA, partition_by=["place", "day(ts)"], properties=VECTORS)
    table.append(rows(places))
    table.delete(f"n = 4 AND place = '{places[1]}'")
    table.evolve(rename={"n": "number"}, drop=["day"], add={"more": "double"})
    table.append([{"number": 77, "place": places[0], "more": 1.5}])
    with settings(spark, {"spark.sql.session.timeZone": "America/New_York", "spark.sql.shuffle.partitions": "2"}):
        check(spark, table)
        check(spark, table, version=1)
        check(spark, table, where="ts >= '2024-01-01 03:00:00' AND number <> 5")
        check(spark, table, where="number % 2 = 0 AND ts < timestamp '2024-01-01 07:00:00'")


def test_rows_without_numbers_are_an_error(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they would be with a Spark that fills another column with the numbers of rows."""
    table = alluvia.connect(str(tmp_path)).create_table("t", {"n": "long"}, properties=VECTORS)
    table.append([{"n": n} for n in range(200)])
    table.delete("n = 150")
    found = alluvia_spark.read_table(spark, str(tmp_path), "t", where="n >= 149")
    assert sorted(row.n for row in found.collect()) == [149, *range(151, 200)]
    assert "IsNotNull(_tmp" not in found._jdf.queryExecution().toString()
    monkeypatch.setattr(file_scan, "_number_column", lambda *_: "_numbers_of_rows")
    with pytest.raises(Exception, match="does not number the rows"):
        alluvia_spark.read_table(spark, str(tmp_path), "t").collect()


def test_values_that_are_in_no_path(spark: SparkSession, tmp_path: Path) -> None:
    """As delta-spark writes tables whose columns have other names in files."""
    table = alluvia.connect(str(tmp_path)).create_table(
        "t", {"n": "long", "at": "timestamp", "x": "decimal(4,1)"}, partition_by=["at", "x"], properties=VECTORS
    )
    for n in range(3):
        at = dt.datetime(2024, 1, 1, n, tzinfo=dt.UTC)
        table.append([{"n": m, "at": at if n else None, "x": Decimal(n) / 2} for m in range(5 + 200 * n)])
    table.delete("n = 1")
    check(spark, table)
    folder = Path(judges.uri_of(table))
    for path in folder.rglob("part-*.parquet"):
        path.rename(folder / path.name)
    for log in folder.glob("_delta_log/*.json"):
        log.write_text(re.sub(r'"path":"[^"]*/(part-)', r'"path":"\1', log.read_text()))
    opened = alluvia.connect(str(tmp_path))["t"]
    check(spark, opened)
    assert "Join" not in alluvia_spark.read_table(spark, str(tmp_path), "t")._jdf.queryExecution().toString()


@pytest.mark.parametrize("number", [1, 1000], ids=["files of one size", "files of two sizes"])
def test_folders_that_end_with_an_equals_sign(spark: SparkSession, tmp_path: Path, number: int) -> None:
    """As deltalake writes them for empty texts, which are nulls in Delta."""
    values = pa.table({"p": ["a", *[""] * number], "n": list(range(1 + number))})
    write_deltalake(tmp_path / "t", values, partition_by=["p"])
    assert (tmp_path / "t" / "p=").is_dir()
    table = alluvia.connect(str(tmp_path))["t"]
    check(spark, table)
    read = alluvia_spark.read_table(spark, str(tmp_path), "t", where="p IS NULL")
    assert read.count() == number


def test_constants_are_what_they_were_whatever_the_session_says(spark: SparkSession) -> None:
    moment = dt.datetime(2024, 1, 1, 0, 0, 0, 1, tzinfo=dt.UTC)
    constants: list[tuple[object, types.DataType]] = [
        *((text, types.StringType()) for text in ('it\'s \\n ${env:HOME} `y` "z" é\n', "", None)),
        *((number, types.DoubleType()) for number in (0.1, -0.0, float("-inf"), float("nan"))),
        *((day, types.DateType()) for day in (dt.date(1, 1, 1), dt.date(9999, 12, 31))),
        *((b"\0'", types.BinaryType()), (-(1 << 63), types.LongType()), (True, types.BooleanType())),
        *((0.5, types.FloatType()), (Decimal("-0.50"), types.DecimalType(4, 2))),
        *((moment, types.TimestampType()), (moment.replace(tzinfo=None), types.TimestampNTZType())),
        *((None, types.TimestampType()), (None, types.TimestampNTZType())),
    ]
    for chosen in ({}, STRANGE, {"spark.sql.ansi.enabled": "false"}):
        with settings(spark, chosen):
            for value, kind in constants:
                [found] = spark.range(1).selectExpr(f"{constant(value, kind)} AS v").toArrow()["v"]
                assert repr(found.as_py()) == repr(pa.scalar(value, found.type).as_py()), (value, kind)
                assert found.type == written_schema(types.StructType([types.StructField("v", kind)])).types[0]


@pytest.mark.parametrize("name", ["${env:HOME}", "${a}b", "a b", "a`b.c", "count(1)", ";--"])
def test_names_that_only_other_writers_give_are_what_they_are(spark: SparkSession, tmp_path: Path, name: str) -> None:
    """As they are in tables that map their columns, whatever the session would replace in a query."""
    table = alluvia.connect(str(tmp_path)).create_table("t", {"x": "long", "b": "long"})
    table.append([{"x": 1, "b": 2}, {"x": 5, "b": 6}])
    table.evolve(rename={"x": "unlikely"})
    table.append([{"unlikely": 3, "b": 4}])
    for log in Path(judges.uri_of(table)).glob("_delta_log/*.json"):
        log.write_text(log.read_text().replace('\\"unlikely\\"', json.dumps(json.dumps(name))[1:-1]))
    opened = alluvia.connect(str(tmp_path))["t"]
    assert opened.schema.names == [name, "b"]
    for chosen in ({}, STRANGE):
        with settings(spark, chosen):
            check(spark, opened)


def test_partitions_are_what_they_are_whatever_the_session_says(spark: SparkSession, tmp_path: Path) -> None:
    lake = alluvia.connect(str(tmp_path))
    table = lake.create_table("t", {"n": "long", "p-q": "string", "at": "timestamp"}, partition_by=["p-q", "at"])
    for number, place in enumerate(("${env:HOME}", "ü", None), 1):
        table.append([{"n": n, "p-q": place, "at": None} for n in range(number)])
    with settings(spark, STRANGE):
        check(spark, table)


def test_a_condition_prunes_files_and_is_one_of_sparks_own(spark: SparkSession, tmp_path: Path) -> None:
    table = alluvia.connect(str(tmp_path)).create_table("t", SCHEMA)
    for n in range(4):
        table.append([{"n": 10 * n}, {"n": 10 * n + 5}, {"n": None}])
    found = alluvia_spark.read_table(spark, str(tmp_path), "t", where="n BETWEEN 15 AND 20")
    assert sorted(row.n for row in found.collect()) == [15, 20]
    assert len(found.inputFiles()) == 2
    for where in (
        "n IN (5, 30) OR n IS NULL",
        "NOT (n > 10)",
        "n NOT IN (0, 5)",
        "n % 10 = 5",
        "n + 1 > 21 AND n < 35",
    ):
        check(spark, table, where=where)


def test_random_tables(spark: SparkSession, tmp_path: Path) -> None:
    for seed in (1, 2):
        chance = random.Random(seed)
        lake = alluvia.connect(str(tmp_path / str(seed)))
        table = model.create(lake, "vectors", chance)
        for _ in range(3):
            new = [model.random_row(chance) for _ in range(5)]
            table.append([dict(zip(model.SCHEMA.names, row, strict=True)) for row in new])
            table.delete(f"id = {chance.choice(model.IDS)}")
        check(spark, table)


def test_every_type(spark: SparkSession, tmp_path: Path) -> None:
    table = EVERY_TYPE.build(alluvia.connect(str(tmp_path)))
    check(spark, table, version=APART)


def test_numbers_that_are_none_are_found_in_files_of_others(spark: SparkSession, tmp_path: Path) -> None:
    numbers = [1.0, 2.0, float("nan")]
    data = pa.table({"n": [1, 2, 3], "x": numbers, "s": [{"y": number} for number in numbers]})
    write_deltalake(tmp_path / "t", data)
    found = alluvia_spark.read_table(spark, str(tmp_path / "t"))
    for condition in ("x > 5", "x = double('NaN')", "s.y > 5"):
        assert [row.n for row in found.where(condition).collect()] == [3], condition
    for condition in ("x > 5", "s.y >= 5"):
        assert [row.n for row in alluvia_spark.read_table(spark, str(tmp_path / "t"), where=condition).collect()] == [3]


def test_what_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    lake = alluvia.connect(str(tmp_path))
    table = lake.create_table("t", {"n": "long"})
    assert alluvia_spark.read_table(spark, lake, "t").collect() == []
    with pytest.raises(TableNotFound):
        alluvia_spark.read_table(spark, lake, "other")
    with pytest.raises(VersionNotFound):
        alluvia_spark.read_table(spark, lake, "t", version=7)
    with pytest.raises(Invalid, match="name"):
        alluvia_spark.read_table(spark, lake)
    with pytest.raises(Invalid, match="this process"):
        alluvia_spark.read_table(spark, "memory://x", "t")
    table.append([{"n": 1}])
    with pytest.raises(Invalid, match="nothing"):
        alluvia_spark.read_table(spark, lake, "t", where="nothing = 1")
