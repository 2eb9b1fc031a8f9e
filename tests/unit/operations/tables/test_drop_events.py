"""What becomes of the events and the rejects of a table that is dropped, and of requests that fail meanwhile."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, connect
from alluvia.clock import ManualClock
from alluvia.errors import (
    Conflict,
    TableExists,
    TableNotFound,
    Unavailable,
)
from alluvia.events.ingest.rejects import REJECTS_SCHEMA
from tests.faults.store import FailingStore
from tests.rejects import create_rejects
from tests.unit.operations.dropping import reject, send


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
    rows: dict[str, list[Any]] = {
        "event_id": ["r"],
        "received_at": [1],
        "reason": ["broken"],
        "position": [0],
        "raw": [b"2"],
        "given": [None],
    }
    late = create_rejects(other, "t", REJECTS_SCHEMA)
    late.append(pa.table([pa.array(rows[f.name], f.type) for f in REJECTS_SCHEMA], schema=REJECTS_SCHEMA))
    lake.undrop("t")
    assert raws(lake) == [b"1", b"2"]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["before", "after"])
def test_a_failure_at_any_request_leaves_what_a_retry_finishes(clock: ManualClock, mode: str) -> None:
    """Fail request N of drop, create and undrop, for N = 1, 2, … until all come through; each is tried twice."""

    def retried(call: Any, *done: type[Exception]) -> None:
        try:
            call()
        except (Unavailable, Conflict):
            try:
                call()
            except done:
                return

    for at in range(1, 1000):
        lake = connect(f"memory://failing-{mode}-{at}", clock=clock)
        lake.create_events("t")
        send(lake, "a")
        reject(lake, b"1")
        failing = FailingStore(lake.store, mode, at)
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
        if not failing.fired:
            assert at > (21 if mode == "before" else 8)
            return
    pytest.fail("it never came through")
