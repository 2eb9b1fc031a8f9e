"""Vacuum on Spark deletes what the library's deletes, wherever a listing is divided and whatever fails."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

import alluvia
from alluvia.api.lake import Lake, Table
from alluvia.clock import SystemClock
from alluvia.commit.changes import Changes
from alluvia.delta.log.actions import AddFile
from alluvia.operations.retention.table_objects import borders
from alluvia.store import MemoryStore
from alluvia_spark import upkeep
from alluvia_spark.upkeep import vacuuming, work
from alluvia_spark.upkeep.vacuuming import TaskObjects
from tests import judges
from tests.examples import examples
from tests.spark import faults

NOW = timedelta()


def make(folder: Path) -> Table:
    """Create a table with removed files of several partitions, orphans and files that vacuum leaves alone."""
    table = alluvia.connect(str(folder)).create_table("t", {"id": "long", "place": "string"}, partition_by=["place"])
    for number in range(3):
        table.append([{"id": number * 10 + at, "place": "abcd"[at % 4]} for at in range(10)])
    table.optimize()
    table.append([{"id": 99, "place": "b"}])
    return table


def files(folder: Path) -> set[str]:
    return {each.relative_to(folder).as_posix() for each in folder.rglob("*") if each.is_file()}


def test_spark_deletes_the_objects_that_the_library_deletes_also_if_an_executor_is_lost(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vacuuming, "DELETED_KEYS", 5)
    table, other = make(tmp_path / "spark"), make(tmp_path / "plain")
    before, rows = files(tmp_path / "spark"), judges.ours(table)
    place = str(tmp_path / "spark")
    planned = upkeep.vacuum(spark, place, "t", NOW, dry_run=True)
    assert files(tmp_path / "spark") == before
    monkeypatch.setattr(vacuuming, "results", faults.dying(work.results, str(tmp_path / "died")))
    done, expected = upkeep.vacuum(spark, place, "t", NOW), other.vacuum(NOW)
    assert ((tmp_path / "died").exists(), done.not_deleted) == (True, ())
    assert set(done.data_files) == set(planned.data_files)
    assert dict(done.counts) == dict(expected.counts)
    assert done.counts["data_files"] == 12
    assert [(each.reason, each.objects) for each in done.kept] == [
        (each.reason, each.objects) for each in expected.kept
    ]
    assert (done.oldest_version, done.complete) == (expected.oldest_version, True)
    assert len(files(tmp_path / "spark")) == len(files(tmp_path / "plain"))
    assert judges.ours(table) == rows
    assert not table.verify(full=True).findings
    assert upkeep.vacuum(spark, place, "t", NOW).counts["data_files"] == 0


KEYS = st.lists(st.text("ab/é~ 9", min_size=1, max_size=4).filter(lambda key: "//" not in f"/{key}/"), unique=True)


@settings(max_examples=examples(30))
@given(KEYS, KEYS, st.integers(1, 9), st.none() | st.text("ab/9", min_size=1, max_size=3))
def test_ranges_list_each_object_once(committed: list[str], others: list[str], ranges: int, after: str | None) -> None:
    store = MemoryStore()
    handle = Lake(store, SystemClock()).create_table("t", {"id": "long"})._handle
    adds = [AddFile(quote(key), {}, 1, 1, data_change=True) for key in committed]
    handle.transaction(handle.newest()).commit(Changes("WRITE", adds=adds))
    for key in {*committed, *others}:
        store.put(f"t/{key}", b"")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vacuuming, "jobs_at_once", lambda _: ranges)
        patch.setattr(vacuuming, "in_order", lambda _, work, pieces: map(work, pieces))
        place: Any = SimpleNamespace(handle=lambda: handle)
        spark: Any = None
        listed = [key for page in TaskObjects(spark, place).pages(after) for key in page.keys.to_pylist()]
    assert listed == [each.key for each in store.list("t/", None if after is None else f"t/{after}")]
    assert len(borders(handle.newest(), ranges)) < ranges
