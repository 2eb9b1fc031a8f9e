from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.errors import Invalid
from tests.judges import canonical, deltalake_sql_table, duckdb_rows, judges_agree, on_disk, ours
from tests.unit.operations.races import Race

SCHEMA = pa.schema([("x", pa.int64()), ("c", pa.string())])


@pytest.fixture
def table(lake: Lake) -> Table:
    return lake.create_table("t", SCHEMA, partition_by=["c"])


def test_columns_are_added_and_old_rows_have_nulls_there(table: Table) -> None:
    table.append([{"x": 1, "c": "a"}])
    commit = table.evolve({"y": "long", "z": "decimal(5,2)"})
    assert commit.version == 2
    table.evolve(pa.schema([("s", pa.struct([("a", pa.int64())])), ("l", pa.list_(pa.string()))]))
    table.append([{"x": 2, "y": 5, "s": {"a": 1}, "l": ["x"]}])
    snapshot = table.snapshot()
    assert snapshot.schema.names == ["x", "c", "y", "z", "s", "l"]
    rows = sorted(table.scan(["x", "y", "s"]).read_all().to_pylist(), key=repr)
    assert rows == [{"x": 1, "y": None, "s": None}, {"x": 2, "y": 5, "s": {"a": 1}}]
    assert table.snapshot(1).schema.names == ["x", "c"]
    judges_agree(table)


def test_properties_are_set_and_what_changes_nothing_commits_nothing(table: Table) -> None:
    assert table.evolve(properties={"alluvia.sort_by": '["x"]', "owner": "me"}).version == 1
    assert table.snapshot().settings.sort_by == ("x",)
    assert table.evolve(properties={"owner": "me"}).version == 1
    assert table.evolve().version == 1
    assert table.snapshot(0).properties.get("owner") is None


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"add": {"x": "long"}}, r"x\b.*exists|repeated"),
        ({"add": {"X": "long"}}, r"[xX]\b.*exists|repeated"),
        ({"add": {"y": "int8"}}, "unknown type 'int8'"),
        ({"add": {"y": 5}}, "column y: expected"),
        ({"add": {" ": "long"}}, "column name ' ' is empty"),
        ({"add": pa.schema([pa.field("y", pa.int64(), nullable=False)])}, "column y must be nullable"),
        ({"add": pa.schema([("y", pa.uint64())])}, "column y"),
        ({"properties": {"alluvia.partition_by": '["x"]'}}, "alluvia.partition_by cannot be changed"),
        ({"properties": {"alluvia.writers": "any"}}, "alluvia.writers cannot be changed"),
        ({"properties": {"alluvia.oldest_readable_version": "7"}}, "cannot be changed"),
        ({"properties": {"delta.enableInCommitTimestamps": "false"}}, "cannot be changed"),
        ({"properties": {"alluvia.sort_by": '["none"]'}}, "sort_by: 'none'"),
        ({"properties": {"alluvia.cluster_by": '["x", "none"]'}}, "cluster_by: 'none'"),
        ({"properties": {"alluvia.cluster_by": '["a", "b", "c", "d", "e"]'}}, "cluster_by: expected at most 4"),
        ({"properties": {"alluvia.dedup_window": "soon"}}, "alluvia.dedup_window"),
        ({"properties": {"alluvia.none": "1"}}, "alluvia.none is unknown"),
        ({"properties": {"delta.columnMapping.mode": "name"}}, "cannot be set: renaming or dropping a column"),
        ({"properties": {"delta.enableRowTracking": "true"}}, "needs the feature rowTracking"),
        ({"properties": {"delta.feature.rowTracking": "supported"}}, "the protocol follows from the other properties"),
        ({"properties": {"delta.minReaderVersion": "3"}}, "the protocol follows from the other properties"),
        ({"properties": {"alluvia.dropped": "1"}}, "alluvia.dropped is unknown"),
        ({"properties": {"delta.enableInCommitTimestamps": None}}, "delta.enableInCommitTimestamps cannot be changed"),
    ],
)
def test_a_change_that_cannot_be_is_refused_by_name(table: Table, arguments: dict[str, Any], named: str) -> None:
    with pytest.raises(Invalid, match=named):
        table.evolve(**arguments)
    assert table.snapshot().version == 0


def test_a_property_is_removed(table: Table) -> None:
    table.evolve(properties={"alluvia.dedup_window": "2 days", "owner": "me"})
    table.evolve(properties={"alluvia.dedup_window": None, "owner": "you"})
    properties = table.snapshot().properties
    assert ("alluvia.dedup_window" in properties, properties["owner"]) == (False, "you")
    assert table.evolve(properties={"alluvia.dedup_window": None}).version == 2
    assert "owner" not in table.snapshot(table.evolve(properties={"owner": None}).version).properties


def test_a_column_may_be_called_after_a_type(table: Table) -> None:
    table.evolve({"timestamp_ntz": "long"})
    assert "timestampNtz" not in (table.snapshot().protocol.writer_features or ())


def test_columns_that_others_add_at_the_same_time_all_come(lake: Lake, table: Table) -> None:
    race = Race(lake)
    ours = race.table(
        lambda t: t.evolve({"theirs": "long"}), lambda t: t.evolve(properties={"delta.appendOnly": "true"})
    )
    assert ours.evolve({"ours": "timestamp_ntz"}).version == 3
    assert ours.snapshot().schema.names == ["x", "c", "theirs", "ours"]
    assert ours.snapshot().settings.append_only


