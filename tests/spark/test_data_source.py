from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import alluvia_spark
from alluvia.api.lake import Lake, Table
from alluvia.errors import Invalid, Unsupported
from tests import judges
from tests.reach.tables import APART, EVERY_TYPE
from tests.spark.sessions import settings
from tests.spark.sources import writer

MOMENT = pa.timestamp("us", "UTC")


def events(spark: SparkSession, start: int, end: int, name: str = "a") -> DataFrame:
    return spark.range(start, end, 1, 2).select(F.col("id").alias("n"), F.lit(name).alias("place"))


def load(spark: SparkSession, table: Table, **options: str) -> DataFrame:
    return spark.read.format("alluvia").options(**options).load(judges.uri_of(table))


def numbers(table: Table) -> list[int]:
    return sorted(table.to_arrow()["n"].to_pylist())


def test_a_version_is_read_and_conditions_prune_files(registered: SparkSession, lake: Lake) -> None:
    table = lake.create_table("t", {"n": "long", "day": "date"})
    for n in (1, 2, 3):
        table.append([{"n": n}, {"n": 10 * n}])
    rows, some = load(registered, table), load(registered, table, where="n > 20 AND n % 10 = 0")
    at = f"path '{judges.uri_of(table)}', version '2', where 'n > 10'"
    registered.sql(f"CREATE OR REPLACE TEMP VIEW v USING alluvia OPTIONS ({at})")
    table.append([{"n": 40}])
    with settings(registered, {"spark.sql.python.filterPushdown.enabled": "true"}):
        assert [row.n for row in rows.where("n > 20").collect()] == [30]
        assert rows.count() == 6
    first = table.lake.store.local_path(table.snapshot(1).key(next(iter(table.snapshot(1).files))))
    assert first is not None
    first.unlink()
    assert [row.n for row in some.collect()] == [30]
    assert registered.sql("SELECT sum(n) FROM v").collect()[0][0] == 20
    with pytest.raises(PySparkException, match="is missing"):
        rows.collect()


def test_every_type_goes_both_ways(registered: SparkSession, lake: Lake) -> None:
    table = EVERY_TYPE.build(lake)
    rows = load(registered, table, version=str(APART))
    mine = table.scan(version=APART).read_all()
    assert judges.canonical(rows.toArrow()) == judges.canonical(mine)
    writer(rows, "append").save(f"{lake.uri}/copy")
    copy = lake["copy"]
    assert judges.kinds(copy.schema) == judges.kinds(mine.schema)
    assert judges.ours(copy) == judges.canonical(mine)
    judges.judges_agree(copy, [copy.version])


def test_rows_are_appended_and_replaced(registered: SparkSession, lake: Lake) -> None:
    path = f"{lake.uri}/t"
    writer(events(registered, 0, 4), "append", partitionBy="place", **{"delta.enableDeletionVectors": "true"}).save(
        path
    )
    table = lake["t"]
    assert table.snapshot().partition_columns == ("place",)
    table.evolve(rename={"n": "n2"})
    table.evolve(rename={"n2": "n"})
    writer(events(registered, 4, 6, "b"), "append", txnAppId="app", txnVersion="1").save(path)
    writer(events(registered, 4, 6, "b"), "append", txnAppId="app", txnVersion="1").save(path)
    assert numbers(table) == [0, 1, 2, 3, 4, 5]
    writer(events(registered, 7, 9), "overwrite", replaceWhere="place = 'a' AND n > 1").save(path)
    assert numbers(table) == [0, 1, 4, 5, 7, 8]
    assert judges.duckdb_rows(table) == judges.ours(table)
    more = events(registered, 1, 3).withColumn("more", F.lit(1.5))
    writer(more, "overwrite", mergeSchema="true").save(path)
    assert table.to_arrow(["n", "more"]).sort_by("n").to_pylist() == [{"n": 1, "more": 1.5}, {"n": 2, "more": 1.5}]


