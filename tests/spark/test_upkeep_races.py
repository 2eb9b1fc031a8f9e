"""Upkeep on Spark of a table that others drop, bring back, restore or erase meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
from pyspark.sql import SparkSession

from alluvia.api.lake import Lake, Table
from alluvia.errors import TableNotFound
from alluvia_spark import upkeep
from alluvia_spark.upkeep import erasing, optimizing, verifying, work
from tests import judges

WHERE = "id = 1"


@pytest.fixture
def table(lake: Lake) -> Table:
    """A table of three versions, whose row 1 came with the first."""
    made = lake.create_table("t", {"id": "long"})
    for number in range(3):
        made.append([{"id": number * 2 + 1}, {"id": number * 2 + 2}])
    return made


@pytest.fixture
def meanwhile(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Has something happen once, before tasks of a module begin."""

    def patch(module: ModuleType, *acts: Callable[[], object]) -> None:
        waiting = list(acts)

        def after(*arguments: Any) -> Iterator[Any]:
            while waiting:
                waiting.pop(0)()
            yield from work.results(*arguments)

        monkeypatch.setattr(module, "results", after)

    return patch


def test_a_table_that_is_dropped_is_not_optimized_and_comes_back_whole(
    spark: SparkSession, lake: Lake, table: Table, meanwhile: Callable[..., None]
) -> None:
    before = judges.ours(table)
    meanwhile(optimizing, lambda: lake.drop_table("t"))
    with pytest.raises(TableNotFound):
        upkeep.optimize(spark, lake.uri, "t")
    lake.undrop("t")
    assert judges.ours(lake["t"]) == before
    meanwhile(optimizing, lambda: lake.drop_table("t"), lambda: lake.undrop("t"))
    done = upkeep.optimize(spark, lake.uri, "t")
    assert (done.files_after, len(lake["t"].files)) == (1, 1)
    assert judges.ours(lake["t"]) == before


def test_a_restore_of_a_table_that_is_optimized_stays(
    spark: SparkSession, lake: Lake, table: Table, meanwhile: Callable[..., None]
) -> None:
    meanwhile(optimizing, lambda: table.restore(version=2))
    done = upkeep.optimize(spark, lake.uri, "t")
    assert (done.conflicts, done.files_after) == (1, 1)
    assert sorted(table.to_arrow()["id"].to_pylist()) == [1, 2, 3, 4]


def test_rows_that_a_restore_brings_back_are_erased_and_a_second_erasure_too(
    spark: SparkSession, lake: Lake, table: Table, meanwhile: Callable[..., None]
) -> None:
    with_the_row = table.version
    table.delete(WHERE)
    meanwhile(erasing, lambda: table.restore(version=with_the_row), lambda: table.erase("id = 3"))
    assert upkeep.erase(spark, lake.uri, "t", where=WHERE).ok
    assert sorted(table.to_arrow()["id"].to_pylist()) == [2, 4, 5, 6]
    assert table.erase("id IN (1, 3)", dry_run=True).ok
    assert not table.verify(full=True).findings


def test_a_table_that_is_dropped_and_brought_back_is_verified(
    spark: SparkSession, lake: Lake, table: Table, meanwhile: Callable[..., None]
) -> None:
    meanwhile(verifying, lambda: lake.drop_table("t"), lambda: lake.undrop("t"))
    found = upkeep.verify(spark, lake.uri, "t")
    assert (found.ok, found.rows) == (True, 6)
