"""Tables that other writers made: what their protocol, paths and times mean when we write and clean up."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import alluvia
from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.errors import Corrupt, Invalid, Unsupported, VersionExpired
from alluvia.store import CountingStore, DirectoryStore
from tests.judges import deltalake_rows, duckdb_rows, judges_agree, on_disk, ours

Json = dict[str, Any]
SCHEMA = {"type": "struct", "fields": [{"name": "k", "type": "long", "nullable": True, "metadata": {}}]}
OLD = {"minReaderVersion": 1, "minWriterVersion": 2}
TIMED = {
    "minReaderVersion": 1,
    "minWriterVersion": 7,
    "writerFeatures": ["inCommitTimestamp", "appendOnly", "invariants", "domainMetadata"],
}
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS


def commit(lake: Lake, version: int, info: Json, *actions: Json) -> None:
    lines = [{"commitInfo": info}, *actions]
    body = "".join(json.dumps(line) + "\n" for line in lines)
    lake.store.put(f"t/_delta_log/{version:020d}.json", body.encode())


def metadata(configuration: Mapping[str, str]) -> Json:
    body = {"id": "x", "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps(SCHEMA)}
    return {"metaData": {**body, "partitionColumns": [], "configuration": dict(configuration), "createdTime": 1}}


def foreign(lake: Lake, protocol: Json, configuration: Mapping[str, str], **info: Any) -> Table:
    commit(lake, 0, {"operation": "CREATE TABLE", **info}, {"protocol": protocol}, metadata(configuration))
    return lake.table("t")


def rows(*keys: int) -> list[Json]:
    return [{"k": key} for key in keys]


def actions(lake: Lake, version: int) -> list[Json]:
    return [json.loads(line) for line in lake.store.get(f"t/_delta_log/{version:020d}.json").splitlines()]


def keys(table: Table, version: int | None = None) -> list[int]:
    return sorted(table.scan(version=version).read_all()["k"].to_pylist())


def test_no_deletion_vectors_where_the_protocol_has_none(lake: Lake) -> None:
    """Readers of version 1 would read deleted rows."""
    table = foreign(lake, OLD, {"delta.enableDeletionVectors": "true"}, timestamp=1)
    table.append(rows(*range(10)))
    table.delete("k = 3")
    assert not any("deletionVector" in action.get("add", {}) for action in actions(lake, 2))
    with on_disk(table) as there:
        assert ours(there) == deltalake_rows(there) == duckdb_rows(there)
    assert keys(table) == [key for key in range(10) if key != 3]


def test_no_change_files_where_the_protocol_has_none(lake: Lake) -> None:
    table = foreign(lake, OLD, {"delta.enableChangeDataFeed": "true"}, timestamp=1)
    table.append(rows(1, 2))
    table.delete("k = 1")
    assert [name for action in actions(lake, 2) for name in action if name == "cdc"] == []


@pytest.mark.parametrize("text", ["true", "TRUE", "True"])
def test_commits_carry_their_time_however_the_property_is_written(lake: Lake, clock: ManualClock, text: str) -> None:
    table = foreign(lake, TIMED, {"delta.enableInCommitTimestamps": text}, inCommitTimestamp=clock.now_ms())
    clock.advance(1)
    table.append(rows(1))
    assert actions(lake, 1)[0]["commitInfo"]["inCommitTimestamp"] == clock.now_ms()
    assert table.snapshot().timestamp_ms == clock.now_ms()


def test_versions_before_commits_carried_their_time_go_by_the_files_times(lake: Lake, clock: ManualClock) -> None:
    """A commit without a time, and one whose writer's clock was ahead, come before the first that has one."""
    began = clock.now_ms()
    table = foreign(lake, TIMED, {})
    for info in ({}, {"timestamp": began + 50 * HOUR_MS}):
        clock.advance(3600)
        commit(lake, 1 if not info else 2, {"operation": "WRITE", **info})
    clock.advance(3600)
    since = {"inCommitTimestampEnablementVersion": "3", "inCommitTimestampEnablementTimestamp": str(clock.now_ms())}
    configuration = {f"delta.{name}": text for name, text in since.items()} | {"delta.enableInCommitTimestamps": "true"}
    commit(lake, 3, {"inCommitTimestamp": clock.now_ms(), "operation": "SET"}, metadata(configuration))
    clock.advance(3600)
    commit(lake, 4, {"inCommitTimestamp": clock.now_ms(), "operation": "WRITE"})
    found = [
        table.snapshot(timestamp=datetime.fromtimestamp((began + hours * HOUR_MS) / 1000, UTC)).version
        for hours in (0.5, 1.5, 2.5, 3.5, 4.5)
    ]
    assert found == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("form", ["./{}", "sub//{}", "sub/../{}", "sub/./{}", "../t/{}"])
