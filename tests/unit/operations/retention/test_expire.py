"""Expiry by `alluvia.ttl`: whole files go by what the log says, and readers of changes keep their history."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

import orjson
import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.commit.changes import Changes
from alluvia.delta.partitioning.transforms import PARTITION_TAG
from alluvia.errors import Invalid, TableNotFound, VersionExpired
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import RawEvent
from alluvia.operations.retention.expire import plan_expiry
from alluvia.store import CountingStore
from tests.unit.operations.races import Race

DAY_MS = 86_400_000
NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
SCHEMA = pa.schema([("id", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
TTL = {"alluvia.ttl": "2 days"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(int(NOW.timestamp() * 1e6))


def at(**ago: float) -> datetime:
    return NOW - timedelta(**ago)


def rows(*times: datetime | None, first: int = 0) -> list[dict[str, Any]]:
    return [{"id": number, "ts": time} for number, time in enumerate(times, first)]


def ids(table: Table, version: int | None = None) -> list[int]:
    found: list[int] = table.to_arrow(["id"], version=version)["id"].to_pylist()
    return sorted(found)


def make(lake: Lake, name: str = "t", **properties: str) -> Table:
    return lake.create_table(name, SCHEMA, partition_by=["day(ts)"], properties={**TTL, **properties})


def kinds(table: Table, first: int, *, expired: bool = False) -> list[tuple[str, int]]:
    found = table.changes(first, expired=expired).read_all().to_pylist()
    return [(row["_change_type"], row["id"]) for row in found]


def test_old_files_go_by_the_log_alone(lake: Lake, store: CountingStore) -> None:
    table = make(lake)
    table.append(rows(at(days=4), at(days=3), at(hours=1)))
    before = table.expire(dry_run=True)
    assert (before.dry_run, before.version, before.rows, len(before.files)) == (True, 1, 2, 2)
    store.reset()
    report = table.expire()
    assert (report.version, report.files, report.rows, report.column) == (2, before.files, 2, "ts")
    assert report.before == at(days=2)
    assert not [key for _, key in store.keys if key.endswith(".parquet")]
    assert ids(table) == [2]
    assert ids(table, version=1) == [0, 1, 2]
    entry = table.history(1)[0]
    assert (entry.operation, entry.files_removed, entry.metrics["numDeletedRows"]) == ("EXPIRE", 2, "2")
    assert table.expire().files == ()
    assert table.version == 2


def test_rows_of_a_partly_expired_file_stay_until_all_are_old(lake: Lake, clock: ManualClock) -> None:
    table = make(lake)
    table.append(rows(at(days=2, hours=1), at(days=2) + timedelta(hours=1)))
    assert len(table.files) == 1
    assert table.expire().files == ()
    clock.advance(3601)
    assert table.expire().rows == 2
    assert ids(table) == []


def test_an_event_that_comes_too_late_is_stored_and_expires_in_the_next_round(lake: Lake) -> None:
    table = lake.create_events("events", properties=TTL)
    time = pa.timestamp("us", "UTC")
    late = {"event_id": ["e"], "ts": pa.array([at(days=9)], time), "received_at": pa.array([NOW], time)}
    assert table.ingest(pa.table({**late, "event": ["click"]})).appended == 1
    assert table.count() == 1
    assert table.expire().rows == 1
    assert table.ingest(pa.table({**late, "event": ["click"]})).duplicates == 1
    assert table.count() == 0


def test_what_nothing_bounds_is_kept(lake: Lake) -> None:
    """Neither statistics nor a tag, a bound that is not a time, or a null among the times: such files stay."""
    table = make(lake)
    table.append(rows(at(days=9)))
    handle = lake.catalog.handle("t")
    snapshot = handle.newest()
    [old] = snapshot.files
    stats = {"numRecords": 2, "minValues": {"ts": "2026-03-01T12:00:00Z"}, "maxValues": {"ts": "2026-03-01T12:00:00Z"}}
    texts = {
        "none": None,
        "no bounds": orjson.dumps({"numRecords": 2}).decode(),
        "not a time": orjson.dumps({**stats, "maxValues": {"ts": "soon"}, "nullCount": {"ts": 0}}).decode(),
        "a null": orjson.dumps({**stats, "nullCount": {"ts": 1}}).decode(),
        "nulls unknown": orjson.dumps(stats).decode(),
    }
    others = [replace(old, path=path, tags={}, stats=text) for path, text in texts.items()]
    handle.transaction(snapshot).commit(Changes("WRITE", adds=others))
    found = plan_expiry(handle.newest(), lake.clock.now_ms(), 2 * DAY_MS)
    assert [file.path for file in found.files] == [old.path]


def test_the_tag_is_enough_where_there_are_no_statistics(lake: Lake) -> None:
    properties = {"delta.dataSkippingNumIndexedCols": "0"}
    table = make(lake, **properties)
    table.append(rows(at(days=3), at(days=2) - timedelta(hours=1), at(hours=1)))
    assert not any(orjson.loads(file.stats or "{}").get("minValues") for file in table.files)
    assert table.expire().rows == 1  # of the day two days ago, the tag cannot say whether it is over
    assert ids(table) == [1, 2]


def test_a_tag_of_several_transforms_proves_only_what_it_bounds(lake: Lake) -> None:
    """The days of a file over several buckets are unbounded by its tag, and a bucket of a time is not a time."""
    fields = ["bucket(4, id)", "day(ts)"]
    given = {**TTL, "delta.dataSkippingNumIndexedCols": "0"}
    table = lake.create_table("t", SCHEMA, partition_by=fields, properties=given)
    table.append(rows(at(days=9)))
    handle = lake.catalog.handle("t")
    [old] = handle.newest().files
    texts = {
        "days": {"bucket(4, id)": 1, "day(ts)": ["2026-01-01", "2026-01-02"]},
        "buckets": {"bucket(4, id)": [1, 2], "day(ts)": ["2026-01-01", "2026-01-02"]},
        "a null": {"bucket(4, id)": 1, "day(ts)": ["2026-01-01", None]},
        "others": {"month(ts)": "2026-01"},
    }
    adds = [replace(old, path=path, tags={PARTITION_TAG: orjson.dumps(tag).decode()}) for path, tag in texts.items()]
    handle.transaction(handle.newest()).commit(Changes("WRITE", adds=adds))
    assert sorted(table.expire().files) == sorted(["days", old.path])


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        (pa.timestamp("us"), at(days=3).replace(tzinfo=None), at(days=1).replace(tzinfo=None)),
        (pa.date32(), date(2026, 3, 7), date(2026, 3, 8)),
    ],
)
@pytest.mark.parametrize("by", ["column", "partition", "transform"])
def test_times_of_every_kind(lake: Lake, kind: pa.DataType, old: Any, new: Any, by: str) -> None:
    """By the statistics of any column, by a partition column's value, and by a transform of it."""
    partition = {"column": ["received"], "partition": ["d"], "transform": ["month(d)"]}[by]
    given = {**TTL, **({"alluvia.ttl_column": "d"} if by == "column" else {})}
    schema = pa.schema([("id", pa.int64()), ("d", kind), ("received", pa.date32())])
    table = lake.create_table("t", schema, partition_by=partition, properties=given)
    table.append([{"id": 1, "d": old, "received": date(2026, 3, 9)}])
    table.append([{"id": 2, "d": new, "received": date(2026, 3, 9)}])
    report = table.expire()
    assert (report.column, report.rows, ids(table)) == ("d", 1, [2])


