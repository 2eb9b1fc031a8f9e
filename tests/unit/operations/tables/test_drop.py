"""Dropped tables: gone for everybody, back whole, and never mixed with another of their name."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.errors import (
    Conflict,
    Invalid,
    TableDropped,
    TableExists,
    TableNotFound,
    VersionNotFound,
)
from tests.judges import (
    canonical,
    deltalake_rows,
    deltalake_sql_table,
    duckdb_rows,
    judges_agree,
    on_disk,
    open_deltalake,
    ours,
)
from tests.unit.operations.dropping import filled, numbers


def test_a_dropped_table_is_gone_for_everybody(lake: Lake, other: Lake) -> None:
    table, elsewhere = filled(lake), other.table("t")
    elsewhere._handle.at_hand()
    assert lake.drop_table("t").version == 3
    for each in (table, elsewhere, lake.table("t")):
        for use in (
            each.snapshot,
            each.scan,
            each.history,
            each.optimize,
            each.checkpoint,
            lambda each=each: each.snapshot(version=1),
            lambda each=each: each.append([{"x": 3}]),
            lambda each=each: each.delete("x = 1"),
            lambda each=each: each.evolve(add={"y": "long"}),
            lambda each=each: each.restore(version=1),
        ):
            with pytest.raises(TableNotFound):
                use()
    for here in (lake, other):
        assert (here.tables(), here.tables(dropped=True)) == ([], ["t"])
        with pytest.raises(TableNotFound, match="has no table 't'; it holds no tables yet"):
            here.sql("SELECT * FROM t")
        with pytest.raises(TableNotFound, match=r"undrop\('t'\)"):
            here.drop_table("t")


@pytest.mark.parametrize("writers", ["alluvia", "any"])
def test_other_readers_see_an_empty_table(lake: Lake, writers: str) -> None:
    table = filled(lake, **{"alluvia.writers": writers})
    lake.drop_table("t")
    with on_disk(table) as there:
        assert deltalake_rows(there) == duckdb_rows(there) == []
        assert len(deltalake_rows(there, 2)) == len(duckdb_rows(there, 2)) == 2


def test_other_writers_are_refused_while_a_table_is_dropped(lake: Lake) -> None:
    table = filled(lake, **{"alluvia.writers": "any"})
    rows = pa.table({"x": pa.array([3], pa.int64())})
    lake.drop_table("t")
    with on_disk(table) as there, pytest.raises(DeltaError, match="alluvia"):
        write_deltalake(open_deltalake(there), rows, mode="append")
    lake.undrop("t")
    with on_disk(table) as there:
        write_deltalake(open_deltalake(there), rows, mode="append")
        assert numbers(there) == [1, 2, 3]
        there.append([{"x": 4}])
        judges_agree(there, [4, 5, 6])


@pytest.mark.parametrize("writers", ["alluvia", "any"])
def test_a_table_comes_back_as_it_was(lake: Lake, clock: ManualClock, writers: str) -> None:
    table = lake.create_table(
        "t", {"x": "long", "c": "string"}, ["c"], ["x"], {"alluvia.writers": writers, "owner": "me"}
    )
    table.append([{"x": 1, "c": "a b"}, {"x": 2, "c": None}], txn=("app", 7))
    before = table.snapshot()
    clock.advance(60)
    lake.drop_table("t")
    clock.advance(60)
    report = lake.undrop("t")
    assert (report.version, report.files, report.rejects_version) == (3, 2, None)
    after = table.snapshot()
    assert numbers(table) == numbers(table, version=1) == [1, 2]
    assert (after.protocol, after.schema, after.partition_columns) == (
        before.protocol,
        before.schema,
        before.partition_columns,
    )
    assert {**after.properties, "alluvia.version_gaps": ""} == {**before.properties, "alluvia.version_gaps": ""}
    assert {file.key for file in after.files} == {file.key for file in before.files}
    assert table.append([{"x": 1}], txn=("app", 7)).rows == 0
    assert [(entry.version, entry.operation, entry.readable) for entry in table.history()] == [
        (3, "UNDROP TABLE", True),
        (2, "DROP TABLE", False),
        (1, "WRITE", True),
        (0, "CREATE TABLE", True),
    ]
    assert (lake.tables(), lake.dropped()) == (["t"], [])
    judges_agree(table, [1, 3])


def test_versions_of_the_time_between_are_not_found(lake: Lake, clock: ManualClock) -> None:
    table = filled(lake)
    clock.advance(60)
    lake.drop_table("t")
    at = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
    clock.advance(60)
    lake.undrop("t")
    with pytest.raises(VersionNotFound, match="version 3 belongs to an earlier table t"):
        table.snapshot(version=3)
    with pytest.raises(VersionNotFound, match="there was no table t at that time"):
        table.snapshot(timestamp=at + timedelta(seconds=30))
    assert numbers(table, timestamp=at - timedelta(seconds=30)) == [1, 2]


@pytest.mark.parametrize(("first", "second"), [("alluvia", "alluvia"), ("alluvia", "any"), ("any", "alluvia")])
def test_a_new_table_of_the_name_starts_clean(lake: Lake, clock: ManualClock, first: str, second: str) -> None:
    table = filled(lake, **{"alluvia.writers": first, "owner": "me"})
    table.append([{"x": 3}], txn=("app", 7))
    old_id = table.snapshot().state.metadata.id
    lake.drop_table("t")
    clock.advance(60)
    new = lake.create_table("t", {"y": "string"}, properties={"alluvia.writers": second})
    created_at = datetime.fromtimestamp(clock.now_ms() / 1000, UTC)
    assert new.scan().read_all().num_rows == 0
    assert new.append([{"y": "a"}], txn=("app", 1)).rows == 1
    snapshot = new.snapshot()
    assert (snapshot.schema.names, snapshot.version) == (["y"], 6)
    assert snapshot.state.metadata.id != old_id
    assert "owner" not in snapshot.properties
    for version in range(5):
        with pytest.raises(VersionNotFound, match=f"version {version} belongs to an earlier table t"):
            new.snapshot(version=version)
    with pytest.raises(VersionNotFound, match="no table t at that time"):
        new.snapshot(timestamp=created_at - timedelta(seconds=30))
    assert [entry.operation for entry in new.history()] == ["WRITE", "CREATE TABLE"]
    assert lake.sql("SELECT * FROM t").to_pydict() == {"y": ["a"]}
    judges_agree(new, [5, 6])


def test_in_commit_timestamps_that_start_later_say_since_when(lake: Lake) -> None:
    filled(lake, **{"alluvia.writers": "any"})
    lake.drop_table("t")
    snapshot = lake.create_table("t", {"y": "string"}).snapshot()
    assert snapshot.properties["delta.inCommitTimestampEnablementVersion"] == "4"
    assert snapshot.properties["delta.inCommitTimestampEnablementTimestamp"] == str(snapshot.timestamp_ms)


@pytest.mark.parametrize("writers", ["alluvia", "any"])
def test_what_reading_the_log_needs_is_never_taken_back(lake: Lake, writers: str) -> None:
    """Its newest checkpoint may be one that only readers with a feature can read."""
    table = filled(lake, **{"alluvia.writers": "any", "delta.checkpointPolicy": "v2"})
    table.checkpoint()
    first = lake.drop_table("t").version
    new = lake.create_table("t", {"y": "long"}, properties={"alluvia.writers": writers})
    new.append([{"y": 1}])
    protocol = new.snapshot().protocol
    assert (protocol.min_reader_version, protocol.reader_features) == (3, ("v2Checkpoint",))
    assert {"v2Checkpoint", "appendOnly"} <= set(protocol.writer_features or ())
    others_agree(new)
    new.evolve(add={"t": "timestamp_ntz"})
    lake.drop_table("t")
    lake.undrop("t", first)
    protocol = table.snapshot().protocol
    assert set(protocol.reader_features or ()) == {"v2Checkpoint", "timestampNtz"}
    others_agree(table)


def test_creating_over_a_dropped_table_is_creating(lake: Lake, other: Lake) -> None:
    filled(lake)
    other.table("t").snapshot()
    lake.drop_table("t")
    assert other.create_table("t", {"y": "string"}, exist_ok=True).snapshot().schema.names == ["y"]
    with pytest.raises(TableExists):
        lake.create_table("t", {"z": "string"})
    assert lake.create_table("t", {"z": "string"}, exist_ok=True).snapshot().schema.names == ["y"]


def test_each_dropped_table_comes_back_by_its_version(lake: Lake) -> None:
    first = filled(lake)
    dropped_first = lake.drop_table("t").version
    second = lake.create_table("t", {"y": "string"})
    second.append([{"y": "a"}])
    with pytest.raises(TableExists, match="drop it first"):
        lake.undrop("t")
    dropped_second = lake.drop_table("t").version
    assert [(each.name, each.version) for each in lake.dropped()] == [("t", dropped_first), ("t", dropped_second)]
    with pytest.raises(Invalid, match="was not dropped in version 1; it was in 3, 6"):
        lake.undrop("t", version=1)
    lake.undrop("t", version=dropped_first)
    assert numbers(first) == numbers(first, version=2) == [1, 2]
    for version in (3, 4, 5, 6):
        with pytest.raises(VersionNotFound):
            first.snapshot(version=version)
    assert [entry.version for entry in first.history()] == [7, 3, 2, 1, 0]
    lake.drop_table("t")
    lake.undrop("t", version=dropped_second)
    assert second.scan().read_all().to_pydict() == {"y": ["a"]}
    judges_agree(second, [9])


def test_a_restore_after_an_undrop_keeps_to_its_own_versions(lake: Lake) -> None:
    table = filled(lake)
    lake.drop_table("t")
    lake.undrop("t")
    table.restore(version=1)
    assert numbers(table) == [1]
    with pytest.raises(VersionNotFound):
        table.snapshot(version=3)


def test_what_was_never_dropped_does_not_come_back(lake: Lake) -> None:
    for call in (lake.undrop, lake.drop_table):
        with pytest.raises(TableNotFound):
            call("t")
    filled(lake)
    with pytest.raises(TableExists):
        lake.undrop("t")


def test_an_append_only_table_is_not_dropped_with_its_rows(lake: Lake) -> None:
    table = filled(lake, **{"delta.appendOnly": "true"})
    with pytest.raises(Invalid, match=r"append-only; set delta.appendOnly to 'false'"):
        lake.drop_table("t")
    assert numbers(table) == [1, 2]
    table.evolve(properties={"delta.appendOnly": "false"})
    lake.drop_table("t")
    assert lake.tables() == []


def feed(table: Table, first: int) -> list[tuple[int, str, int]]:
    rows = table.changes(first).read_all().select(["_commit_version", "_change_type", "x"])
    return sorted(zip(*(column.to_pylist() for column in rows.columns), strict=True))


def test_the_change_feed_tells_of_the_drop_and_of_no_other_table(lake: Lake) -> None:
    table = filled(lake)
    first = lake.drop_table("t").version
    new = lake.create_table("t", {"x": "long"})
    new.append([{"x": 9}])
    with pytest.raises(VersionNotFound, match="version 2 belongs to an earlier table t"):
        new.changes(2)
    assert feed(new, 4) == [(5, "insert", 9)]
    lake.drop_table("t")
    lake.undrop("t", version=first)
    inserted = [(1, "insert", 1), (2, "insert", 2)]
    dropped = [(3, "delete", 1), (3, "delete", 2)]
    assert feed(table, 0) == [*inserted, *dropped, (7, "insert", 1), (7, "insert", 2)]


def test_rows_deleted_by_deletion_vectors_stay_deleted(lake: Lake) -> None:
    table = filled(lake, **{"delta.enableDeletionVectors": "true"})
    table.append([{"x": each} for each in range(10, 20)])
    table.delete("x > 15")
    before = table.snapshot()
    assert any(file.deletion_vector for file in before.files)
    lake.drop_table("t")
    lake.table("t").vacuum()
    lake.undrop("t")
    assert {file.key for file in table.snapshot().files} == {file.key for file in before.files}
    assert numbers(table) == [1, 2, *range(10, 16)]
    with on_disk(table) as there:
        assert sorted(duckdb_rows(there)) == [(("x", x),) for x in [1, 2, *range(10, 16)]]


def others_agree(table: Table) -> None:
    with on_disk(table) as there:
        assert canonical(deltalake_sql_table(there)) == duckdb_rows(there) == ours(there)


# Races: `other` commits between a transaction's snapshot and its commit


def test_an_append_that_loses_to_a_drop_fails_by_name(lake: Lake, other: Lake) -> None:
    table = filled(lake)
    other.drop_table("t")
    with pytest.raises(TableDropped, match="version 3 dropped the table") as caught:
        table.append([{"x": 3}])
    assert isinstance(caught.value, TableNotFound)
    assert isinstance(caught.value, Conflict)


def test_an_append_to_a_table_that_another_has_replaced_fails(lake: Lake, other: Lake) -> None:
    table = filled(lake)
    other.drop_table("t")
    other.create_table("t", {"x": "long"})
    with pytest.raises(TableDropped):
        table.append([{"x": 3}])
    assert table.append([{"x": 4}]).rows == 1
    assert numbers(other.table("t")) == [4]


def test_a_drop_that_loses_to_an_append_takes_its_rows_along(lake: Lake, other: Lake) -> None:
    filled(lake)
    other.table("t").append([{"x": 3}])
    lake.drop_table("t")
    with on_disk(lake.table("t")) as there:
        assert deltalake_rows(there) == []
    lake.undrop("t")
    assert numbers(lake.table("t")) == [1, 2, 3]