def test_the_same_column_added_at_the_same_time_is_fine(lake: Lake, table: Table) -> None:
    ours = Race(lake).table(lambda t: t.evolve({"both": "long", "theirs": "long"}))
    assert ours.evolve({"both": "long"}).version == 1
    ours = Race(lake).table(lambda t: t.evolve({"two": "long"}))
    assert ours.evolve({"two": "long", "three": "long"}).version == 3
    assert ours.snapshot().schema.names == ["x", "c", "both", "theirs", "two", "three"]
    with pytest.raises(Invalid, match="column two already exists, as long"):
        ours.evolve({"two": "long"})


def test_a_column_that_another_adds_with_another_type_is_refused_by_name(lake: Lake, table: Table) -> None:
    ours = Race(lake).table(lambda t: t.evolve({"both": "long"}))
    with pytest.raises(Invalid, match="column both already exists, as long"):
        ours.evolve({"both": "string", "ours": "long"})
    assert ours.snapshot().schema.names == ["x", "c", "both"]


def test_history_tells_who_did_what_newest_first(table: Table, clock: ManualClock) -> None:
    clock.advance(60)
    for number in range(2):
        table.append([{"x": number}, {"x": number, "c": "a"}])
    table.evolve({"y": "long"})
    table.optimize()
    entries = table.history()
    assert [(entry.version, entry.operation) for entry in entries] == [
        (5, "OPTIMIZE"),
        (4, "OPTIMIZE"),
        (3, "ADD COLUMNS"),
        (2, "WRITE"),
        (1, "WRITE"),
        (0, "CREATE TABLE"),
    ]
    assert [(entry.files_added, entry.files_removed) for entry in entries] == [
        (1, 2), (1, 2), (0, 0), (2, 0), (2, 0), (0, 0),
    ]  # fmt: skip
    write = entries[4]
    assert write.metrics["numOutputRows"] == "2"
    assert write.parameters == {"mode": "Append"}
    assert write.engine.startswith("Alluvia/")
    assert write.timestamp == datetime.fromtimestamp(1_700_000_060, UTC)
    assert [entry.version for entry in table.history(2)] == [5, 4]
    table.checkpoint()
    assert len(table.history()) == 6


@pytest.mark.parametrize("writers", ["alluvia", "any"])
@pytest.mark.parametrize(
    ("change", "writer_feature", "reader_feature"),
    [
        ({"properties": {"delta.enableDeletionVectors": "true"}}, "deletionVectors", "deletionVectors"),
        ({"properties": {"delta.enableChangeDataFeed": "true"}}, "changeDataFeed", None),
        ({"add": {"y": "timestamp_ntz"}}, "timestampNtz", "timestampNtz"),
    ],
)
def test_a_change_that_needs_a_feature_brings_it(
    lake: Lake, writers: str, change: dict[str, Any], writer_feature: str, reader_feature: str | None
) -> None:
    table = lake.create_table("t", SCHEMA, properties={"alluvia.writers": writers})
    table.append([{"x": 1}, {"x": 2}])
    before = table.snapshot().protocol
    table.evolve(**change)
    protocol = table.snapshot().protocol
    assert protocol.min_writer_version == 7
    assert set(protocol.writer_features or ()) == {
        *(before.writer_features or ("appendOnly", "invariants")),
        writer_feature,
    }
    assert protocol.reader_features == (None if reader_feature is None else (reader_feature,))
    assert protocol.min_reader_version == (1 if reader_feature is None else 3)
    table.append([{"x": 3}])
    table.delete("x = 1")
    with on_disk(table) as there:
        for version in range(there.snapshot().version + 1):
            rows = canonical(deltalake_sql_table(there, version))
            assert rows == duckdb_rows(there, version) == ours(there, version)
    table.evolve(properties={"owner": "me"})
    assert table.snapshot().protocol == protocol


@pytest.mark.parametrize(("writers", "version"), [("alluvia", 7), ("any", 2)])
def test_append_only_is_in_every_protocol_of_ours(lake: Lake, writers: str, version: int) -> None:
    table = lake.create_table("t", SCHEMA, properties={"alluvia.writers": writers})
    table.append([{"x": 1}])
    table.evolve(properties={"delta.appendOnly": "true"})
    assert table.snapshot().protocol.min_writer_version == version
    with pytest.raises(Invalid, match=r"append-only; set delta.appendOnly to 'false'"):
        table.delete("x = 1")
    table.append([{"x": 2}])
    table.evolve(properties={"delta.appendOnly": "false"})
    table.delete("x = 1")
    assert table.scan(["x"]).read_all()["x"].to_pylist() == [2]


def test_an_evolving_append_brings_the_feature_of_a_time_without_zone(table: Table) -> None:
    table.append([{"x": 1, "t": datetime(2024, 1, 1)}], evolve=True)
    assert "timestampNtz" in (table.snapshot().protocol.writer_features or ())
    assert table.scan(["t"]).read_all()["t"].to_pylist() == [datetime(2024, 1, 1)]
    judges_agree(table)
