"""The change feed that we write is what other readers make of it, and we make the same of theirs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import alluvia
from alluvia.api.lake import Table
from tests import judges
from tests.reach.delta_spark import DeltaSpark
from tests.reach.made_by_spark import BySpark
from tests.reach.spark_tables import FEEDS, Made
from tests.reach.tables import edited, numbers, simple

FEED = {"delta.enableChangeDataFeed": "true"}
VECTORS = {"delta.enableDeletionVectors": "true"}
CHANGES = {
    1: ["insert 1", "insert 2", "insert 3", "insert 4", "insert 5", "insert 6"],
    2: ["insert 7"],
    3: ["delete 1", "delete 2"],
    4: ["update_postimage 4", "update_postimage 7", "update_preimage 4", "update_preimage 7"],
    5: ["insert 8", "update_postimage 6", "update_preimage 6"],
    6: ["delete 8"],
    7: ["delete 3", "delete 4", "delete 5", "delete 6", "delete 7"],
    8: ["insert 9"],
}
"""What the edits of `edited` change, by version."""


def _shown(changes: pa.Table) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for row in changes.to_pylist():
        found.setdefault(row["_commit_version"], []).append(f"{row['_change_type']} {row['n']}")
    return {version: sorted(rows) for version, rows in sorted(found.items())}


def _by_spark(spark: DeltaSpark, table: Table, first: int) -> pa.Table:
    return spark.changes(table, first, table.snapshot().version)


@pytest.mark.parametrize("properties", [FEED, FEED | VECTORS], ids=["rewritten", "vectors"])
@pytest.mark.slow
@pytest.mark.xdist_group("delta-spark")
def test_spark_reads_our_feed(properties: dict[str, str], delta_spark: DeltaSpark, tmp_path: Path) -> None:
    table = edited(simple(alluvia.connect(str(tmp_path)), properties))
    mine, theirs = table.changes(1).read_all(), _by_spark(delta_spark, table, 1)
    assert _shown(mine) == CHANGES
    assert judges.canonical(theirs) == judges.canonical(mine)
    assert judges.kinds(theirs.schema) == judges.kinds(mine.schema)


def test_deltalake_reads_our_feed(tmp_path: Path) -> None:
    table = edited(simple(alluvia.connect(str(tmp_path)), FEED))
    found = pa.table(judges.open_deltalake(table).load_cdf(starting_version=1).read_all())
    assert _shown(found) == CHANGES
    columns = ["n", "name", "_change_type", "_commit_version"]
    assert judges.canonical(found.select(columns)) == judges.canonical(table.changes(1).read_all().select(columns))


@pytest.mark.slow
@pytest.mark.xdist_group("delta-spark")
@pytest.mark.parametrize("made", FEEDS, ids=str)
def test_we_read_sparks_feed(made: Made, by_spark: BySpark, delta_spark: DeltaSpark) -> None:
    by = by_spark(made)
    table, theirs = by.table, by.feed
    mine = table.changes(1).read_all()
    assert _shown(mine) == {
        1: ["insert 1", "insert 2", "insert 3", "insert 4"],
        2: ["delete 1"],
        3: ["update_postimage 33", "update_preimage 3"],
        4: ["delete 2", "insert 5"],
        5: ["delete 4"],
    }
    assert theirs is not None
    assert judges.canonical(theirs) == judges.canonical(mine)
    table.append(numbers(6))
    table.delete("n = 33")
    assert judges.canonical(_by_spark(delta_spark, table, 6)) == judges.canonical(table.changes(6).read_all())
    assert _shown(table.changes(6).read_all()) == {6: ["insert 6"], 7: ["delete 33"]}
