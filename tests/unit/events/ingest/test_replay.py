"""Rejected events that are ingested again, after what they did not fit was changed."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from itertools import count
from typing import Any, TypeVar

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock, SystemClock
from alluvia.errors import AlluviaError, Invalid, TableNotFound, Unavailable
from alluvia.events.ingest import replay as replaying
from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.rejects import REJECTS_SCHEMA, read_json
from alluvia.events.ingest.replay import Replayed
from alluvia.events.ingest.values import Given, IngestOutcome, Limits, RawEvent
from alluvia.store import MemoryStore, Store, Wrapper
from tests.rejects import create_rejects

T = TypeVar("T")
NUMBERS = count()
ARRIVAL_US = 1_700_000_000_000_000
BAD = b'{"event_id":"a","status":"x"}\n{"status":"y"}\n{"event_id":"c","status":3}'


class Failing(Wrapper):
    """A store of which one write fails, or is done and its answer lost."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.writes_left: int | None = None
        self.lost = False

    def request(self, kind: str, key: str, send: Callable[[], T]) -> T:
        if kind.startswith("put") and self.writes_left is not None:
            self.writes_left -= 1
            if self.writes_left < 0:
                if self.lost and self.writes_left == -1:
                    send()
                raise Unavailable("the store went away")
        return send()


def new_lake(store: Store | None = None) -> Lake:
    return Lake(store or MemoryStore(f"replay-{next(NUMBERS)}"), ManualClock(ARRIVAL_US, next(NUMBERS)))


def clicks(lake: Lake) -> Lake:
    lake.create_events("clicks", pa.schema([("status", pa.int64())]))
    return lake


def send(lake: Lake, body: bytes, key: str | None = None) -> IngestOutcome:
    found = split(body, content_type=None, content_encoding=None, limits=Limits())
    return ingest_batch(lake.catalog, "clicks", found.events, found.rejects, arrival_us=ARRIVAL_US, idempotency_key=key)


def let_texts_in(lake: Lake) -> None:
    """Make the column a text's: `status` is a field without a column from now on."""
    lake["clicks"].evolve(rename={"status": "status_number"})


def properties(lake: Lake) -> dict[str, Any]:
    rows = lake["clicks"].to_arrow().to_pylist()
    assert len({row["event_id"] for row in rows}) == len(rows), rows
    return {row["event_id"]: row["properties"] for row in rows}


def rejects(lake: Lake) -> list[dict[str, Any]]:
    return lake.table("clicks/_rejects").to_arrow().to_pylist()


def test_what_fits_now_becomes_rows_once_and_the_rest_stays() -> None:
    lake = clicks(new_lake())
    send(lake, BAD + b"\nnot json", key="k")
    assert lake["clicks"].replay_rejects() == Replayed(looked_at=3, remaining=3)
    let_texts_in(lake)
    assert lake["clicks"].replay_rejects() == Replayed(looked_at=3, settled=2, stored=2, remaining=1)
    assert properties(lake) == {"a": '{"status":"x"}', "k/1": '{"status":"y"}', "c": None}
    assert [row["raw"] for row in rejects(lake)] == [b"not json"]
    version = lake["clicks"].version
    assert lake["clicks"].replay_rejects() == Replayed(looked_at=1, remaining=1)
    assert lake["clicks"].version == version


def test_rows_have_the_time_of_their_first_arrival() -> None:
    lake = clicks(new_lake())
    send(lake, BAD)
    let_texts_in(lake)
    lake["clicks"].replay_rejects()
    received = lake["clicks"].to_arrow()["received_at"].cast(pa.int64()).to_pylist()
    assert received == [ARRIVAL_US] * 3


def test_an_event_that_its_sender_sent_again_is_stored_once_and_its_reject_goes() -> None:
    lake = clicks(new_lake())
    send(lake, BAD, key="k")
    let_texts_in(lake)
    send(lake, BAD, key="k")
    assert lake["clicks"].replay_rejects() == Replayed(looked_at=2, settled=2, duplicates=2)
    send(lake, BAD, key="k")
    assert len(properties(lake)) == 3
    assert rejects(lake) == []


def test_what_the_request_said_about_an_event_counts_again() -> None:
    lake = clicks(new_lake())
    said = Given("delivery-1", ARRIVAL_US - 5_000_000, "push", "github", ("hook",), text=True)
    event = RawEvent(0, {"status": "x", "hook": "1"}, given=said)
    assert ingest_batch(lake.catalog, "clicks", [event], arrival_us=ARRIVAL_US).rejected == 1
    let_texts_in(lake)
    assert lake["clicks"].replay_rejects().stored == 1
    [row] = lake["clicks"].to_arrow().to_pylist()
    assert (row["event_id"], row["event"], row["source"]) == ("delivery-1", "push", "github")
    assert int(row["ts"].timestamp() * 1_000_000) == ARRIVAL_US - 5_000_000
    again = event._replace(value={"status": "x", "hook": "2"})
    assert ingest_batch(lake.catalog, "clicks", [again], arrival_us=ARRIVAL_US).duplicates == 1


def test_rows_that_a_constraint_refuses_stay_until_it_goes() -> None:
    lake = new_lake()
    check = {"delta.constraints.known": "status < 10"}
    lake.create_events("clicks", pa.schema([("status", pa.int64())]), properties=check)
    send(lake, b'{"event_id":"a","status":11}\n{"event_id":"b","status":12}')
    assert lake["clicks"].replay_rejects() == Replayed(looked_at=2, remaining=2)
    lake.sql("ALTER TABLE clicks DROP CONSTRAINT known")
    assert lake["clicks"].replay_rejects() == Replayed(looked_at=2, settled=2, stored=2)
    assert set(properties(lake)) == {"a", "b"}


