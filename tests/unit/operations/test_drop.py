"""Dropped tables: gone for everybody, back whole, and never mixed with another of their name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import DeltaError

from alluvia.clock import ManualClock
from alluvia.errors import (
    AnswerLost,
    Conflict,
    Invalid,
    TableDropped,
    TableExists,
    TableNotFound,
    Unavailable,
    VersionExpired,
    VersionNotFound,
)
from alluvia.ingest.pipeline import REJECTS_SCHEMA, ingest_batch
from alluvia.ingest.values import RawEvent, Reject
from alluvia.lake import Lake, Table, connect
from alluvia.store import CountingStore, ObjectInfo, PutResult, Store
from alluvia.table.properties import OLDEST_READABLE
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

DAY_SECONDS = 24 * 60 * 60


def numbers(table: Table, **at: Any) -> list[int]:
    return sorted(table.scan(["x"], **at).read_all()["x"].to_pylist())


def filled(lake: Lake, name: str = "t", **properties: str) -> Table:
    """A table with two commits, versions 1 and 2."""
    table = lake.create_table(name, {"x": "long"}, properties=properties)
    table.append([{"x": 1}])
    table.append([{"x": 2}])
    return table


def event(event_id: str) -> RawEvent:
    return RawEvent(0, {"event_id": event_id, "event": "e", "ts": 1_700_000_000})


def send(lake: Lake, *event_ids: str, create: bool = False) -> tuple[int, int]:
    """Ingest events; returns accepted and duplicates."""
    done = ingest_batch(lake, "t", [event(each) for each in event_ids], arrival_us=1, create=create)
    return done.accepted, done.duplicates


def test_a_dropped_table_is_gone_for_everybody(lake: Lake, other: Lake) -> None:
    table, elsewhere = filled(lake), other.table("t")
    elsewhere.handle.at_hand()
    assert lake.drop_table("t").version == 3
    for each in (table, elsewhere, lake.table("t")):
        for use in (
            each.snapshot,
            each.scan,
            each.history,
            each.merge,
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
    assert [(entry.version, entry.operation) for entry in table.history()] == [
        (3, "UNDROP TABLE"),
        (2, "DROP TABLE"),
        (1, "WRITE"),
        (0, "CREATE TABLE"),
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
    with pytest.raises(VersionNotFound, match="version 3 is not one of t"):
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
        with pytest.raises(VersionNotFound, match=f"version {version} is not one of t"):
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
    with pytest.raises(VersionNotFound, match="version 2 is not one of t"):
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


# Events


def test_events_of_a_dropped_table_are_new_to_the_next(lake: Lake, other: Lake) -> None:
    lake.create_events("t")
    assert send(lake, "a", "b") == send(other, "c", "d") == (2, 0)
    lake.drop_table("t")
    lake.create_events("t")
    for here in (other, lake):
        assert send(here, f"new{id(here)}", "a") == (2, 0 if here is other else 1)
    assert send(Lake(lake.store, lake.clock), "b") == (1, 0)


@pytest.mark.parametrize("checkpoint", ["none", "by the old", "by the new", "by both"])
def test_events_are_known_to_the_table_that_has_them(lake: Lake, checkpoint: str) -> None:
    """Through drops, and with indexes of event ids beside checkpoints of either table."""

    def checkpointed(by: str) -> None:
        if checkpoint in (f"by the {by}", "by both"):
            lake.table("t").checkpoint()

    lake.create_events("t")
    send(lake, "a", "both")
    checkpointed("old")
    send(lake, "b")
    first = lake.drop_table("t").version
    lake.create_events("t")
    assert send(lake, "c", "both") == (2, 0)
    checkpointed("new")
    assert send(lake, "d") == (1, 0)
    second = lake.drop_table("t").version
    for version, known in ((first, "ab"), (second, "cd")):
        lake.undrop("t", version=version)
        for here in (lake, Lake(lake.store, lake.clock)):
            assert send(here, *known, "both") == (3, 3)
        ids = lake.sql("SELECT event_id FROM t ORDER BY 1")["event_id"].to_pylist()
        assert ids == sorted([*known, "both"])
        lake.drop_table("t")


def test_a_warm_ingester_goes_on_with_the_next_table(lake: Lake, other: Lake) -> None:
    lake.create_events("t")
    send(other, "a")
    lake.drop_table("t")
    lake.create_events("t")
    assert send(other, "a") == (1, 0)
    lake.drop_table("t")
    with pytest.raises(TableNotFound):
        send(other, "b")
    assert send(other, "b", create=True) == (1, 0)
    assert send(lake, "b", create=True) == (1, 1)


# Rejects


def reject(lake: Lake, raw: bytes) -> None:
    ingest_batch(lake, "t", [], [Reject(0, "broken", raw, None)], arrival_us=1)


def raws(lake: Lake) -> list[bytes]:
    return sorted(lake.table("t/_rejects").scan(["raw"]).read_all()["raw"].to_pylist())


def test_rejects_go_and_come_back_with_their_table(lake: Lake, other: Lake) -> None:
    lake.create_events("t")
    reject(lake, b"1")
    reject(other, b"2")
    lake.drop_table("t")
    assert lake.tables(rejects=True) == []
    with pytest.raises(TableNotFound):
        reject(other, b"3")
    lake.create_events("t")
    reject(other, b"4")
    assert raws(lake) == [b"4"]
    lake.drop_table("t")
    versions = [each.version for each in lake.dropped()]
    assert lake.undrop("t", version=versions[0]).rejects_version is not None
    assert raws(lake) == raws(other) == [b"1", b"2"]
    lake.drop_table("t")
    assert lake.undrop("t", version=versions[1]).rejects_version is not None
    assert raws(lake) == [b"4"]


def test_a_table_without_rejects_does_not_get_those_of_another(lake: Lake) -> None:
    lake.create_events("t")
    reject(lake, b"1")
    lake.drop_table("t")
    lake.create_events("t")
    lake.drop_table("t")
    assert lake.undrop("t").rejects_version is None
    with pytest.raises(TableNotFound):
        lake.table("t/_rejects").snapshot()


def test_rejects_that_were_kept_since_the_drop_stay(lake: Lake, other: Lake) -> None:
    lake.create_events("t")
    reject(lake, b"1")
    lake.drop_table("t")
    rows = {"event_id": ["r"], "received_at": [1], "reason": ["broken"], "position": [0], "raw": [b"2"]}
    late = other.create_table("t/_rejects", REJECTS_SCHEMA)
    late.append(pa.table([pa.array(rows[f.name], f.type) for f in REJECTS_SCHEMA], schema=REJECTS_SCHEMA))
    lake.undrop("t")
    assert raws(lake) == [b"1", b"2"]


class Failing(CountingStore):
    """Fails the request with a number, before or after it has taken effect."""

    def __init__(self, inner: Store, at: int, *, after: bool) -> None:
        super().__init__(inner)
        self.left, self._after = at, after

    @contextmanager
    def _request(self) -> Iterator[None]:
        self.left -= 1
        failing = self.left == -1
        if failing and not self._after:
            raise Unavailable("injected")
        yield
        if failing:
            raise Unavailable("injected")

    def get(self, key: str, start: int = 0, end: int | None = None) -> bytes:
        with self._request():
            return super().get(key, start, end)

    def put(self, key: str, data: bytes) -> None:
        with self._request():
            super().put(key, data)

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        try:
            with self._request():
                return super().put_if_absent(key, data)
        except Unavailable as error:
            raise AnswerLost(str(error)) from error

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        with self._request():
            return iter(sorted(super().list(prefix, start_after), key=lambda info: info.key))

    def head(self, key: str) -> ObjectInfo | None:
        with self._request():
            return super().head(key)


@pytest.mark.parametrize("after", [False, True])
def test_a_failure_at_any_request_leaves_what_a_retry_finishes(clock: ManualClock, after: bool) -> None:
    """Fail request N of drop, create and undrop, for N = 0, 1, … until all come through; each is tried twice."""

    def retried(call: Any, *done: type[Exception]) -> None:
        try:
            call()
        except (Unavailable, Conflict):
            try:
                call()
            except done:
                return

    for at in range(1000):
        lake = connect(f"memory://failing-{after}-{at}", clock=clock)
        lake.create_events("t")
        send(lake, "a")
        reject(lake, b"1")
        failing = Failing(lake.store, at, after=after)
        retried(lambda f=failing: Lake(f, clock).drop_table("t"), TableNotFound)
        assert lake.tables(rejects=True) == []
        first = lake.dropped()[0].version
        retried(lambda f=failing: Lake(f, clock).create_events("t"), TableExists)
        assert lake.tables(rejects=True) == ["t"]
        assert lake.sql("SELECT * FROM t").num_rows == 0
        lake.drop_table("t")
        retried(lambda f=failing, v=first: Lake(f, clock).undrop("t", v), TableExists)
        assert lake.sql("SELECT event_id FROM t").to_pydict() == {"event_id": ["a"]}
        assert raws(lake) == [b"1"]
        if failing.left >= 0:
            assert at > 20
            return
    pytest.fail("it never came through")


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


# Vacuum


def objects(store: CountingStore, name: str = "t") -> set[str]:
    return {info.key for info in store.list(f"{name}/") if info.key.endswith(".parquet")}


def test_vacuum_frees_a_dropped_table_after_its_retention(lake: Lake, store: CountingStore, clock: ManualClock) -> None:
    table = filled(lake)
    mine = objects(store)
    lake.drop_table("t")
    clock.advance(6 * DAY_SECONDS)
    assert table.vacuum().data_files == ()
    assert objects(store) >= mine
    clock.advance(2 * DAY_SECONDS)
    assert len(table.vacuum().data_files) == 2
    assert not objects(store) & mine
    with pytest.raises(VersionExpired, match="version 2 of t has expired"):
        lake.undrop("t")
    assert lake.dropped() == []
    new = lake.create_table("t", {"y": "string"})
    new.append([{"y": "a"}])
    assert new.scan().read_all().to_pydict() == {"y": ["a"]}
    judges_agree(new, [new.snapshot().version])


@pytest.mark.parametrize("writers", ["alluvia", "any"])
def test_vacuum_of_the_next_table_frees_the_old_one_only(
    lake: Lake, store: CountingStore, clock: ManualClock, writers: str
) -> None:
    filled(lake, **{"alluvia.writers": writers})
    dropped = lake.drop_table("t").version
    new = lake.create_table("t", {"x": "long"}, properties={"alluvia.writers": writers})
    new.append([{"x": 3}])
    clock.advance(8 * DAY_SECONDS)
    assert len(new.vacuum().data_files) == 2
    assert numbers(new) == [3]
    assert numbers(new, version=new.history()[-1].version + 1) == [3]
    lake.drop_table("t")
    with pytest.raises(VersionExpired):
        lake.undrop("t", version=dropped)
    lake.undrop("t")
    assert numbers(new) == [3]


def test_vacuum_of_a_dropped_table_by_a_handle_that_is_warm_for_long(lake: Lake, clock: ManualClock) -> None:
    table = filled(lake, **{"delta.checkpointPolicy": "v2"})
    for _ in range(5):
        clock.advance(1800)
        table.snapshot()
    lake.drop_table("t")
    clock.advance(60)
    assert table.vacuum(timedelta(0)).data_files
    assert lake.tables() == []


def test_vacuum_leaves_a_dropped_table_quick_to_open(lake: Lake, other: Lake, store: CountingStore) -> None:
    table = filled(lake)
    for number in range(20):
        table.append([{"x": number}])
    lake.drop_table("t")
    lake.table("t").vacuum(timedelta(0))
    store.reset()
    assert other.tables() == []
    assert store.requests["get"] <= 4  # the hint to the checkpoint, it, the commit of its time, and no newer one
    lake.create_table("t", {"x": "long"}).append([{"x": 1}])
    judges_agree(lake.table("t"), [lake.table("t").snapshot().version])


def test_an_undrop_between_vacuums_look_and_its_deletion_keeps_the_files(
    lake: Lake, other: Lake, store: CountingStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(lake)
    lake.drop_table("t")
    listed, undone = store.list, list[bool]()

    def list_then_undrop(prefix: str, start_after: str | None = None) -> Any:
        found = list(listed(prefix, start_after))
        if prefix == "t/" and not undone:
            undone.append(True)
            other.undrop("t")
        return iter(found)

    monkeypatch.setattr(store, "list", list_then_undrop)
    lake.table("t").vacuum(timedelta(0))
    assert numbers(other.table("t")) == [1, 2]


def test_scheduled_vacuum_sees_dropped_tables_and_rejects(lake: Lake) -> None:
    lake.create_events("t")
    reject(lake, b"1")
    lake.drop_table("t")
    assert lake.tables(rejects=True, dropped=True) == ["t", "t/_rejects"]


def test_vacuums_record_outlives_a_change_of_writers(lake: Lake, clock: ManualClock) -> None:
    """It stands in a metadata domain of guarded tables, and in a property of others."""
    filled(lake)
    lake.drop_table("t")
    clock.advance(8 * DAY_SECONDS)
    lake.table("t").vacuum()
    new = lake.create_table("t", {"x": "long"}, properties={"alluvia.writers": "any"})
    assert new.snapshot().properties[OLDEST_READABLE] == "3"
    assert new.snapshot().state.domains == {}


def test_vacuum_forgets_drops_that_were_undone(lake: Lake, store: CountingStore, clock: ManualClock) -> None:
    table = filled(lake)

    def requests() -> int:
        store.reset()
        assert Lake(store, clock).tables() == ["t"]
        return sum(store.requests.values())

    before = requests()
    lake.drop_table("t")
    lake.undrop("t")
    table.vacuum()
    assert requests() > before
    clock.advance(8 * DAY_SECONDS)
    table.vacuum()
    assert requests() == before
    lake.drop_table("t")
    assert Lake(store, clock).tables() == []


# Cost


def test_a_drop_of_a_table_at_hand_is_few_requests(lake: Lake, store: CountingStore) -> None:
    filled(lake)
    store.reset()
    lake.drop_table("t")
    assert store.requests == {"get": 3, "put": 2, "list": 1}  # twice no newer commit; no rejects: a GET and a LIST


def test_listing_the_tables_costs_dropped_ones_an_opening(lake: Lake, other: Lake, store: CountingStore) -> None:
    for name in ("a", "b", "c"):
        filled(lake, name)
    lake.drop_table("b")
    store.reset()
    assert other.tables() == ["a", "c"]
    assert store.requests["list"] == 1 + 3 + 1