def test_a_ttl_that_cannot_be_kept_is_refused(lake: Lake) -> None:
    def refused(message: str, partition: list[str], **properties: str) -> None:
        with pytest.raises(Invalid, match=message):
            lake.create_table("t", SCHEMA, partition_by=partition, properties=properties)

    name, column = "alluvia.ttl", "alluvia.ttl_column"
    refused("alluvia.ttl: the table is not partitioned by a time, such as day", ["id"], **{name: "1 day"})
    refused(r"partition the table by a time, such as day\(ts\): otherwise", ["id"], **{name: "1 day", column: "ts"})
    refused("'when' is not a column", [], **{name: "1 day", column: "when"})
    refused("id is long, not a timestamp", [], **{name: "1 day", column: "id"})
    refused("alluvia.ttl: rows must be kept for some time", ["day(ts)"], **{name: "0 days"})
    refused("alluvia.ttl: 'soon' is not a duration", ["day(ts)"], **{name: "soon"})
    refused("append-only table cannot expire", ["day(ts)"], **{name: "1 day", "delta.appendOnly": "true"})
    table = lake.create_table("t", SCHEMA)
    assert table.expire().column is None
    with pytest.raises(Invalid, match=r"not partitioned by a time"):
        table.evolve(properties={name: "1 day"})
    table = lake.create_table("u", SCHEMA, partition_by=["day(ts)"])
    table.evolve(properties={name: "1 day", column: "ts"})
    with pytest.raises(Invalid, match="append-only table cannot expire"):
        table.evolve(properties={"delta.appendOnly": "true"})


def test_a_ttl_longer_than_there_are_years(lake: Lake) -> None:
    table = make(lake, **{"alluvia.ttl": "999999 weeks"})
    table.append(rows(datetime(1, 1, 2, tzinfo=UTC)))
    assert table.expire().files == ()