def test_columns_that_a_write_makes_are_nullable(registered: SparkSession, lake: Lake) -> None:
    nested = "array(named_struct('a', 1)) x, map('k', array(2)) m, named_struct('b', array(3)) s"
    kinds = "id long, x array<struct<a: int>>, m map<string, array<int>>, s struct<b: array<int>>"
    nulls = [(None, None, None, None), (4, [None, (None,)], {"k": None, "l": [None]}, ([None],))]
    first = [(1, [(1,)], {"k": [2]}, ([3],))]
    for name, columns in (("made", f"1L id, {nested}"), ("added", "1L id")):
        for rows in (
            registered.sql(f"SELECT {columns}"),
            registered.sql(f"SELECT 1L id, {nested}"),
            registered.createDataFrame(nulls, kinds),
        ):
            writer(rows, "append", mergeSchema="true").save(f"{lake.uri}/{name}")
        table = lake[name]
        more = [(1, None, None, None)] if name == "added" else first
        wanted = registered.createDataFrame([*more, *first, *nulls], kinds).toArrow()
        assert judges.ours(table) == judges.canonical(wanted)
        judges.judges_agree(table, [table.version])


@pytest.mark.parametrize(
    ("column", "named"), [("{}", "v"), ("map('k', array(named_struct('a', {})))", "v.value.element.a")]
)
def test_a_variant_is_refused_by_name(registered: SparkSession, lake: Lake, column: str, named: str) -> None:
    rows = registered.sql(f"SELECT 1L id, {column.format('parse_json(chr(49))')} v")
    with pytest.raises(PySparkException, match=f"column {named} is a variant"):
        writer(rows, "append").save(f"{lake.uri}/new")
    stored = pa.struct([("value", pa.binary()), ("metadata", pa.binary())])
    table = lake.create_table("t", pa.schema([("id", pa.int64()), ("v", stored)]))
    for mode in ("append", "overwrite"):
        with pytest.raises(PySparkException, match=f"column {named} is a variant"):
            writer(rows, mode).save(judges.uri_of(table))
    with pytest.raises(Unsupported, match=f"column {named} is a variant"):
        alluvia_spark.upsert(judges.uri_of(table), rows, ["id"])
    assert table.version == 0


def test_columns_are_matched_in_any_case(registered: SparkSession, lake: Lake) -> None:
    table = lake.create_table("t", {"id": "long", "Place": "string"}, ["Place"])
    path = judges.uri_of(table)
    writer(registered.sql("SELECT 'a' PLACE, 1L ID"), "append").save(path)
    writer(registered.sql("SELECT 'b' place, 2L Id, 'x' More"), "append", mergeSchema="true").save(path)
    writer(registered.sql("SELECT 'y' mORE, 'b' place, 3L iD"), "overwrite", replaceWhere="place = 'b'").save(path)
    assert table.snapshot().schema.names == ["id", "Place", "More"]
    assert [tuple(row.values()) for row in table.to_arrow().sort_by("id").to_pylist()] == [
        (1, "a", None),
        (3, "b", "y"),
    ]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("1L id, 2L id", "column id is repeated .*: rename or drop one"),
        ("1L id, 2L ID", "column ID is repeated"),
        ("1L id, array(named_struct('a', 1, 'A', 2)) s", "column s.element.A is repeated"),
        ("1L id, map() v", "column v is a map without types: CAST it"),
    ],
)
def test_columns_that_no_table_has_are_refused(
    registered: SparkSession, lake: Lake, columns: str, message: str
) -> None:
    table = lake.create_table("t", {"id": "long"})
    rows = writer(registered.sql(f"SELECT {columns}"), "append", mergeSchema="true")
    with pytest.raises(PySparkException, match=message):
        rows.save(judges.uri_of(table))
    assert table.version == 0


def test_what_sparks_catalog_cannot_keep_is_a_view(registered: SparkSession, lake: Lake) -> None:
    table = lake.create_table("t", {"n": "long"})
    table.append([{"n": 7}])
    path, refused = judges.uri_of(table), "CREATE TEMPORARY VIEW name USING alluvia"
    for statement in (f"LOCATION '{path}'", f"OPTIONS (path '{path}')", f"LOCATION '{path}' AS SELECT 1L n"):
        with pytest.raises(PySparkException, match=refused):
            registered.sql(f"CREATE TABLE kept USING alluvia {statement}")
    registered.sql(f"CREATE TABLE kept (n BIGINT) USING alluvia LOCATION '{path}'")
    try:
        for statement in ("SELECT * FROM kept", "INSERT INTO kept VALUES (1)"):
            with pytest.raises(PySparkException, match=refused):
                registered.sql(statement).collect()
    finally:
        registered.sql("DROP TABLE kept")
    assert numbers(table) == [7]


