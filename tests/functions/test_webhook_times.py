"""Times of webhooks that cannot be read: counted, named, suggested, refused and repaired as those of other events."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import urlencode

import pytest

import alluvia
from alluvia.clock import ManualClock
from alluvia.delta.odd_times import odd_times_in
from alluvia.events.ingest.event_time import own_moment
from alluvia.events.sources.kinds.registry import KINDS
from tests.functions.webhooks import clock as clock  # noqa: PLC0414 - a fixture
from tests.functions.webhooks import define, post, rows
from tests.functions.webhooks import lake as lake  # noqa: PLC0414 - a fixture
from tests.webhooks import NOW_US

PLACES: dict[str, tuple[str, dict[str, Any]]] = {
    "standard-webhooks": ("timestamp", {"type": "paid"}),
    "github": ("timestamp", {"zen": "x", "hook_id": 1}),
    "stripe": ("created", {"id": "evt_1", "type": "charge.paid"}),
    "shopify": ("time", {"note": "x"}),
    "slack": ("event_time", {"event_id": "Ev1", "type": "event_callback"}),
    "twilio": ("Timestamp", {"MessageStatus": "sent"}),
    "gitlab": ("ts", {"object_kind": "push"}),
    "hmac": ("@timestamp", {"event_id": "a"}),
    "basic": ("ts", {"event_id": "a"}),
    "bearer": ("ts", {"event_id": "a"}),
    "token": ("ts", {"event_id": "a"}),
    "segment": ("timestamp", {"type": "track", "event": "x", "messageId": "m"}),
    "open": ("ts", {"event_id": "a"}),
}
"""For each kind the field with the time of its events, and the rest of one."""


def body(kind: str, time: object) -> bytes:
    field, rest = PLACES[kind]
    event = rest | {field: time}
    return urlencode(event).encode() if kind == "twilio" else json.dumps(event).encode()


def headers(kind: str) -> dict[str, str]:
    return {"content-type": "application/x-www-form-urlencoded" if kind == "twilio" else "application/json"}


def counted(lake: alluvia.Lake) -> int:
    return odd_times_in(lake.table("t").snapshot().files)["unreadable"]


def test_all_kinds_are_here() -> None:
    assert PLACES.keys() == KINDS.keys()


@pytest.mark.parametrize("kind", PLACES)
def test_a_time_that_cannot_be_read_is_counted_and_named(
    kind: str, lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    field, _ = PLACES[kind]
    of = define(lake, kind, monkeypatch)
    answer = post(of, clock, body(kind, "20.11.2026 10:00"), **headers(kind))
    assert answer.status == 200, answer.text
    if "accepted" in answer.text:  # not in the answers that Slack, Twilio and Segment expect
        assert answer.json["unreadable_times"] == {"events": 1, "field": field, "value": "20.11.2026 10:00"}
    [row] = rows(lake)
    assert row["ts"].timestamp() == NOW_US / 1_000_000
    assert json.loads(row["properties"])[field] == "20.11.2026 10:00"
    assert counted(lake) == 1
    first = lake.table("t").suggest()[0]
    assert (first.field, first.type, first.example) == (field, None, '"20.11.2026 10:00"')


@pytest.mark.parametrize("kind", PLACES)
def test_a_table_can_refuse_it_and_a_replay_repair_it(
    kind: str, lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    field, _ = PLACES[kind]
    lake.create_events("t", properties={"alluvia.unreadable_time": "reject"})
    of = define(lake, kind, monkeypatch)
    sent = body(kind, "20.11.2026 10:00")
    post(of, clock, sent, **headers(kind))
    [reject] = rows(lake, "t/_rejects")
    assert reject["reason"] == f"{field}: '20.11.2026 10:00' cannot be read as a time"
    assert [each.field for each in lake.table("t").suggest() if each.note] == [field]
    values = {field: f"strptime(\"{field}\", '%d.%m.%Y %H:%M')"}
    assert lake.table("t").replay_rejects(values=values).stored == 1
    [row] = rows(lake)
    moment = own_moment({"ts": "2026-11-20T10:00:00Z"})
    assert moment is not None
    assert row["ts"].timestamp() == moment[0] / 1_000_000
    answer = post(of, clock, sent, **headers(kind))
    assert answer.status == 200
    assert ([len(rows(lake)), len(rows(lake, "t/_rejects"))], counted(lake)) == ([1, 0], 0)


@pytest.mark.parametrize("kind", ["standard-webhooks", "stripe", "slack", "twilio"])
@pytest.mark.parametrize("time", [1_600_000_000, "2020-09-13T12:26:40Z", "Sun, 13 Sep 2020 12:26:40 GMT", "1600000000"])
def test_a_time_that_can_be_read_is_not(
    kind: str, time: object, lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = define(lake, kind, monkeypatch)
    post(of, clock, body(kind, time), **headers(kind))
    assert ([row["ts"].timestamp() for row in rows(lake)], counted(lake)) == ([1_600_000_000], 0)


def test_the_place_that_a_definition_names_counts_instead(
    lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = define(lake, "stripe", monkeypatch, ts="data.at")
    answer = post(of, clock, b'{"id":"a","created":"soon","data":{"at":1600000000}}')
    assert "unreadable_times" not in answer.json
    answer = post(of, clock, b'{"id":"b","created":1600000000,"data":{"at":"noon"}}')
    assert answer.json["unreadable_times"] == {"events": 1, "field": "data.at", "value": "noon"}
    assert [row["ts"].timestamp() for row in rows(lake)] == [1_600_000_000, 1_600_000_000]
    assert [each.field for each in lake.table("t").suggest() if each.note][:1] == ["data.at"]
