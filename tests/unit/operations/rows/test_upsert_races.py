"""Upserts that meet other writers: they plan again, and each key has one row."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake
from alluvia.operations.rows import source_keys
from tests.unit.operations.races import Race
from tests.unit.operations.row_samples import SCHEMA, by_id, every_kind, make
from tests.unit.operations.rows.keyed import row

# Concurrent commits: they win right before ours is put.


@every_kind
def test_an_append_of_the_same_key_that_wins_is_updated(lake: Lake, kind: str) -> None:
    make(lake, kind)
    race = Race(lake)
    ours = race.table(lambda table: table.append([row(100, "theirs")]))
    report = ours.upsert([row(100, "ours"), row(3, "ours")], on=["id"])
    assert (report.tries, report.rows_updated, report.rows_inserted) == (2, 2, 0)
    rows = by_id(race.theirs.table("t"))
    assert (rows[100], rows[3]) == (row(100, "ours"), row(3, "ours"))


@every_kind
def test_an_upsert_of_the_same_new_key_that_wins(lake: Lake, kind: str) -> None:
    make(lake, kind)
    race = Race(lake)
    ours = race.table(*[lambda table, n=n: table.upsert([row(100, f"{n}")], on=["id"]) for n in range(3)])
    report = ours.upsert([row(100, "ours")], on=["id"])
    assert (report.tries, report.rows_updated, report.rows_inserted) == (4, 1, 0)
    assert by_id(race.theirs.table("t"))[100] == row(100, "ours")


@every_kind
def test_a_delete_of_a_matching_row_that_wins_makes_it_an_insert(lake: Lake, kind: str) -> None:
    make(lake, kind)
    race = Race(lake)
    report = race.table(lambda table: table.delete("id IN (3, 4)")).upsert([row(3), row(5)], on=["id"])
    assert (report.tries, report.rows_updated, report.rows_inserted) == (2, 1, 1)
    rows = by_id(race.theirs.table("t"))
    assert rows.keys() == set(range(30)) - {4}
    assert rows[3] == row(3)


@every_kind
def test_a_compaction_that_wins_makes_it_plan_again(lake: Lake, kind: str) -> None:
    make(lake, kind).append([row(100, "old")])
    race = Race(lake)
    report = race.table(lambda table: table.optimize()).upsert([row(3), row(100), row(101)], on=["id"])
    assert (report.tries, report.rows_updated, report.rows_inserted) == (2, 2, 1)
    assert by_id(race.theirs.table("t"))[100] == row(100)


def test_appends_within_the_range_of_keys_cost_only_their_own_reading(lake: Lake) -> None:
    make(lake)
    race = Race(lake)
    ours = race.table(*[lambda table, n=n: table.append([row(n, "theirs", "b")]) for n in (50, 51, 52)])
    ours.snapshot()
    race.store.reset()
    report = ours.upsert([row(3), row(100)], on=["id"])
    assert (report.tries, report.rows_updated, report.rows_inserted) == (1, 1, 1)
    assert len([key for kind, key in race.store.keys if kind == "put" and "/part-" in key]) == 2


def test_files_written_for_a_plan_that_lost_are_used_again(lake: Lake) -> None:
    make(lake)
    race = Race(lake)
    # 99 lies within the keys' range, so each append must be looked into, but it matches nothing.
    ours = race.table(*[lambda table, n=n: table.append([row(n, "theirs", "b")]) for n in (98, 99)])
    ours.snapshot()
    race.store.reset()
    report = ours.upsert([row(3), *map(row, range(40, 120, 3)), row(98)], on=["id"])
    assert report.tries == 2
    written = [key for kind, key in race.store.keys if kind == "put" and "/part-" in key]
    assert len(written) <= 4
    assert by_id(race.theirs.table("t"))[98] == row(98)


def test_an_added_column_that_wins(lake: Lake) -> None:
    make(lake)
    race = Race(lake)
    report = race.table(lambda table: table.evolve({"extra": "long"})).upsert([row(3), row(100)], on=["id"])
    assert (report.tries, report.rows_updated, report.rows_inserted) == (2, 1, 1)
    assert by_id(race.theirs.table("t"))[100] == {**row(100), "extra": None}


def test_a_reader_is_read_once_however_often_it_plans(lake: Lake) -> None:
    make(lake)
    race = Race(lake)

    def batches() -> Iterator[pa.RecordBatch]:
        yield from pa.Table.from_pylist([row(3), row(100)], SCHEMA).to_batches()

    reader = pa.RecordBatchReader.from_batches(SCHEMA, batches())
    report = race.table(lambda table: table.evolve({"extra": "long"})).upsert(reader, on=["id"])
    assert (report.tries, report.rows_inserted) == (2, 1)


def test_an_upsert_of_very_many_keys_notices_one_that_wins(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(source_keys, "KEYS_SORTED_MAX", 5)
    lake.create_table("t", {"k": "long"})
    table = Race(lake).table(lambda theirs: theirs.upsert([{"k": 77}], on=["k"]))
    changes = table.upsert([{"k": key} for key in range(100)], on=["k"])
    assert (changes.tries, changes.rows_inserted) == (2, 99)
    assert sorted(table.scan().read_all()["k"].to_pylist()) == list(range(100))


def test_rows_that_a_compaction_moved_before_they_went_are_put_in(lake: Lake) -> None:
    """Seed 40923 of the simulation: what was read lies in another file when it is deleted."""
    first = lake.create_table("t", {"k": "long", "v": "string"})
    first.append([{"k": 1, "v": "old"}])
    first.append([{"k": 2, "v": "old"}])
    ours = Race(lake).table(lambda theirs: (theirs.optimize(full=True), theirs.delete("k = 1")))
    changes = ours.upsert([{"k": 1, "v": "new"}, {"k": 3, "v": "new"}], on=["k"], matched="ignore")
    assert (changes.tries, changes.rows_inserted) == (2, 2)
    rows = ours.scan().read_all().to_pylist()
    assert sorted((row["k"], row["v"]) for row in rows) == [(1, "new"), (2, "old"), (3, "new")]