def test_an_overwrite_of_partitions_by_a_setting_is_refused(registered: SparkSession, lake: Lake) -> None:
    table = lake.create_table("t", {"n": "long", "place": "string", "at": "timestamp"}, ["day(at)"])
    table.append([{"n": 1, "place": "a"}])
    plain = lake.create_table("plain", {"n": "long", "place": "string"})
    plain.append([{"n": 1, "place": "a"}])
    rows, path = events(registered, 7, 8), judges.uri_of(table)
    refused = "partitionOverwriteMode set to dynamic, .*option partitionOverwriteMode .*replaceWhere"
    with settings(registered, {"spark.sql.sources.partitionOverwriteMode": "DYNAMIC"}):
        for each in (rows, rows.limit(0)):
            with pytest.raises(PySparkException, match=refused):
                writer(each, "overwrite").save(path)
        assert numbers(table) == [1]
        writer(rows, "overwrite", replaceWhere="true").save(path)
        writer(rows, "append").save(path)
        writer(rows, "overwrite").save(judges.uri_of(plain))
    assert (numbers(table), numbers(plain)) == ([7, 7], [7])


def test_a_task_that_fails_and_is_tried_again_adds_its_rows_once(registered: SparkSession, lake: Lake) -> None:
    table = lake.create_table("t", {"n": "long"})

    @F.udf("long", useArrow=False)  # else pyspark looks for pandas, and warns
    def late(n: int) -> int:
        context = TaskContext.get()
        if n == 19_999 and context is not None and context.attemptNumber() == 0:
            raise RuntimeError("the worker is lost")
        return n

    writer(registered.range(0, 20_000, 1, 2).select(late("id").alias("n")), "append").save(judges.uri_of(table))
    assert numbers(table) == list(range(20_000))
    assert table.version == 1


@pytest.mark.parametrize(
    ("kind", "column", "named"),
    [
        (MOMENT, "t", "t"),
        (
            pa.map_(pa.string(), pa.list_(pa.struct([("a", MOMENT)]))),
            "map('k', array(named_struct('a', t)))",
            "t.value.element.a",
        ),
    ],
)
def test_a_moment_without_a_zone_is_not_taken_for_one_in_utc(
    registered: SparkSession, lake: Lake, kind: pa.DataType, column: str, named: str
) -> None:
    table = lake.create_table("t", pa.schema([("id", pa.int64()), ("t", kind)]))
    moment = registered.sql(f"SELECT 1L AS id, {column} AS T FROM (SELECT timestamp_ntz'2024-01-01 00:00:00' AS t)")
    refusal = rf"column {named} is timestamp in the table, but .* timestamp_ntz: use CAST\({named} AS TIMESTAMP\)"
    with pytest.raises(PySparkException, match=refusal):
        writer(moment, "append").save(judges.uri_of(table))
    with pytest.raises(Invalid, match=refusal):
        alluvia_spark.upsert(judges.uri_of(table), moment, ["id"])
    assert table.version == 0


def test_a_cast_takes_a_moment_to_be_in_the_sessions_zone(registered: SparkSession, lake: Lake) -> None:
    table = lake.create_table("t", {"t": "timestamp"})
    with settings(registered, {"spark.sql.session.timeZone": "America/New_York"}):
        rows = registered.sql("SELECT CAST(timestamp_ntz'2024-01-01 00:00:00' AS TIMESTAMP) AS t")
        writer(rows, "append").save(judges.uri_of(table))
    assert table.to_arrow()["t"].to_pylist() == [datetime(2024, 1, 1, 5, tzinfo=UTC)]


def test_nothing_is_committed_that_breaks_a_rule(registered: SparkSession, lake: Lake) -> None:
    checks = {"delta.constraints.small": "n < 5", "delta.appendOnly": "true"}
    columns = pa.schema([pa.field("n", pa.int64(), nullable=False), pa.field("place", pa.string())])
    table = lake.create_table("t", columns, properties=checks)
    path = judges.uri_of(table)
    rows = events(registered, 0, 10)
    refused = [
        (writer(rows, "append"), "small"),
        (writer(rows, "overwrite"), "append-only"),
        (writer(rows.withColumn("other", F.lit(1)), "append"), r"no column other: add option\('mergeSchema', 'true'\)"),
        (writer(rows.select("place"), "append"), "column n of table t must not be null"),
        (writer(rows.select(F.col("n").cast("string"), "place"), "append"), "column n of table t is long"),
        (writer(rows, "append", replaceWhere="n = 1"), "replaceWhere"),
        (writer(rows, "append", txnAppId="x"), "txnVersion"),
        (writer(rows, "append", nothing="x"), "option nothing is unknown"),
        (writer(rows, "append", partitionBy="n"), "partitionBy"),
    ]
    for one, message in refused:
        with pytest.raises(PySparkException, match=message):
            one.save(path)
    assert table.version == 0
    other = lake.create_table("other", {"n": "long", "place": "string"})
    with pytest.raises(PySparkException, match="does not match"):
        writer(rows, "overwrite", replaceWhere="n < 9").save(judges.uri_of(other))
    assert other.version == 0


