"""Deliveries of webhooks as events: their identity, time, name and format."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import boto3
import pytest

import alluvia
from alluvia.clock import ManualClock
from alluvia.events.sources.definition import Source
from alluvia.events.sources.lake_sources import change_sources
from functions.ingest.handler import handler
from tests.functions.webhooks import clock as clock  # noqa: PLC0414 - a fixture
from tests.functions.webhooks import define, in_aws, post, rows
from tests.functions.webhooks import lake as lake  # noqa: PLC0414 - a fixture
from tests.webhooks import NOW_US, identity, send, signed


@pytest.mark.parametrize("kind", ["token", "twilio"])
def test_event_streams_of_twilio_are_cloudevents(
    kind: str, lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    event = {"specversion": "1.0", "id": "EZ1", "source": "/x", "type": "com.twilio.messaging.message.delivered"}
    body = json.dumps([{**event, "data": {"messageSid": "SM1"}}]).encode()
    of = define(lake, kind, monkeypatch, format="cloudevents")
    delivery = signed(of, body, now_us=clock.now_us(), content_type="application/json", i_twilio_idempotency_token="")
    assert send(body, delivery.headers).status == 200
    assert [(row["event_id"], row["event"]) for row in rows(lake)] == [("EZ1", event["type"])]


def test_a_signing_token_of_gitlab_takes_the_name_from_its_header(
    lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = define(lake, "standard-webhooks", monkeypatch, event="header:X-Gitlab-Event")
    body = b'{"object_kind":"push","ref":"main"}'
    delivery = signed(of, body, now_us=clock.now_us(), x_gitlab_event="Push Hook")
    assert send(body, delivery.headers).status == 200
    assert [row["event"] for row in rows(lake)] == ["Push Hook"]


def test_identity_time_and_name_come_from_where_the_definition_says(
    lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = define(lake, "hmac", monkeypatch, event_id="data.id", ts="data.at", event="header:X-Kind")
    events = [{"data": {"id": n, "at": 1_600_000_000 + n}, "event": {"old": n}} for n in (1, 2)]
    for _ in range(2):
        answer = post(of, clock, json.dumps(events).encode(), X_Kind="paid")
        assert (answer.status, answer.json["accepted"]) == (200, 2)
    assert [(row["event_id"], row["event"], row["ts"].timestamp()) for row in rows(lake)] == [
        ("1", "paid", 1_600_000_001),
        ("2", "paid", 1_600_000_002),
    ]
    assert json.loads(rows(lake)[0]["properties"]) == events[0]
    answer = post(of, clock, b'{"data":{"id":[1]}}')
    assert (answer.status, answer.json["rejected"]) == (200, 1)
    assert answer.json["errors"][0]["reason"] == "data.id: expected a string or a number that identifies the event"
    answer = post(of, clock, b'{"data":{"id":3,"at":"noon"}}')
    assert answer.json["unreadable_times"] == {"events": 1, "field": "data.at", "value": "noon"}


def test_several_events_of_a_delivery_have_its_identity_and_their_positions(
    lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = define(lake, "standard-webhooks", monkeypatch)
    for _ in range(2):
        assert post(of, clock, b'[{"type":"a","timestamp":"2020-01-01T00:00:00Z"},5,{"type":"b"}]').status == 200
    first, second = rows(lake)
    assert [row["event_id"] for row in (first, second)] == ["test-1/0", "test-1/2"]
    assert (first["event"], first["ts"].timestamp()) == ("a", 1_577_836_800)
    assert (second["event"], second["ts"].timestamp()) == ("b", NOW_US / 1_000_000)
    assert len(rows(lake, "t/_rejects")) == 1


def test_an_attempt_of_stripe_that_counts_others_is_the_same_event(
    lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = define(lake, "stripe", monkeypatch)
    sent = {"id": "evt_1", "created": 1_600_000_000, "type": "charge.paid", "data": {"object": {"amount": 5}}}
    for left in (2, 1):
        answer = post(of, clock, json.dumps(sent | {"pending_webhooks": left}).encode())
        assert (answer.status, answer.json["rejected"]) == (200, 0)
    [row] = rows(lake)
    assert (row["event_id"], row["event"], row["ts"].timestamp()) == ("evt_1", "charge.paid", 1_600_000_000)
    answer = post(of, clock, json.dumps(sent | {"type": "charge.failed"}).encode())
    assert (answer.status, answer.json["conflicting"]) == (200, 1)


def test_a_source_cannot_take_the_identity_of_another(
    lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = define(lake, "open", monkeypatch)
    change_sources(lake.store, lambda sources: sources.update(other=Source("other", "open", "t")))
    body = b'{"event_id":"1","source":"other"}'
    assert post(of, clock, body).json["stored"] == 1
    assert send(body, to="other").json["stored"] == 1
    assert sorted(row["source"] for row in rows(lake)) == ["other", "s"]


def test_what_cannot_be_a_row_is_kept_and_need_not_come_again(
    lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = define(lake, "github", monkeypatch)
    answer = post(of, clock, b'{"broken')
    assert (answer.status, answer.json["error"][:20]) == (400, "nothing was kept: th")
    assert post(of, clock).status == 200
    answer = post(of, clock, b'{"broken')
    assert (answer.status, answer.json["rejected"]) == (200, 1)
    assert [row["raw"] for row in rows(lake, "t/_rejects")] == [b'{"broken']
    assert post(of, clock, b"").status == 400
    answer = post(of, clock, b"\x81", content_type="application/msgpack")
    assert (answer.status, answer.json["rejected"]) == (415, 1)  # it never will be: who sets it up must know
    assert b"\x81" in [row["raw"] for row in rows(lake, "t/_rejects")]


def test_formats_of_other_clients_come_through_sources(
    lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = define(lake, "bearer", monkeypatch, format="csv", delimiter=";", event_id="key", event="what")
    for _ in range(2):
        assert post(of, clock, b"key;what;n\n1;a;x\n2;b;y\n", content_type="text/plain").status == 200
    assert [(row["event_id"], row["event"], row["source"]) for row in rows(lake)] == [("1", "a", "s"), ("2", "b", "s")]
    cloud = {"specversion": "1.0", "type": "paid", "source": "/shops/7", "id": "ce-1"}
    clock.advance(30)
    of = define(lake, "bearer", monkeypatch, format="cloudevents", table="cloud")
    answer = post(of, clock, json.dumps(cloud).encode(), content_type="application/cloudevents+json")
    assert answer.status == 200, answer.text
    [row] = rows(lake, "cloud")
    assert (row["event_id"], row["event"], row["source"]) == ("ce-1", "paid", "/shops/7")
    clock.advance(30)
    of = define(lake, "token", monkeypatch, format="firehose", table="fire")
    record = {"data": base64.b64encode(b'{"event_id":"f"}').decode()}
    body = {"requestId": "r-1", "timestamp": 1_600_000_000_000, "records": [record]}
    answer = post(of, clock, json.dumps(body).encode(), X_Amz_Firehose_Request_Id="r-1")
    assert (answer.status, answer.json["requestId"]) == (200, "r-1")
    assert [row["event_id"] for row in rows(lake, "fire")] == ["f"]


@pytest.mark.parametrize(
    ("named", "content_type", "body", "ids"),
    [
        ("csv", "application/json; charset=utf-8", b'{"event_id":"1"}', ["1"]),
        ("csv", "application/x-ndjson", b'{"event_id":"1"}\n{"event_id":"2"}', ["1", "2"]),
        ("csv", "application/cloudevents+json", b'{"specversion":"1.0","id":"c","source":"/x","type":"t"}', ["c"]),
        ("csv", "application/x-www-form-urlencoded", b"event_id,n\n1,2", ["1"]),
        ("csv", "", b"event_id,n\n1,2", ["1"]),
        ("csv", "text/tab-separated-values", b"event_id\tn\n1\t2", ["1"]),
        ("form", "application/json", b'{"event_id":"1"}', ["1"]),
        ("form", "text/plain", b"event_id=1&n=2", ["1"]),
        ("json", "text/csv", b"event_id,n\n1,2", ["1"]),
        ("json", "application/x-www-form-urlencoded", b'{"event_id":"1"}', ["1"]),
        ("vector", "application/json", b'[{"event_id":"1"}]', ["1"]),
    ],
)
def test_what_a_request_declares_comes_before_the_format_of_its_source(
    named: str,
    content_type: str,
    body: bytes,
    ids: list[str],
    lake: alluvia.Lake,
    clock: ManualClock,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    of = define(lake, "open", monkeypatch, format=named)
    answer = post(of, clock, body, content_type=content_type)
    assert (answer.status, answer.json["rejected"]) == (200, 0), answer.text
    assert [row["event_id"] for row in rows(lake)] == ids


def test_a_form_with_parts_is_not_read_as_the_csv_of_a_source(
    lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = define(lake, "open", monkeypatch, format="csv")
    assert post(of, clock, b"a\n1\n", content_type="").status == 200
    answer = post(
        of, clock, b"--x\r\nContent-Type: text/csv\r\n\r\na\r\n--x--", content_type="multipart/form-data; boundary=x"
    )
    assert (answer.status, answer.json["errors"][0]["reason"][:20]) == (415, "multipart/form-data ")


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with in_aws(monkeypatch):
        yield


def test_through_the_queue(lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, aws: None) -> None:
    url = boto3.client("sqs").create_queue(QueueName="events")["QueueUrl"]
    monkeypatch.setenv("ALLUVIA_MODE", "queued")
    monkeypatch.setenv("ALLUVIA_QUEUE_URL", url)
    of = define(lake, "github", monkeypatch)
    assert [post(of, clock).status for _ in range(2)] == [202, 202]
    messages = boto3.client("sqs").receive_message(QueueUrl=url, MaxNumberOfMessages=10)["Messages"]
    records = [{"body": each["Body"], "messageId": each["MessageId"]} for each in messages]
    for _ in range(2):
        assert handler({"Records": [{"eventSource": "aws:sqs", **record} for record in records]}, None) == {
            "batchItemFailures": []
        }
    [row] = rows(lake)
    assert (row["event_id"], row["event"], row["source"]) == (identity("github", signed(of).body), "ping", "s")
