"""Erasure: the rows go, and nothing of them is left in any object, in every kind of store and of table."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.commit.handle import TableHandle
from alluvia.errors import VersionExpired
from alluvia.events.ingest import erasing
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import BodyReading, RawEvent, Reject
from alluvia.operations.erasure.erase import erase
from alluvia.operations.erasure.erase_matching import Find
from alluvia.operations.erasure.erase_report import EraseReport
from alluvia.operations.results.jobs import JOBS
from alluvia.operations.results.results import LARGE
from tests.erased import traces

VICTIM = "mallory@example.org"
WHERE = f"user_id = '{VICTIM}'"
COLUMNS = {"user_id": "string", "ts": "timestamp", "n": "long"}
KINDS: dict[str, dict[str, str]] = {
    "copies": {},
    "vectors and changes": {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"},
    "second checkpoints": {"delta.checkpointPolicy": "v2", "delta.checkpoint.writeStatsAsJson": "false"},
    "any writer": {"alluvia.writers": "any"},
}


def rows(*numbers: int) -> list[dict[str, Any]]:
    users = ["alice", VICTIM, "bob"]
    return [{"user_id": users[n % 3], "ts": datetime(2026, 1, 1 + n % 5, tzinfo=UTC), "n": n} for n in numbers]


def filled(lake: Lake, properties: dict[str, str]) -> Table:
    """Return a table whose versions hold the victim's rows in files, vectors, changes, checkpoints and conditions."""
    table = lake.create_table("t", COLUMNS, partition_by=["day(ts)"], sort_by=["user_id"], properties=properties)
    table.append(rows(0, 1, 2))
    table.append(rows(3, 4, 5))
    table.append(rows(1))  # alone in its file: its bounds are the value
    table.checkpoint()
    table.update({"n": "n + 100"}, where=f"{WHERE} AND n = 4")
    table.delete(f"{WHERE} AND n = 1")
    table.optimize(full=True)
    table.checkpoint()
    table.append(rows(6, 7, 8))
    return table


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_left_of_erased_rows(lake: Lake, kind: str) -> None:
    table = filled(lake, KINDS[kind])
    assert traces(lake.store, VICTIM)
    before = sorted(row["n"] for row in table.to_arrow(where=f"NOT ({WHERE})").to_pylist())

    report = table.erase(WHERE, prove=True)

    assert (report.rows, report.ok) == (2, True)
    assert traces(lake.store, VICTIM) == []
    again = Lake(lake.store, lake.clock).table("t")
    assert sorted(row["n"] for row in again.to_arrow().to_pylist()) == before
    assert again.verify(full=True).ok
    with pytest.raises(VersionExpired):
        again.snapshot(report.oldest_version - 1)
    assert again.to_arrow(version=report.oldest_version).num_rows == len(before)
    assert report.proof is not None
    searched = {each.kind: each.objects for each in report.proof.searched}
    assert searched["commits"] == again.version + 1
    below = [info.key for info in lake.store.list("t/")]
    assert searched["data files"] == sum(key.split("/")[1].startswith("ts_day=") for key in below)
    assert sum(searched.values()) == len(below)


def test_rejected_events_go_too(lake: Lake) -> None:
    lake.create_events("events", pa.schema([("user_id", pa.string()), ("n", pa.int64())]))
    sent: list[dict[str, object]] = [
        {"event_id": "e1", "event": "open", "user_id": "alice", "n": 1},
        {"event_id": "e2", "event": "open", "user_id": VICTIM, "n": 2},
        {"event_id": "e3", "event": "open", "user_id": VICTIM, "n": "not a number"},
        {"event_id": "e4", "event": "open", "user_id": "alice", "n": "not a number"},
        {"event_id": "e5", "event": 5, "nested": {"email": VICTIM}},
    ]
    events = [RawEvent(at, value) for at, value in enumerate(sent)]
    ingest_batch(lake.catalog, "events", events, arrival_us=lake.clock.now_us())
    of_source = BodyReading(source="s", headers={"x-user": VICTIM})
    ingest_batch(
        lake.catalog, "events", [], [Reject(0, "no", b"[]")], arrival_us=lake.clock.now_us(), reading=of_source
    )
    lake.table("events/_rejects").checkpoint()

    report = lake.table("events").erase(WHERE, prove=True)

    assert report.ok
    assert report.rejects is not None
    assert (report.rows, report.rejects.rows) == (1, 3)
    assert traces(lake.store, VICTIM) == []
    assert lake.table("events/_rejects").to_arrow(["event_id"])["event_id"].to_pylist()[0].startswith("e4")
    # An erased event that is delivered once more stays away while the table remembers its id.
    again = ingest_batch(lake.catalog, "events", events[1:2], arrival_us=lake.clock.now_us())
    assert (again.stored, again.duplicates) == (0, 1)


def test_results_and_jobs_with_rejects_go_after_the_rejects(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.create_events("events", pa.schema([("user_id", pa.string())]))
    events = [RawEvent(0, {"event_id": "e1", "event": 5, "user_id": VICTIM})]
    ingest_batch(lake.catalog, "events", events, arrival_us=lake.clock.now_us())

    def erase_while_others_read(handle: TableHandle, find: Find, **options: Any) -> EraseReport:
        if handle.name == "events/_rejects":
            lake.store.put(f"{LARGE}read-until-now.csv", VICTIM.encode())
            lake.store.put(f"{JOBS}{lake.clock.new_id()}/end.json", VICTIM.encode())
        return erase(handle, find, **options)

    monkeypatch.setattr(erasing, "erase", erase_while_others_read)
    lake.table("events").erase(WHERE)
    assert traces(lake.store, VICTIM) == []