def test_options_of_delta_read_a_version(registered: SparkSession, lake: Lake) -> None:
    table = lake.create_table("t", {"n": "long"})
    table.append([{"n": 1}])
    table.append([{"n": 2}])
    moment = datetime.fromtimestamp(table.snapshot(1).timestamp_ms / 1000, UTC).isoformat()
    for name, value in (("versionAsOf", "1"), ("timestampAsOf", moment)):
        assert [row.n for row in load(registered, table, **{name: value}).collect()] == [1]
    with pytest.raises(PySparkException, match=r"option version \(versionAsOf\) is given twice"):
        load(registered, table, version="1", versionAsOf="1")
    with pytest.raises(
        PySparkException, match=r"option overwriteSchema: .*mergeSchema', .* or .*CREATE OR REPLACE TABLE"
    ):
        writer(registered.range(1), "overwrite", overwriteSchema="true").save(judges.uri_of(table))


def test_an_overwrite_replaces_the_partitions_of_its_rows(registered: SparkSession, lake: Lake) -> None:
    columns = {"n": "long", "place": "string", "day": "date"}
    table = lake.create_table("t", columns, ["place", "day"])
    path, day = judges.uri_of(table), "DATE'2026-01-02'"
    first = f"SELECT explode(sequence(0L, 5L)) n, 'it''s' place, {day} day UNION ALL SELECT 6L, NULL, {day}"
    writer(registered.sql(first), "append").save(path)
    writer(
        registered.sql(f"SELECT 7L n, '' place, DATE'2026-01-03' day UNION ALL SELECT 8L, 'b', {day}"), "append"
    ).save(path)
    rows = registered.sql(f"SELECT 10L n, 'it''s' place, {day} day UNION ALL SELECT 11L, '', {day}")
    writer(rows, "overwrite", partitionOverwriteMode="dynamic").save(path)
    assert numbers(table) == [7, 8, 10, 11]
    assert [row["place"] for row in table.to_arrow(where="n IN (7, 11)").to_pylist()] == [None, None]
    writer(rows.limit(0), "overwrite", partitionOverwriteMode="Dynamic").save(path)
    assert numbers(table) == [7, 8, 10, 11]
    writer(rows, "overwrite", partitionOverwriteMode="static").save(path)
    assert numbers(table) == [10, 11]
    judges.judges_agree(table, [table.version])
    days = lake.create_table("days", {"n": "long", "at": "timestamp"}, ["day(at)"])
    moments = registered.sql("SELECT 1L n, timestamp'2026-01-02 00:00:00' at")
    for where, message in (("n = 1", "option replaceWhere is not for"), (None, r"is partitioned by day\(at\)")):
        given = {"partitionOverwriteMode": "dynamic"} | ({} if where is None else {"replaceWhere": where})
        with pytest.raises(PySparkException, match=message):
            writer(moments, "overwrite", **given).save(judges.uri_of(days))


def test_statements_that_spark_refuses_name_the_function(registered: SparkSession, lake: Lake) -> None:
    table = lake.create_table("t", {"n": "long"})
    registered.sql(f"CREATE OR REPLACE TEMP VIEW v USING alluvia OPTIONS (path '{judges.uri_of(table)}')")
    load(registered, table).createOrReplaceTempView("w")
    alluvia_spark.register(registered)
    for statement, function in (
        ("DELETE FROM {} WHERE n = 1", "delete"),
        ("UPDATE {} SET n = 2", "update"),
        ("MERGE INTO {} USING v s ON 1 = 2 WHEN MATCHED THEN DELETE", "upsert"),
    ):
        for view in ("v", "w"):
            with pytest.raises(AnalysisException, match=rf"call alluvia_spark\.{function}\("):
                registered.sql(statement.format(view))
    with pytest.raises(AnalysisException, match="TABLE_OR_VIEW_NOT_FOUND"):
        registered.sql("DELETE FROM nothing")
    assert registered.sql("SELECT {n} AS n", n=1).collect()[0].n == 1