def test_vacuum_knows_a_live_file_by_whatever_path(lake: Lake, clock: ManualClock, form: str) -> None:
    table = foreign(lake, OLD, {}, timestamp=1)
    table.append(rows(1, 2))
    (name,) = [file.path for file in table.snapshot().files]
    if "//" in form or form == "sub/./{}":
        lake.store.put(f"t/sub/{name}", lake.store.get(f"t/{name}"))
    log = actions(lake, 1)
    for action in log[1:]:
        action["add"]["path"] = form.format(name)
    commit(lake, 1, log[0]["commitInfo"], *log[1:])
    clock.advance(40 * 24 * 3600)
    fresh = Lake(lake.store, clock).table("t")
    assert keys(fresh) == [1, 2]
    fresh.vacuum()
    assert keys(Lake(lake.store, clock).table("t")) == [1, 2]


def clone(lake: Lake, prefix: str) -> Table:
    """Make `t` a shallow clone of `src`, as others do: its log names the files of that table by absolute paths."""
    source = lake.create_table("src", pa.schema([("k", pa.int64())]))
    for key in (1, 2):
        source.append(rows(key, key + 10))
    foreign(lake, OLD, {}, timestamp=1)
    adds: list[Json] = []
    for file in source.snapshot().files:
        body = {"path": f"{prefix}/src/{file.path}", "partitionValues": {}, "size": file.size, "stats": file.stats}
        adds.append({"add": {**body, "modificationTime": 1, "dataChange": True}})
    commit(lake, 1, {"operation": "CLONE", "timestamp": 2}, *adds)
    return alluvia.open_table(f"{lake.uri}/t", clock=lake.clock)


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
@pytest.mark.parametrize("change", ["merge", "delete"])
def test_a_clones_new_files_are_its_own(tmp_path: Path, scheme: str, change: str) -> None:
    lake = Lake(CountingStore(DirectoryStore(tmp_path)), ManualClock())
    table = clone(lake, f"{scheme}{tmp_path}")
    assert keys(table) == [1, 2, 11, 12]
    with pytest.raises(Unsupported, match=r"outside the table's folder.*alluvia\.open_table"):
        lake["t"].to_arrow()
    if change == "merge":
        table.optimize()
    else:
        table.delete("k > 10")
    expected = [1, 2, 11, 12] if change == "merge" else [1, 2]
    assert keys(table) == expected
    assert all("/" not in file.path for file in table.snapshot().files)
    for file in tmp_path.glob("src/*.parquet"):
        os.utime(file, (1, 1))
    lake.table("src").vacuum()
    assert keys(Lake(lake.store, lake.clock).table("t")) == expected


def test_vacuum_of_a_clone_leaves_the_other_tables_files(tmp_path: Path) -> None:
    clock = ManualClock()
    lake = Lake(CountingStore(DirectoryStore(tmp_path)), clock)
    table = clone(lake, str(tmp_path))
    table.delete("k > 10")
    table.vacuum(timedelta(0))
    assert keys(lake.table("src")) == [1, 2, 11, 12]
    assert keys(Lake(lake.store, clock).table("t")) == [1, 2]