def test_readers_of_changes_keep_what_expired(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(at(days=4), at(hours=1)))
    table.delete("id = 1")
    table.expire()
    assert kinds(table, 1) == [("insert", 0), ("insert", 1), ("delete", 1)]
    assert kinds(table, 3) == []
    assert kinds(table, 3, expired=True) == [("expire", 0)]


def test_rows_that_a_restore_brings_back_are_not_inserted_again(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(at(days=4), at(days=3), at(hours=1)))
    table.delete("id = 1")
    table.expire()
    assert table.restore(version=1).files_restored == 2
    assert ids(table) == [0, 1, 2]
    assert kinds(table, 4) == [("insert", 1)]
    table.expire()
    assert kinds(table, 5) == []
    assert ids(table) == [2]


def test_rows_that_restores_bring_back_and_take_away_again_are_not_deleted(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(at(days=4), at(hours=1)))
    table.expire()
    table.append(rows(at(hours=2), first=2))
    table.restore(version=1)
    table.restore(version=3)
    assert ids(table) == [1, 2]
    assert kinds(table, 4) == [("delete", 2), ("insert", 2)]
    table.restore(version=0)
    assert sorted(kinds(table, 6)) == [("delete", 0), ("delete", 1), ("delete", 2)]  # as in version 0: nothing


def test_rows_that_a_merge_or_a_delete_moved_before_they_expired_are_not_inserted_again(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(at(days=4)))
    table.append(rows(at(days=4), at(days=4), first=1))
    table.optimize(full=True)
    table.delete("id = 2")
    table.expire()
    table.restore(version=2)
    assert ids(table) == [0, 1, 2]
    assert kinds(table, 4) == [("delete", 2), ("insert", 2)]
    assert kinds(table, 6, expired=True) == [("insert", 0), ("insert", 1), ("insert", 2)]


def test_files_of_what_expired_that_vacuum_has_taken_are_refused_by_name(lake: Lake, clock: ManualClock) -> None:
    table = make(lake)
    table.append(rows(at(days=4), at(hours=1)))
    table.optimize(full=True)
    table.append(rows(at(days=4), first=2))
    table.expire()
    clock.advance(3600)
    table.restore(version=1)
    clock.advance(3600)
    table.vacuum(timedelta(minutes=90))
    with pytest.raises(VersionExpired, match="the changes of version 4 of t have expired"):
        table.changes(4).read_all()


def test_a_restore_works_until_vacuum(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(at(days=4)))
    table.expire()
    assert table.vacuum(timedelta(0)).data_files != ()
    with pytest.raises(VersionExpired):
        table.restore(version=1)


def test_it_rebases_over_appends_and_plans_again_over_changes(lake: Lake) -> None:
    table = make(lake)
    table.append(rows(at(days=4), at(days=3), at(hours=1)))
    race = Race(lake)
    ours = race.table(
        lambda theirs: theirs.append(rows(at(days=5), first=3)),
        lambda theirs: theirs.update({"ts": "ts + INTERVAL 9 DAY"}, where="id = 0"),
        lambda theirs: theirs.delete("id = 1"),
    )
    ours.expire()
    assert ids(race.theirs.table("t")) == [0, 2]
    assert race.theirs.table("t").history(1)[0].operation == "EXPIRE"


def test_rejects_expire_with_their_table_by_when_they_came(lake: Lake, clock: ManualClock) -> None:
    events = lake.create_events("events")
    sent = [RawEvent(0, {"event_id": "bad", "event": 5})]
    assert ingest_batch(lake.catalog, "events", sent, arrival_us=clock.now_us()).rejected == 1
    clock.advance(3 * DAY_MS / 1000)
    rejects = lake["events/_rejects"]
    assert rejects.expire().files == ()
    events.evolve(properties=TTL)
    assert (rejects.expire(dry_run=True).rows, rejects.expire().rows, rejects.count()) == (1, 1, 0)
    lake.drop_table("events")
    assert rejects.expire().files == ()
    assert events.expire().files == ()


def test_deletion_vectors_count(lake: Lake) -> None:
    table = make(lake, **{"delta.enableDeletionVectors": "true"})
    table.append(rows(at(days=4), at(days=4, hours=-1), at(hours=1)))
    table.delete("id = 0")
    assert table.expire().rows == 1
    assert kinds(table, 3, expired=True) == [("expire", 1)]


def test_many_files_of_a_checkpoint_are_judged_by_columns(lake: Lake) -> None:
    table = make(lake)
    for day in range(40):
        table.append(rows(at(days=day), first=day))
    table.checkpoint()
    cold = Lake(lake.store, lake.clock)["t"]
    assert len(cold.expire().files) == 37
    assert ids(cold) == [0, 1, 2]


def test_there_must_be_a_table(lake: Lake) -> None:
    with pytest.raises(TableNotFound):
        lake["none"].expire()
