"""Times that cannot be read or are in the far future: said, counted, and treated as the table's properties say."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest

import alluvia
from alluvia.clock import ManualClock
from alluvia.commit.commit_offers import decode_offer
from alluvia.delta.odd_times import odd_times_in
from alluvia.errors import Invalid
from alluvia.events.formats.body_format import SentBody, by_name
from alluvia.events.ingest.envelope import split
from alluvia.events.ingest.messages import pack, unpack
from alluvia.events.ingest.pipeline import Sent, ingest_batch, ingest_together
from alluvia.events.ingest.values import IngestOutcome, Limits, OddTimes, Origin
from alluvia.operations.append import ingest as ingesting

NUMBERS = count()
ARRIVAL_US = 1_700_000_000_000_000  # 2023-11-14T22:13:20Z
ARRIVAL = "2023-11-14 22:13:20"
DAY_LATER = "2023-11-15T22:13:20Z"
MORE = "2023-11-15T22:13:20.000001Z"


@pytest.fixture
def lake() -> alluvia.Lake:
    return alluvia.connect(f"memory://odd-times-{next(NUMBERS)}", clock=ManualClock(ARRIVAL_US, next(NUMBERS)))


def send(lake: alluvia.Lake, *events: dict[str, Any], table: str = "clicks") -> IngestOutcome:
    body = "\n".join(map(json.dumps, events)).encode()
    found = split(body, content_type=None, content_encoding=None, limits=Limits())
    return ingest_batch(lake.catalog, table, found.events, found.rejects, arrival_us=ARRIVAL_US, create=True)


def times(lake: alluvia.Lake, table: str = "clicks") -> dict[str, tuple[str, str | None]]:
    rows = lake.table(table).to_arrow().to_pylist()
    return {row["event_id"]: (row["ts"].strftime("%Y-%m-%d %H:%M:%S"), row["properties"]) for row in rows}


def counts(lake: alluvia.Lake, table: str = "clicks") -> dict[str, int]:
    return odd_times_in(lake.table(table).snapshot().files)


def test_a_time_that_cannot_be_read_is_said_and_counted(lake: alluvia.Lake) -> None:
    answer = send(
        lake,
        {"event_id": "a", "ts": "2023-11-14"},
        {"event_id": "b", "ts": "yesterday"},
        {"event_id": "c", "ts": "20.11.2026 10:00"},
        {"event_id": "d"},
        {"event_id": "e", "ts": None, "time": ""},
    )
    assert answer.odd_times == {"unreadable": OddTimes(2, "ts", "yesterday")}
    assert answer.said()["unreadable_times"] == {"events": 2, "field": "ts", "value": "yesterday"}
    assert (answer.counts()["unreadable_times"], "future_times" in answer.counts()) == (2, False)
    assert times(lake)["b"] == (ARRIVAL, '{"ts":"yesterday"}')
    assert counts(lake) == {"unreadable": 2, "future": 0}


def test_a_redelivery_is_answered_alike_and_counted_once(lake: alluvia.Lake) -> None:
    odd = {"event_id": "b", "ts": "yesterday"}
    first, again = send(lake, odd), send(lake, odd, odd)
    assert (first.odd_times["unreadable"].events, again.odd_times["unreadable"].events) == (1, 2)
    assert (again.stored, again.duplicates, counts(lake)["unreadable"]) == (0, 2, 1)
    clash = send(lake, {"event_id": "b", "ts": "tomorrow"})
    assert (clash.rejected, clash.odd_times) == (1, {})


@pytest.mark.parametrize(
    ("event", "field", "text"),
    [
        ({"ts": {"at": 1}}, "ts", '{"at":1}'),
        ({"ts": True}, "ts", "true"),
        ({"timestamp": "11/12/2026"}, "timestamp", "11/12/2026"),
        ({"@timestamp": 1e30}, "@timestamp", "1e+30"),
        ({"time": "x" * 100}, "time", "x" * 59 + "…"),
        ({"ts": "?", "timestamp": "2023-11-14"}, None, None),
        ({"time": 5}, None, None),
        ({"time": {"zone": "CET"}}, None, None),
        ({"timestamp": False}, None, None),
    ],
)
def test_which_field_should_have_said_the_time(
    lake: alluvia.Lake, event: dict[str, Any], field: str | None, text: str | None
) -> None:
    expected = {} if field is None else {"unreadable": OddTimes(1, field, str(text))}
    assert send(lake, {"event_id": "a", **event}).odd_times == expected


def test_the_field_that_a_property_names_is_said_though_another_has_the_time(lake: alluvia.Lake) -> None:
    lake.create_events("orders", properties={"alluvia.time_field": "data.at"})
    answer = send(lake, {"event_id": "a", "ts": "2023-11-14", "data": {"at": "noon"}}, table="orders")
    assert answer.odd_times == {"unreadable": OddTimes(1, "data.at", "noon")}
    assert times(lake, "orders")["a"][0] == "2023-11-14 00:00:00"


def test_a_property_rejects_times_that_cannot_be_read(lake: alluvia.Lake) -> None:
    lake.create_events("clicks", properties={"alluvia.unreadable_time": "reject"})
    answer = send(lake, {"event_id": "a", "ts": "yesterday"}, {"event_id": "b"}, {"event_id": "c", "ts": "2023-11-14"})
    assert (answer.accepted, answer.rejected, answer.odd_times) == (2, 1, {})
    assert answer.rejects[0].reason == "ts: 'yesterday' cannot be read as a time"
    assert sorted(times(lake)) == ["b", "c"]
    lake.table("clicks").evolve(properties={"alluvia.unreadable_time": None})
    assert lake.table("clicks").replay_rejects().stored == 1
    assert counts(lake)["unreadable"] == 1


@pytest.mark.parametrize(
    ("policy", "expected", "left"),
    [(None, "2023-11-15 22:13:20", None), ("keep", "2023-11-15 22:13:20", None), ("arrival", ARRIVAL, MORE)],
)
def test_a_time_in_the_far_future(lake: alluvia.Lake, policy: str | None, expected: str, left: str | None) -> None:
    lake.create_events("clicks", properties={} if policy is None else {"alluvia.future_time": policy})
    answer = send(lake, {"event_id": "a", "ts": DAY_LATER}, {"event_id": "b", "ts": MORE})
    assert answer.odd_times == {"future": OddTimes(1, "ts", MORE)}
    assert times(lake)["a"][0] == "2023-11-15 22:13:20"
    assert times(lake)["b"] == (expected, None if left is None else json.dumps({"ts": left}, separators=(",", ":")))
    assert counts(lake) == {"unreadable": 0, "future": 1}


def test_a_property_rejects_times_in_the_far_future(lake: alluvia.Lake) -> None:
    lake.create_events("clicks", properties={"alluvia.future_time": "reject"})
    answer = send(lake, {"event_id": "a", "time": "2999-01-01"}, {"event_id": "b", "ts": DAY_LATER})
    assert (answer.accepted, answer.rejects[0].reason) == (
        1,
        "time: '2999-01-01' is more than a day after the event's arrival",
    )


@pytest.mark.parametrize("value", ["never", "keep"])
def test_what_a_property_may_be(lake: alluvia.Lake, value: str) -> None:
    with pytest.raises(Invalid, match=r"alluvia\.unreadable_time: .* use one of 'arrival', 'reject'"):
        lake.create_events("clicks", properties={"alluvia.unreadable_time": value})


@pytest.mark.parametrize("odd_every", [3, 100])
def test_of_many_alike_events_each_odd_time_is_found(lake: alluvia.Lake, odd_every: int) -> None:
    events = [
        {
            "event_id": f"e{at}",
            "ts": "soon" if at % odd_every == 1 else "2999-01-01T00:00:00Z" if at == 0 else DAY_LATER,
        }
        for at in range(1000)
    ]
    answer = send(lake, *events)
    soon = sum(event["ts"] == "soon" for event in events)
    expected = {"unreadable": OddTimes(soon, "ts", "soon"), "future": OddTimes(1, "ts", "2999-01-01T00:00:00Z")}
    assert answer.odd_times == expected
    assert counts(lake) == {"unreadable": soon, "future": 1}


def test_requests_that_commit_together_are_each_told_of_their_own(lake: alluvia.Lake) -> None:
    lake.create_events("clicks")
    bodies = (b'{"event_id":"a","ts":"soon"}', b'{"event_id":"b"}', b'{"event_id":"c","ts":"late"}')
    requests = [
        Sent(split(body, content_type=None, content_encoding=None, limits=Limits()).events, (), Origin(ARRIVAL_US))
        for body in bodies
    ]
    answers = ingest_together(lake.catalog, "clicks", requests, create=False, tables_max=None)
    assert [answer.odd_times for answer in answers if isinstance(answer, IngestOutcome)] == [
        {"unreadable": OddTimes(1, "ts", "soon")},
        {},
        {"unreadable": OddTimes(1, "ts", "late")},
    ]
    assert counts(lake)["unreadable"] == 2


def test_files_that_are_merged_and_checkpoints_keep_the_counts(lake: alluvia.Lake) -> None:
    for at in range(12):
        send(lake, {"event_id": f"e{at}", "ts": "soon"}, {"event_id": f"f{at}", "ts": MORE})
    assert lake.table("clicks").optimize().files_added
    lake.table("clicks").checkpoint()
    other = alluvia.connect(lake.uri, clock=ManualClock(ARRIVAL_US, 1))
    assert counts(other) == {"unreadable": 12, "future": 12}


def test_rows_that_others_commit_bring_their_counts(lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    send(lake, {"event_id": "a"})
    monkeypatch.setattr(ingesting, "is_crowded", lambda _: True)
    monkeypatch.setattr(ingesting, "may_offer", lambda *_: True)
    put = lake.store.put
    offers: list[bytes] = []

    def noted(_: object, key: str, data: bytes) -> None:
        offers.append(data)
        put(key, data)

    monkeypatch.setattr(type(lake.store), "put", noted)
    assert send(lake, {"event_id": "b", "ts": "soon"}, {"event_id": "c", "ts": MORE}).stored == 2
    assert [decode_offer("id", data).odd_times for data in offers] == [{"unreadable": 1, "future": 1}]
    assert counts(lake) == {"unreadable": 1, "future": 1}


FORMATS: list[tuple[str, Callable[[str], dict[str, Any]], str]] = [
    ("fluentbit", lambda time: {"date": time, "log": "x"}, "date"),
    (
        "segment",
        lambda time: {"type": "track", "event": "x", "messageId": "m", "originalTimestamp": time},
        "originalTimestamp",
    ),
]


@pytest.mark.parametrize(("name", "event", "field"), FORMATS)
def test_a_time_that_only_a_format_knows(
    lake: alluvia.Lake, name: str, event: Callable[[str], dict[str, Any]], field: str
) -> None:
    body = json.dumps(event("noon")).encode()
    found = by_name(name).read(SentBody({"content-type": "application/json"}, body, ARRIVAL_US, "/v1/track"), Limits())
    packed = pack("clicks", found.events, Origin(ARRIVAL_US), lake.clock.new_id)
    queued = [event for message in packed.messages for event in unpack(message.decode()).events]
    assert [each.given for each in queued] == [each.given for each in found.events]
    answer = ingest_batch(lake.catalog, "clicks", queued, arrival_us=ARRIVAL_US, create=True)
    assert answer.odd_times == {"unreadable": OddTimes(1, field, "noon")}
    lake.create_events("strict", properties={"alluvia.unreadable_time": "reject"})
    answer = ingest_batch(lake.catalog, "strict", found.events, arrival_us=ARRIVAL_US)
    assert answer.rejects[0].reason == f"{field}: 'noon' cannot be read as a time"
    lake.table("strict").evolve(properties={"alluvia.unreadable_time": None})
    assert lake.table("strict").replay_rejects().stored == 1
    assert counts(lake, "strict")["unreadable"] == 1


MERGE = (
    "MERGE INTO clicks USING (VALUES ('fine'), ('soon-2')) s(id) ON clicks.event_id = s.id "
    "WHEN MATCHED AND s.id = 'fine' THEN DELETE WHEN MATCHED THEN UPDATE SET event = 'x'"
)


@pytest.mark.parametrize("vectors", ["true", "false"])
@pytest.mark.parametrize(
    ("change", "unreadable", "future"),
    [
        ("DELETE FROM clicks WHERE event_id = 'fine'", 2, 1),
        ("DELETE FROM clicks WHERE event_id = 'soon-1'", 1, 1),
        ("DELETE FROM clicks WHERE ts = received_at", 0, 1),
        ("DELETE FROM clicks WHERE event_id = 'future'", 2, 0),
        ("UPDATE clicks SET event = 'x' WHERE event_id = 'fine'", 2, 1),
        ("UPDATE clicks SET event = 'x'", 2, 1),
        ("UPDATE clicks SET ts = '2023-11-13 10:00:00Z' WHERE event_id = 'soon-1'", 1, 1),
        ("UPDATE clicks SET ts = '2023-11-13 10:00:00Z' WHERE ts = received_at", 0, 1),
        ("UPDATE clicks SET ts = '2023-11-13 10:00:00Z'", 0, 0),
        (MERGE, 2, 1),
    ],
)
def test_changes_of_rows_keep_the_counts_of_those_that_are_left(
    lake: alluvia.Lake, vectors: str, change: str, unreadable: int, future: int
) -> None:
    lake.create_events("clicks", properties={"delta.enableDeletionVectors": vectors})
    send(
        lake,
        {"event_id": "soon-1", "ts": "soon"},
        {"event_id": "soon-2", "ts": "soon"},
        {"event_id": "future", "ts": "2023-11-16T00:00:00Z"},
        {"event_id": "fine", "ts": "2023-11-14T01:00:00Z"},
        {"event_id": "older", "ts": "2023-11-14T02:00:00Z"},
    )
    lake.table("clicks").optimize()
    before = counts(lake)
    assert before == {"unreadable": 2, "future": 1}
    lake.sql(change)
    assert counts(lake) == {"unreadable": unreadable, "future": future}