def test_tombstones_of_other_writers_do_not_name_versions(lake: Lake, clock: ManualClock) -> None:
    """They take the time when a job was planned: another commit came between it and the removal."""
    timed = {"delta.enableInCommitTimestamps": "true"}
    table = foreign(lake, TIMED, timed, inCommitTimestamp=clock.now_ms())
    clock.advance(60)
    table.append(rows(1))
    (file,) = table.snapshot().files
    clock.advance(60)
    planned_ms = clock.now_ms()
    clock.advance(60)
    table.append(rows(2))
    clock.advance(60)
    remove = {"path": file.path, "deletionTimestamp": planned_ms, "dataChange": True}
    commit(lake, 3, {"inCommitTimestamp": clock.now_ms(), "operation": "DELETE"}, {"remove": remove})
    clock.advance(20 * 24 * 3600)
    table.vacuum()
    for version in (1, 2):
        with pytest.raises(VersionExpired):
            table.scan(version=version).read_all()
    assert keys(table, 3) == [2]


def test_the_log_is_kept_where_the_table_says_so(lake: Lake, clock: ManualClock) -> None:
    table = lake.create_table(
        "t", pa.schema([("k", pa.int64())]), properties={"delta.enableExpiredLogCleanup": "false"}
    )
    for key in range(5):
        table.append(rows(key))
    table.checkpoint()
    clock.advance(100 * 24 * 3600)
    table.append(rows(5))
    table.checkpoint()
    assert table.vacuum().log_files == ()
    assert [keys(table, version) for version in range(7)] == [list(range(version)) for version in range(7)]
    table.evolve(properties={"delta.enableExpiredLogCleanup": "true"})
    assert table.vacuum().log_files


def test_a_retention_beyond_the_tables_own_counts_removes_that_checkpoints_have_forgotten(
    lake: Lake, clock: ManualClock
) -> None:
    table = lake.create_table("t", pa.schema([("k", pa.int64())]), properties={"delta.logRetentionDuration": "90 days"})
    table.append(rows(1))
    clock.advance(60 * DAY_MS / 1000)
    version = table.append(rows(2)).version
    table.delete("k = 1")
    clock.advance(10 * DAY_MS / 1000)
    table.append(rows(3))
    table.checkpoint()
    fresh = Lake(lake.store, clock).table("t")
    report = fresh.vacuum(timedelta(days=30))
    assert (report.data_files, report.orphans) == ((), ())
    assert keys(fresh, version) == [1, 2]
    assert len(fresh.vacuum().orphans) == 1
    with pytest.raises(VersionExpired):
        keys(fresh, version)
    judges_agree(fresh, [fresh.snapshot().version])


def test_a_time_that_is_none_is_named(lake: Lake) -> None:
    table = foreign(lake, TIMED, {"delta.enableInCommitTimestamps": "true"}, inCommitTimestamp=2**62)
    with pytest.raises(Corrupt, match=r"00000000000000000000\.json has the timestamp 4611686018427387904 ms"):
        table.history()


@pytest.mark.parametrize("limit", [-1, "2", True, 1.5])
def test_a_limit_is_a_number_from_0(lake: Lake, limit: Any) -> None:
    table = foreign(lake, OLD, {}, timestamp=1)
    with pytest.raises(Invalid, match="limit: expected a number of commits, 0 or more"):
        table.history(limit)
    assert table.history(0) == []


def paths(found: Sequence[Json], kind: str) -> list[str]:
    return [action[kind]["path"] for action in found if kind in action]


def test_a_merged_file_has_no_tags_of_its_parts_but_the_partitions(lake: Lake) -> None:
    table = foreign(lake, OLD, {}, timestamp=1)
    table.append(rows(1))
    table.append(rows(2))
    for version in (1, 2):
        log = actions(lake, version)
        log[1]["add"]["tags"] = {"ZCUBE_ID": "z", "INSERTION_TIME": str(version)}
        commit(lake, version, log[0]["commitInfo"], *log[1:])
    fresh = Lake(lake.store, lake.clock).table("t")
    fresh.optimize()
    (merged,) = fresh.snapshot().files
    assert merged.tags == {}
    assert paths(actions(lake, 3), "add") == [merged.path]
