from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession, types

import alluvia
import alluvia_spark
from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.errors import Invalid
from alluvia.store import open_store
from alluvia_spark.tables import TablePlace
from alluvia_spark.writing import joined_upsert, row_changes
from tests import judges
from tests.property.row_model import KINDS

COLUMNS = {"id": "long", "name": "string", "place": "string"}


def make(lake: Lake, name: str, kind: str) -> Table:
    """Create a table of ids 0 to 9, 10 to 19 and 20 to 29 in the places a, b and c."""
    table = lake.create_table(name, COLUMNS, partition_by=["place"], properties=KINDS[kind])
    for number, place in enumerate("abc"):
        table.append([{"id": at, "name": f"n{at}", "place": place} for at in range(number * 10, number * 10 + 10)])
    return table


@pytest.mark.parametrize("kind", ["copied", "vectors, fed"])
def test_spark_does_what_the_library_does(
    spark: SparkSession, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (row_changes, joined_upsert):
        monkeypatch.setattr(module, "grouped", lambda files: [[file] for file in files])
    lake = alluvia.connect(str(tmp_path))
    table, other = make(lake, "t", kind), make(lake, "other", kind)
    path = judges.uri_of(table)
    new = [{"id": at, "name": "new", "place": "b"} for at in (3, 12, 40)]
    rows = spark.createDataFrame([tuple(row.values()) for row in new], "id long, name string, place string")
    marked = {"name": "name || '!'"}
    pairs = [
        (alluvia_spark.upsert(path, rows, ["id"]), other.upsert(new, ["id"])),
        (alluvia_spark.update(spark, path, marked, "id % 7 = 0"), other.update(marked, "id % 7 = 0")),
        (alluvia_spark.delete(spark, path, "place = 'c' OR id % 4 = 1"), other.delete("place = 'c' OR id % 4 = 1")),
        (alluvia_spark.delete(spark, path, "id = 77"), other.delete("id = 77")),
    ]
    for ours, theirs in pairs:
        numbers = [(one.version, one.rows_inserted, one.rows_updated, one.rows_deleted) for one in (ours, theirs)]
        assert numbers[0] == numbers[1]
    assert judges.ours(table) == judges.ours(other)
    feeds = [judges.canonical(each.changes(0).read_all().drop(["_commit_timestamp"])) for each in (table, other)]
    assert feeds[0] == feeds[1]
    assert judges.duckdb_rows(table) == judges.ours(table)


def test_races_and_refusals(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = alluvia.connect(str(tmp_path))
    table = make(lake, "t", "vectors")
    planned = row_changes.SparkWorker.work
    tries: list[int] = []

    def raced(self, snapshot, candidates):  # type: ignore[no-untyped-def]
        found = planned(self, snapshot, candidates)
        if not tries:
            table.delete("id = 5")
            table.append([{"id": 50, "name": "late", "place": "a"}])
        tries.append(len(candidates))
        return found

    monkeypatch.setattr(row_changes.SparkWorker, "work", raced)
    done = alluvia_spark.update(spark, str(tmp_path), {"name": "'x'"}, "place = 'a'", table="t")
    assert (done.rows_updated, done.tries, tries) == (10, 2, [1, 2])
    assert set(table.to_arrow(["name"], "place = 'a'")["name"].to_pylist()) == {"x"}
    version = table.version
    twice = spark.createDataFrame([(1, "a"), (1, "b")], "id long, name string")
    with pytest.raises(Invalid, match="id=1 occurs in 2 rows"):
        alluvia_spark.upsert(judges.uri_of(table), twice, ["id"])
    with pytest.raises(Invalid, match="id"):
        alluvia_spark.update(spark, judges.uri_of(table), {"id": "id * 9223372036854775807 + id"})
    assert table.version == version


@pytest.mark.parametrize("keys_max", [1 << 20, 1], ids=["keys known", "keys not known"])
def test_rows_of_an_upsert_are_joined_with_the_tables(
    spark: SparkSession, tmp_path: Path, keys_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joined_upsert, "KEYS_SORTED_MAX", keys_max)
    monkeypatch.setattr(joined_upsert, "INSERTED_ROWS", 2)
    lake = alluvia.connect(str(tmp_path))
    table, other = make(lake, "t", "vectors"), make(lake, "other", "vectors")
    for each in (table, other):  # id 3 in two files, and a key with a null
        each.append([{"id": 3, "name": "again", "place": "a"}, {"id": None, "name": "null", "place": "b"}])
        each.delete("id = 4")
    path = judges.uri_of(table)
    ids = [3, 4, 12, 13, None, 14, 15, 21, 50, 51]
    places = ["a", "a", "b", "c", "b", None, "b", "c", "z", "z"]
    new = [
        {"id": at, "name": f"new {at}", "place": place, "old": at == 21} for at, place in zip(ids, places, strict=True)
    ]
    rows = spark.createDataFrame([tuple(row.values()) for row in new], "id int, name string, place string, old boolean")
    rules: dict[str, Any] = {"delete_when": "new.old", "when": "name <> 'n15'", "insert_when": "new.id <> 51"}
    ours = alluvia_spark.upsert(path, rows, ["id", "place"], columns=["name"], **rules)
    theirs = other.upsert(new, ["id", "place"], columns=["name"], **rules)
    numbers = [(one.version, one.rows_inserted, one.rows_updated, one.rows_deleted) for one in (ours, theirs)]
    assert numbers == [(theirs.version, 4, 3, 1)] * 2
    assert judges.ours(table) == judges.ours(other)
    metrics = [each.history()[0].metrics for each in (table, other)]
    assert metrics[0]["numSourceRows"] == metrics[1]["numSourceRows"] == "10"
    twice = spark.createDataFrame([(1, "a"), (1, "a"), (2, "a")], "id long, place string")
    with pytest.raises(Invalid, match="id=1, place='a' occurs in 2 rows"):
        alluvia_spark.upsert(path, twice, ["id", "place"])
    gone = alluvia_spark.upsert(path, rows.drop("old"), ["id", "place"], matched="delete")
    assert (gone.rows_deleted, gone.rows_inserted) == (7, 0)


@pytest.mark.parametrize("keys_max", [1 << 20, 1], ids=["keys known", "keys not known"])
def test_columns_of_an_upsert_have_any_name(
    spark: SparkSession, tmp_path: Path, keys_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(joined_upsert, "KEYS_SORTED_MAX", keys_max)
    names = ["a.b", "*", "back`tick", "__alluvia_group", "__alluvia_key0", "c0", "it's", "a[0]"]
    table = alluvia.connect(str(tmp_path)).create_table("t", dict.fromkeys(names, "long"))
    table.append([dict.fromkeys(names, at) for at in (1, 2)])
    kinds = types.StructType([types.StructField(name, types.LongType()) for name in names])
    rows = spark.createDataFrame([(at, at, *[at * 10] * 6) for at in (2, 3)], kinds)
    done = alluvia_spark.upsert(judges.uri_of(table), rows, ["a.b", "*"])
    assert (done.rows_updated, done.rows_inserted) == (1, 1)
    assert [list(row.values()) for row in table.to_arrow().sort_by("*").to_pylist()] == [
        [1] * 8,
        [2, 2, *[20] * 6],
        [3, 3, *[30] * 6],
    ]
    done = alluvia_spark.upsert(judges.uri_of(table), rows, ["__alluvia_group", "back`tick"])
    assert (done.rows_updated, done.rows_inserted) == (2, 0)


def test_columns_of_an_upsert_are_matched_in_any_case(spark: SparkSession, tmp_path: Path) -> None:
    table = make(alluvia.connect(str(tmp_path)), "t", "copied")
    rows = spark.createDataFrame([(3, "new", "x"), (40, "new", "x")], "ID long, Name string, place string")
    done = alluvia_spark.upsert(judges.uri_of(table), rows, ["Id"], columns=["NAME"])
    assert (done.rows_updated, done.rows_inserted) == (1, 1)
    assert table.to_arrow(where="name = 'new'").sort_by("id").to_pylist() == [
        {"id": 3, "name": "new", "place": "a"},
        {"id": 40, "name": "new", "place": "x"},
    ]
    with pytest.raises(Invalid, match="on: expected a list of names"):
        alluvia_spark.upsert(judges.uri_of(table), rows, "id")


def test_a_lake_and_a_tables_name(spark: SparkSession, tmp_path: Path) -> None:
    lake = alluvia.connect(tmp_path / "a b")
    table = make(lake, "t", "copied")
    assert alluvia_spark.update(spark, lake, {"name": "'x'"}, "id = 3", table="t").rows_updated == 1
    assert alluvia_spark.delete(spark, str(tmp_path / "a b"), "id = 4", table="t").rows_deleted == 1
    rows = spark.createDataFrame([(3, "y"), (40, "y")], "id long, name string")
    assert alluvia_spark.upsert(lake, rows, ["id"], table="t").rows_inserted == 1
    assert table.to_arrow(where="name = 'y'").sort_by("id")["id"].to_pylist() == [3, 40]


@pytest.mark.parametrize(
    ("uri", "table", "options", "refusal"),
    [
        ("s3://b/lake", "t", {}, "its URI, 's3://b/lake', the table's name as `table`, and the options"),
        ("memory://m", "t", {}, "its URI"),
        ("{}", None, {}, "table: give the table's name"),
        ("{}", "t", {"region": "r"}, "region: give it to alluvia.connect"),
    ],
)
def test_lakes_that_only_this_process_knows(
    tmp_path: Path, uri: str, table: str | None, options: dict[str, str], refusal: str
) -> None:
    given: Any = {"region": "r", "access_key_id": "k", "secret_access_key": "s"} if uri.startswith("s3:") else {}
    with pytest.raises(Invalid, match=refusal):
        TablePlace.of(alluvia.connect(uri.format(tmp_path), **given), table, options)


def test_a_branch_is_not_changed(tmp_path: Path) -> None:
    lake = alluvia.connect(tmp_path)
    make(lake, "t", "copied")
    lake.branch("fix")
    with pytest.raises(Invalid, match="on branch 'fix' Spark changes no rows"):
        TablePlace.of(lake.on_branch("fix"), "t", {})


def test_an_upsert_that_loses_a_race_meets_the_rows_of_the_winner(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = make(alluvia.connect(str(tmp_path)), "t", "copied")
    planned = joined_upsert.JoinWorker.work
    tries: list[int] = []

    def raced(self, snapshot, candidates):  # type: ignore[no-untyped-def]
        found = planned(self, snapshot, candidates)
        if not tries:
            table.append([{"id": 50, "name": "winner's", "place": "a"}])
        tries.append(len(candidates))
        return found

    monkeypatch.setattr(joined_upsert.JoinWorker, "work", raced)
    rows = spark.createDataFrame([(3, "new"), (50, "new"), (51, "new")], "id long, name string")
    done = alluvia_spark.upsert(judges.uri_of(table), rows, ["id"])
    assert (done.rows_updated, done.rows_inserted, done.tries) == (2, 1, 2)
    assert table.to_arrow(where="name = 'new'").sort_by("id")["id"].to_pylist() == [3, 50, 51]
    assert table.count() == 32


def test_an_upsert_whose_tasks_slept_for_a_day_upserts_all_the_same(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vacuum may have taken what the tasks wrote: it is written again, and not taken for nothing."""
    clock = ManualClock(time.time_ns() // 1000)
    lake = Lake(open_store(str(tmp_path), clock), clock)
    table = make(lake, "t", "copied")
    monkeypatch.setattr(TablePlace, "handle", lambda _: lake.catalog.handle("t"))
    worked_on = joined_upsert.JoinWorker._worked_on
    taken: list[int] = []

    def slept(self, groups, done):  # type: ignore[no-untyped-def]
        found = worked_on(self, groups, done)
        if not taken:
            clock.advance(30 * 3600)
            taken.append(len(lake.table("t").vacuum(timedelta(0)).orphans))
        return found

    monkeypatch.setattr(joined_upsert.JoinWorker, "_worked_on", slept)
    rows = spark.createDataFrame([(3, "new"), (51, "new")], "id long, name string")
    done = alluvia_spark.upsert(judges.uri_of(table), rows, ["id"])
    assert (taken, done.rows_updated, done.rows_inserted) == ([2], 1, 1)
    assert table.to_arrow(where="name = 'new'").sort_by("id")["id"].to_pylist() == [3, 51]
    assert table.count() == 31


def test_a_change_with_a_transaction_happens_once(spark: SparkSession, tmp_path: Path) -> None:
    table = make(alluvia.connect(str(tmp_path)), "t", "copied")
    path = judges.uri_of(table)
    rows = spark.createDataFrame([(0, "x", "a"), (99, "x", "a")], "id long, name string, place string")
    first = table.version
    done = [
        alluvia_spark.update(spark, path, {"id": "id + 100"}, "id = 1", txn=("update", 1)),
        alluvia_spark.update(spark, path, {"id": "id + 100"}, "id = 101", txn=("update", 1)),
        alluvia_spark.delete(spark, path, "id = 2", txn=("delete", 7)),
        alluvia_spark.delete(spark, path, "id = 3", txn=("delete", 6)),
        alluvia_spark.upsert(path, rows, ["id"], matched="ignore", txn=("upsert", 0)),
        alluvia_spark.upsert(path, rows, ["id"], matched="update", txn=("upsert", 0)),
        alluvia_spark.delete(spark, path, "id = 1000", txn=("delete", 8)),
        alluvia_spark.delete(spark, path, "id = 4", txn=("delete", 8)),
    ]
    assert [each.version - first for each in done] == [1, 1, 2, 2, 3, 3, 4, 4]
    numbers = [(each.rows_updated, each.rows_deleted, each.rows_inserted) for each in done]
    assert numbers == [(1, 0, 0), (0, 0, 0), (0, 1, 0), (0, 0, 0), (0, 0, 1), (0, 0, 0), (0, 0, 0), (0, 0, 0)]
    ids = sorted(table.to_arrow()["id"].to_pylist())
    assert ids == [0, *range(3, 30), 99, 101]
    assert table.to_arrow(where="id = 0")["name"].to_pylist() == ["n0"]
    with pytest.raises(Invalid, match="txn: expected a string and a number"):
        alluvia_spark.delete(spark, path, "id = 5", txn=("delete", -1))
