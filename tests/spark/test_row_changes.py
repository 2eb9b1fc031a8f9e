from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import alluvia
import alluvia_spark
from alluvia.errors import Invalid
from alluvia.lake import Lake, Table
from alluvia_spark import row_changes
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
    monkeypatch.setattr(row_changes, "grouped", lambda files: [[file] for file in files])
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
    planned = row_changes.SparkRewriter.work
    tries: list[int] = []

    def raced(self, snapshot, candidates):  # type: ignore[no-untyped-def]
        found = planned(self, snapshot, candidates)
        if not tries:
            table.delete("id = 5")
            table.append([{"id": 50, "name": "late", "place": "a"}])
        tries.append(len(candidates))
        return found

    monkeypatch.setattr(row_changes.SparkRewriter, "work", raced)
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
