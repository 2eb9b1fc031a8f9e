"""Restoring: the log alone says what was; what vacuum has taken does not come back half."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.errors import Invalid, VersionExpired, VersionNotFound
from alluvia.store import CountingStore
from tests.unit.operations.races import Race
from tests.unit.operations.row_samples import by_id, every_kind, ids, make

ALL = list(range(30))
ROW = {"id": 100, "name": "x", "place": "a"}


@every_kind
def test_rows_come_back_without_a_data_file_being_read_or_written(lake: Lake, store: CountingStore, kind: str) -> None:
    table = make(lake, kind)
    before = by_id(table)
    table.delete("id IN (3, 13)")
    table.update({"name": "'x'"}, where="place = 'c'")
    table.append([ROW])
    table.optimize(full=True)
    newest = table.snapshot().version
    store.reset()
    report = table.restore(version=3)
    assert [key for kind, key in store.keys if "/part-" in key and kind != "head"] == []
    assert (report.version, report.restored_version) == (newest + 1, 3)
    assert by_id(table) == before
    assert ids(table, newest) == [number for number in [*ALL, 100] if number not in (3, 13)]
    assert table.history(1)[0].operation == "RESTORE"


def test_the_same_version_again_changes_nothing(lake: Lake) -> None:
    table = make(lake)
    table.delete("id = 3")
    assert table.restore(version=3).version == 5
    assert table.restore(version=3).version == 5
    assert table.restore(version=5).version == 5


def test_to_a_moment(lake: Lake, clock: ManualClock) -> None:
    table = make(lake)
    moment = table.snapshot().timestamp_ms
    clock.advance(60)
    table.delete("true")
    at = datetime.fromtimestamp(moment / 1000 + 1, UTC)
    assert table.restore(timestamp=at).restored_version == 3
    assert ids(table) == ALL
    assert table.restore(offset="30 seconds ago").restored_version == 3
    clock.advance(1)
    assert table.restore(offset=0).version == 5
    with pytest.raises(VersionNotFound):
        table.restore(offset="1 day ago")


def test_schema_and_properties_come_back_too(lake: Lake) -> None:
    table = make(lake)
    table.append([{**ROW, "extra": 1}], evolve=True)
    table.evolve(properties={"team": "x", "alluvia.sort_by": '["id"]'})
    table.restore(version=3)
    snapshot = table.snapshot()
    assert snapshot.schema.names == ["id", "name", "place"]
    assert "team" not in snapshot.properties
    assert ids(table) == ALL
    table.restore(version=5)
    assert table.snapshot().schema.names == ["id", "name", "place", "extra"]
    assert table.snapshot().properties["team"] == "x"


def test_features_that_came_since_stay(lake: Lake) -> None:
    table = make(lake)
    table.evolve(properties={"delta.enableDeletionVectors": "true"})
    table.delete("id = 3")
    table.restore(version=3)
    snapshot = table.snapshot()
    assert "deletionVectors" in (snapshot.protocol.writer_features or ())
    assert "delta.enableDeletionVectors" not in snapshot.properties
    assert ids(table) == ALL
    table.restore(version=5)
    assert ids(table) == [number for number in ALL if number != 3]


@pytest.mark.parametrize("arguments", [{}, {"version": 1, "timestamp": "2024-01-01"}, {"version": "1"}])
def test_wrong_arguments(lake: Lake, arguments: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        make(lake).restore(**arguments)


def test_a_version_that_never_was(lake: Lake) -> None:
    table = make(lake)
    with pytest.raises(VersionNotFound, match="version 9"):
        table.restore(version=9)


def test_an_append_only_table_only_gets_rows_back(lake: Lake) -> None:
    table = make(lake)
    table.delete("id = 3")
    table.evolve(properties={"delta.appendOnly": "true"})
    with pytest.raises(Invalid, match="restore: table t is append-only"):
        table.restore(version=3)
    assert table.snapshot().version == 5


@every_kind
def test_what_vacuum_has_taken_is_refused_by_name(lake: Lake, clock: ManualClock, kind: str) -> None:
    table = make(lake, kind)
    table.delete("place = 'b'")
    clock.advance(60)
    table.vacuum(timedelta(0))
    with pytest.raises(VersionExpired, match="version 3 of t has expired; the oldest version that can be read is 4"):
        table.restore(version=3)
    assert table.restore(version=4).files_restored == 0


@every_kind
def test_a_file_that_someone_deleted_is_refused_by_name(lake: Lake, kind: str) -> None:
    table = make(lake, kind)
    gone = next(file for file in table.snapshot().files if file.partition_values == {"place": "b"})
    table.delete("place = 'b'")
    lake.store.delete([f"t/{gone.path}"])
    version = table.snapshot().version
    with pytest.raises(VersionExpired, match=f"its data file {gone.path} is gone"):
        table.restore(version=3)
    assert table.snapshot().version == version


def test_a_deletion_vector_that_is_gone_is_refused_too(lake: Lake) -> None:
    table = make(lake, "vectors")
    table.delete("id = 3")
    table.update({"name": "'x'"}, where="id < 10")
    vectors = [info.key for info in lake.store.list("t/deletion_vector_")]
    lake.store.delete(vectors)
    with pytest.raises(VersionExpired, match="cannot be restored"):
        table.restore(version=4)


def test_many_files_are_looked_for_by_listing(lake: Lake, store: CountingStore) -> None:
    table = lake.create_table("t", {"x": "long"})
    for number in range(101):
        table.append([{"x": number}])
    table.delete("true")
    store.reset()
    assert table.restore(version=101).files_restored == 101
    # one listing finds the version in the log, the other the files
    assert (store.requests["head"], store.requests["list"]) == (0, 2)


# Concurrent commits: they win right before ours is put.


@every_kind
def test_rows_that_a_winner_appends_are_not_kept(lake: Lake, kind: str) -> None:
    table = make(lake, kind)
    table.delete("id = 3")
    race = Race(lake)
    race.table(lambda theirs: theirs.append([ROW])).restore(version=3)
    assert ids(lake.table("t")) == ALL


@every_kind
def test_rows_that_a_winner_deletes_from_what_was_to_stay_come_back(lake: Lake, kind: str) -> None:
    make(lake, kind).delete("id = 3")
    race = Race(lake)
    race.table(lambda theirs: theirs.delete("place = 'c' OR id = 13")).restore(version=3)
    assert ids(lake.table("t")) == ALL


def test_two_restores_leave_one_of_the_versions(lake: Lake) -> None:
    make(lake).delete("id = 3")
    race = Race(lake)
    race.table(lambda theirs: theirs.restore(version=2)).restore(version=3)
    assert ids(lake.table("t")) == ALL
    assert [entry.operation for entry in lake.table("t").history(2)] == ["RESTORE", "RESTORE"]


def test_a_vacuum_that_wins_stops_it(lake: Lake, clock: ManualClock) -> None:
    make(lake).delete("place = 'b'")
    clock.advance(60)
    race = Race(lake)
    ours = race.table(lambda theirs: theirs.vacuum(timedelta(0)))
    with pytest.raises(VersionExpired, match="version 3"):
        ours.restore(version=3)


@pytest.mark.parametrize("writers", ["alluvia", "any"])
def test_a_vacuum_that_loses_to_a_restore_deletes_nothing_that_came_back(
    lake: Lake, clock: ManualClock, writers: str
) -> None:
    make(lake, properties={"alluvia.writers": writers}).delete("place = 'b'")
    clock.advance(60)
    race = Race(lake)

    def winner(theirs: Table) -> None:
        theirs.restore(version=3)

    race.table(winner).vacuum(timedelta(0))
    assert ids(lake.table("t")) == ALL