def test_of_a_body_that_was_refused_the_events_that_still_do_not_fit_are_rejects_of_their_own() -> None:
    lake = clicks(new_lake())
    body = b'[{"event_id":"a","status":1},{"event_id":"b","status":"x"},{"status":2}]'
    limits = Limits(events=2)
    found = split(body, content_type=None, content_encoding=None, limits=limits)
    ingest_batch(lake.catalog, "clicks", found.events, found.rejects, arrival_us=ARRIVAL_US, idempotency_key="k")
    [reject] = rejects(lake)
    assert lake["clicks"].replay_rejects() == Replayed(looked_at=1, settled=1, stored=2)
    assert set(properties(lake)) == {"a", f"{reject['event_id']}/2"}
    [left] = rejects(lake)
    assert left["raw"] == b'{"event_id":"b","status":"x"}'
    assert left["reason"] == "status: expected a number (long), got a string"


def test_an_id_that_belongs_to_another_event_stays_a_reject() -> None:
    lake = clicks(new_lake())
    send(lake, b'{"event_id":"a","status":1}')
    assert send(lake, b'{"event_id":"a","status":2}').conflicting == 1
    assert lake["clicks"].replay_rejects() == Replayed(looked_at=1, remaining=1)
    assert len(rejects(lake)) == 1


def test_a_condition_chooses_rejects() -> None:
    lake = clicks(new_lake())
    send(lake, BAD)
    let_texts_in(lake)
    assert lake["clicks"].replay_rejects("event_id LIKE 'a#%'").settled == 1
    assert set(properties(lake)) == {"a", "c"}
    with pytest.raises(Invalid, match="reasons"):
        lake["clicks"].replay_rejects("reasons = 'x'")


def test_a_table_without_rejects_and_no_table() -> None:
    lake = clicks(new_lake())
    assert lake["clicks"].replay_rejects() == Replayed()
    with pytest.raises(TableNotFound):
        replaying.replay(lake.catalog, "views", read_json)


def test_rejects_kept_by_an_earlier_release() -> None:
    lake = clicks(new_lake())
    earlier = pa.schema([field for field in REJECTS_SCHEMA if field.name != "given"])
    create_rejects(lake, "clicks", earlier, ["day(received_at)"], ["received_at"])
    row = {"event_id": "a#1", "received_at": ARRIVAL_US, "reason": "x", "position": 0, "raw": b'{"event_id":"a"}'}
    lake.table("clicks/_rejects").append(pa.table({name: [value] for name, value in row.items()}).cast(earlier))
    send(lake, b'{"status":"y"}', key="k")
    assert [each["given"] for each in rejects(lake) if each["raw"].startswith(b'{"s')] == ['{"fallback_id":"k/0"}']
    assert lake["clicks"].replay_rejects().stored == 1
    assert set(properties(lake)) == {"a"}


def test_replays_at_the_same_time_store_each_event_once() -> None:
    store = MemoryStore(f"replay-{next(NUMBERS)}")
    lake = clicks(new_lake(store))
    send(lake, b"\n".join(b'{"event_id":"%d","status":"x"}' % at for at in range(50)))
    let_texts_in(lake)
    done: list[Replayed] = []

    def run() -> None:
        done.append(Lake(store, SystemClock())["clicks"].replay_rejects())

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(properties(lake)) == 50
    assert rejects(lake) == []
    assert sum(each.stored for each in done) == 50


@pytest.mark.parametrize("lost", [False, True])
def test_a_replay_that_breaks_off_at_any_write_loses_and_doubles_nothing(lost: bool) -> None:
    outcomes: Counter[str] = Counter()
    for writes in count():
        store = Failing(MemoryStore(f"replay-{next(NUMBERS)}"))
        lake = clicks(new_lake(store))
        send(lake, BAD, key="k")
        let_texts_in(lake)
        store.writes_left, store.lost = writes, lost
        try:
            lake["clicks"].replay_rejects()
            outcomes["done"] += 1
        except AlluviaError:
            outcomes["failed"] += 1
        whole = store.writes_left >= 0
        store.writes_left = None
        later = Lake(store, ManualClock(ARRIVAL_US + 60_000_000, next(NUMBERS)))
        later["clicks"].replay_rejects()
        assert set(properties(later)) == {"a", "k/1", "c"}
        assert rejects(later) == []
        if whole:
            break
    assert outcomes["failed"] >= 3


def test_more_rejects_than_go_into_one_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "BATCH_ROWS", 1)
    lake = clicks(new_lake())
    send(lake, b"\n".join(b'{"event_id":"%d","status":"x"}' % at for at in range(1500)))
    let_texts_in(lake)
    before = lake["clicks"].version
    assert lake["clicks"].replay_rejects() == Replayed(looked_at=1500, settled=1500, stored=1500)
    assert len(properties(lake)) == 1500
    assert lake["clicks"].version > before + 1


@pytest.mark.parametrize("batch_rows", [1, 20_000])
def test_a_reject_that_was_kept_twice_becomes_one_row(batch_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replaying, "BATCH_ROWS", batch_rows)
    lake = clicks(new_lake())
    send(lake, BAD)
    kept = lake.table("clicks/_rejects")
    kept.append(kept.to_arrow())
    let_texts_in(lake)
    lake["clicks"].replay_rejects()
    assert sorted(text for text in properties(lake).values() if text) == ['{"status":"x"}', '{"status":"y"}']
    assert rejects(lake) == []
