"""Webhook sources in the ingest function: who is taken for whom, what is stored, and what anybody else learns."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from moto import mock_aws

import alluvia
from alluvia.clock import ManualClock
from alluvia.errors import Invalid
from alluvia.events.sources.definition import KEY, Source
from alluvia.events.sources.kinds.registry import KINDS
from alluvia.events.sources.lake_sources import change_sources
from alluvia.serverless import secrets, sqs_sender, warm_lake
from alluvia.store.counting import CountingStore
from functions.ingest.handler import handler
from tests.webhooks import NOW_US, SECRETS, SETTINGS, URL, Answer, identity, send, signed

REFUSED = {"error": "the signature is missing, wrong or too old, or there is no such source"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(NOW_US)


@pytest.fixture
def lake(tmp_path: Path, clock: ManualClock) -> Iterator[alluvia.Lake]:
    with warm_lake.using(alluvia.connect(str(tmp_path), clock=clock)) as lake:
        yield lake


def define(lake: alluvia.Lake, kind: str, monkeypatch: pytest.MonkeyPatch, **more: Any) -> Source:
    """Give the lake a source s of a kind, with its secret in SECRET."""
    monkeypatch.setenv("SECRET", SECRETS[kind])
    secret = {} if kind == "open" else {"secret": "env:SECRET"}
    made = Source.read("s", {"kind": kind, "table": "t", **secret, **SETTINGS.get(kind, {}), **more})
    change_sources(lake.store, lambda sources: sources.update(s=made))
    return made


def rows(lake: alluvia.Lake, table: str = "t") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = lake.table(table).scan().read_all().sort_by("event_id").to_pylist()
    return found


def post(of: Source, clock: ManualClock, body: bytes | None = None, **headers: str) -> Answer:
    delivery = signed(of, body, clock.now_us(), **headers)
    return send(delivery.body, delivery.headers)


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_is_stored_once_however_often_it_comes(
    kind: str, lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = define(lake, kind, monkeypatch)
    for _ in range(3):
        answer = post(of, clock)
        assert answer.status == 200, answer.text
        clock.advance(60)  # a later attempt, with a timestamp of its own
    [row] = rows(lake)
    expected = {"twilio": "delivered", "github": "ping", "gitlab": "Alluvia Test Hook", "shopify": None}
    assert row["event"] == expected.get(kind, "alluvia_test" if kind == "slack" else "alluvia.test")
    assert (row["event_id"], row["source"]) == (identity(kind, signed(of).body), "s")
    assert row["received_at"].timestamp() * 1_000_000 == NOW_US
    assert row["ts"].timestamp() * 1_000_000 == NOW_US


SIGNED = ("standard-webhooks", "github", "stripe", "shopify", "slack", "twilio", "hmac")
OTHER_CREDENTIALS = ("gitlab", "basic", "bearer", "token", "segment", "open")
CLOUD = {
    "ce-specversion": "1.0", "ce-id": "forged", "ce-source": "/evil", "ce-type": "forged", "ce-event": "forged",
    "ce-time": "2001-01-01T00:00:00Z", "ce-ts": "2001-01-01T00:00:00Z", "ce-event_id": "forged",
}  # fmt: skip
SAID = {
    **dict.fromkeys(("x-github-delivery", "x-github-event", "x-shopify-webhook-id", "x-shopify-topic"), "forged"),
    **dict.fromkeys(("x-shopify-event-id", "i-twilio-idempotency-token", "idempotency-key"), "forged"),
    **dict.fromkeys(("x-gitlab-event", "x-gitlab-event-uuid", "x-request-id", "x-slack-retry-num"), "forged"),
    "x-amz-firehose-request-id": "forged",
    "x-shopify-triggered-at": "2001-01-01T00:00:00Z", "date": "Mon, 01 Jan 2001 00:00:00 GMT",
    "x-amz-firehose-common-attributes": '{"commonAttributes":{"event":"forged"}}',
}  # fmt: skip
TYPES = (
    "text/csv", "text/csv; header=absent", "text/tab-separated-values", "application/x-www-form-urlencoded", "",
    "application/cloudevents+json", "application/cloudevents-batch+json", "application/x-ndjson", "text/plain",
    "application/msgpack", "multipart/form-data; boundary=x",
)  # fmt: skip


def test_each_kind_either_signs_or_has_a_credential() -> None:
    assert {*SIGNED, *OTHER_CREDENTIALS} == {*KINDS}
    assert {kind for kind in KINDS if KINDS[kind].proves_headers} == {*OTHER_CREDENTIALS}


@pytest.mark.parametrize("kind", SIGNED)
def test_what_is_not_signed_says_nothing_about_an_event(
    kind: str, lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody who has captured a request sends it again, with other headers: first of all, or after it has come."""
    of = define(lake, kind, monkeypatch, **({"event_id": "event_id"} if kind == "hmac" else {}))
    genuine = signed(of, now_us=clock.now_us())
    sent = dict(genuine.headers)
    forgeries = [sent | CLOUD, sent | SAID, sent | CLOUD | SAID]
    forgeries += [sent | SAID | {"content-type": each} for each in TYPES]
    forgeries += [sent | {"content-encoding": each} for each in ("gzip", "deflate", "br")]
    for forged in forgeries:
        answer = send(genuine.body, forged)
        assert (answer.status, answer.json["rejected"] if answer.text.startswith("{") else 0) == (200, 0), answer.text
    [row] = rows(lake)
    assert send(genuine.body, genuine.headers).status == 200
    assert rows(lake) == [row]
    assert lake.tables() == ["t"]
    expected = {"twilio": "delivered", "github": "ping", "slack": "alluvia_test", "shopify": None}
    assert (row["event_id"], row["event"]) == (identity(kind, genuine.body), expected.get(kind, "alluvia.test"))
    assert (row["source"], row["ts"].timestamp() * 1_000_000) == ("s", NOW_US)
    assert "forged" not in json.dumps(row, default=str)


@pytest.mark.parametrize("kind", ["bearer", "open"])
def test_who_has_the_credential_may_say_it_in_headers(
    kind: str, lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = define(lake, kind, monkeypatch)
    assert post(of, clock, b'{"n":1}', **{name.replace("-", "_"): value for name, value in CLOUD.items()}).status == 200
    assert [(row["event_id"], row["event"]) for row in rows(lake)] == [("forged", "forged")]
    for _ in range(2):
        assert post(of, clock, b'{"n":2}', idempotency_key="k").status == 200
    assert sorted(row["event_id"] for row in rows(lake)) == ["forged", "k/0"]


def test_parameters_of_twilio_in_another_order_are_the_same_event(
    lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = define(lake, "twilio", monkeypatch)
    genuine = signed(of, b"MessageSid=SM1&MessageStatus=sent&Body=a%2bb")
    for body in (genuine.body, b"Body=a%2Bb&MessageStatus=sent&MessageSid=SM1"):
        assert send(body, genuine.headers).status == 200
    assert [row["event"] for row in rows(lake)] == ["sent"]
    assert post(of, clock, b"MessageSid=SM1&MessageStatus=delivered").status == 200
    assert sorted(row["event"] for row in rows(lake)) == ["delivered", "sent"]


def test_a_definition_may_trust_headers_that_are_not_signed(
    lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Shopify sends one body for several topics: with the header's word they are several events."""
    of = define(lake, "shopify", monkeypatch, event="header:X-Shopify-Topic", ts="header:X-Shopify-Triggered-At")
    for topic in ("orders/create", "orders/paid", "orders/create"):
        for attempt in ("1", "2"):
            at = "2023-11-14T00:00:00Z"
            answer = post(
                of, clock, b'{"id":7}', x_shopify_topic=topic, x_shopify_triggered_at=at, x_shopify_webhook_id=attempt
            )
            assert answer.status == 200
    assert sorted(row["event"] for row in rows(lake)) == ["orders/create", "orders/paid"]
    assert {row["ts"].isoformat() for row in rows(lake)} == {"2023-11-14T00:00:00+00:00"}
    of = define(
        lake, "github", monkeypatch, event_id="header:X-GitHub-Delivery", event="header:X-GitHub-Event", table="g"
    )
    clock.advance(31)
    for delivery in ("a", "b", "a"):
        assert post(of, clock, b'{"inputs":{}}', x_github_delivery=delivery, x_github_event="dispatch").status == 200
    assert [(row["event_id"], row["event"]) for row in rows(lake, "g")] == [("a", "dispatch"), ("b", "dispatch")]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "open"])
def test_everything_that_is_not_proved_gets_one_answer(
    kind: str, lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = define(lake, kind, monkeypatch)
    good = signed(of)
    proofs = KINDS[kind].sign(of, good, SECRETS[kind], NOW_US)
    forged = signed(of, secret="Zm9yZ2Vk")
    bare = {name: value for name, value in good.headers.items() if name not in proofs}
    answers = [
        send(good.body, good.headers, to="other"),
        send(good.body, forged.headers),
        send(good.body, bare),
        send(good.body, {**good.headers, **dict.fromkeys(proofs, "\ud800")}),
        send(good.body, {**good.headers, "origin": "https://evil.example"}),
        send(b"", {}, method="GET", query="hub.challenge=a&challenge=a"),
        send(b"", {"origin": "https://evil.example"}, method="OPTIONS"),
    ]
    if of.kind in ("standard-webhooks", "stripe", "slack", "hmac"):
        clock.advance(301)
        answers.append(send(good.body, good.headers))
    assert {(answer.status, answer.text) for answer in answers} == {(401, json.dumps(REFUSED, separators=(",", ":")))}
    assert len({json.dumps(dict(answer.headers)) for answer in answers}) == 1
    assert lake.tables() == []


def test_a_rotation_has_two_secrets_valid_at_once(
    lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLD", "old")
    until = datetime.fromtimestamp(NOW_US // 1_000_000, UTC) + timedelta(hours=1)
    of = define(lake, "github", monkeypatch, previous_secret="env:OLD", previous_until=until)
    old, new = signed(of, secret="old"), signed(of)
    assert [send(each.body, each.headers).status for each in (old, new)] == [200, 200]
    monkeypatch.delenv("OLD")
    clock.advance(600)
    assert send(new.body, new.headers).status == 200  # though the other cannot be read any more
    assert send(old.body, old.headers).status == 401
    clock.advance(3600)
    assert send(old.body, old.headers).status == 401


def test_a_secret_that_was_replaced_counts_at_once_and_the_old_one_soon_no_more(
    lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = define(lake, "github", monkeypatch)
    old = signed(of)
    assert send(old.body, old.headers).status == 200
    clock.advance(31)
    monkeypatch.setenv("SECRET", "new")
    new = signed(of, secret="new")
    assert send(old.body, old.headers).status == 200
    assert send(new.body, new.headers).status == 200
    assert send(old.body, old.headers).status == 401


def test_a_source_counts_within_two_seconds_and_one_that_was_removed_for_half_a_minute(
    lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert send(b"{}").status == 401
    of = define(lake, "github", monkeypatch)
    for milliseconds, status in ((0, 401), (1_999, 401), (1, 200)):
        clock.advance(milliseconds / 1000)
        assert post(of, clock).status == status
    change_sources(lake.store, lambda sources: sources.clear())
    clock.advance(29)
    assert post(of, clock).status == 200
    clock.advance(1)
    assert post(of, clock).status == 401


def test_what_is_known_costs_no_request_and_what_is_unknown_few(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    counting = CountingStore(alluvia.connect(str(tmp_path)).store)
    with warm_lake.using(alluvia.Lake(counting, clock)) as lake:
        of = define(lake, "github", monkeypatch)
        assert post(of, clock).status == 200
        counting.reset()
        for seconds, looked in ((0, 0), (2, 1), (30, 1)):
            clock.advance(seconds)
            before = counting.keys.count(("get", KEY))
            for _ in range(5):
                assert post(of, clock).status == 200
                assert send(b"{}", {"x-hub-signature-256": "sha256=00"}).status == 401
                assert send(b"{}", to="unknown").status == 401
            assert counting.keys.count(("get", KEY)) - before == looked


def test_a_challenge_of_slack_is_answered_and_not_stored(
    lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = define(lake, "slack", monkeypatch)
    body = b'{"token":"x","challenge":"3eZbrw1aBm2rZgRNFdxV2595E9CY3gmdALWMmHkvFXO7tYXAYM8P","type":"url_verification"}'
    answer = post(of, clock, body)
    assert (answer.status, answer.json) == (200, {"challenge": json.loads(body)["challenge"]})
    assert send(body, signed(of, body, secret="forged").headers).status == 401
    assert lake.tables() == []


@pytest.mark.parametrize(
    ("handshake", "query", "status", "text"),
    [
        ("challenge", "challenge=a%26b%3Cscript%3E", 200, "a&b<script>"),
        ("challenge", "challenge=", 401, None),
        ("challenge", f"challenge={'x' * 1025}", 401, None),
        ("hub", "hub.mode=subscribe&hub.challenge=42&hub.verify_token=tok%20en", 200, "42"),
        ("hub", "hub.mode=subscribe&hub.challenge=42&hub.verify_token=other", 401, None),
        ("hub", "hub.challenge=42", 401, None),
    ],
)
def test_handshakes(
    handshake: str, query: str, status: int, text: str | None, lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "tok en")
    more = {"verify_token": "env:TOKEN"} if handshake == "hub" else {}
    define(lake, "github", monkeypatch, handshake=handshake, **more)
    answer = send(method="GET", query=query)
    assert answer.status == status
    if text is not None:
        assert answer.text == text
        assert answer.headers["Content-Type"].startswith("text/plain")
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_browsers_may_send_where_the_source_names_their_site(
    lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = define(lake, "open", monkeypatch, origins=["https://shop.example"])
    asked = {"origin": "https://shop.example", "access-control-request-headers": "content-type"}
    preflight = send(b"", asked, method="OPTIONS")
    assert preflight.status == 204
    assert preflight.headers == {
        "Access-Control-Allow-Methods": "POST",
        "Access-Control-Allow-Headers": "content-type",
        "Access-Control-Max-Age": "600",
        "Access-Control-Allow-Origin": "https://shop.example",
        "Vary": "Origin",
        "X-Content-Type-Options": "nosniff",
    }
    answer = post(of, clock, origin="https://shop.example")
    assert (answer.status, answer.headers["Access-Control-Allow-Origin"]) == (200, "https://shop.example")
    assert post(of, clock, origin="https://evil.example").status == 401
    assert post(of, clock).status == 200
    define(lake, "open", monkeypatch, origins=["*"])
    clock.advance(30)
    assert send(b"", {"origin": "https://any.example"}, method="OPTIONS").status == 204


def test_a_sender_of_cloudevents_may_deliver_to_a_source_of_theirs(
    lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"webhook-request-origin": "eventgrid.azure.net", "webhook-request-rate": "120"}
    assert send(b"", asked, method="OPTIONS").status == 401
    define(lake, "bearer", monkeypatch, format="cloudevents")
    clock.advance(2)
    answer = send(b"", asked, method="OPTIONS")
    assert (answer.status, answer.headers["WebHook-Allowed-Origin"]) == (200, "eventgrid.azure.net")
    assert (answer.headers["WebHook-Allowed-Rate"], answer.headers["Allow"]) == ("*", "POST")
    assert send(b"", {"webhook-request-origin": "a\nb"}, method="OPTIONS").status == 401
    define(lake, "bearer", monkeypatch)
    clock.advance(31)
    assert send(b"", asked, method="OPTIONS").status == 401


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


@pytest.mark.parametrize(
    ("text", "log"),
    [
        (b"not TOML", "is not valid TOML"),
        (b'[s]\nkind = "github"\ntable = "t"\n', "source 's': secret: say where"),
        (b'[s]\nkind = "github"\ntable = "t"\nsecret = "env:NOWHERE"\n', "the secret env:NOWHERE is not set"),
        (b'[s]\nkind = "standard-webhooks"\ntable = "t"\nsecret = "env:SECRET"\n', "the secret must be base64"),
    ],
)
def test_a_source_that_is_not_set_up_is_a_fault_of_ours_that_nobody_else_learns_of(
    text: bytes,
    log: str,
    lake: alluvia.Lake,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("SECRET", "hunter-ü")
    lake.store.put(KEY, text)
    headers = {"x-hub-signature-256": "a", "webhook-id": "a", "webhook-timestamp": "1", "webhook-signature": "v1,a"}
    answer = send(b"{}", headers)
    unknown = send(b"{}", headers, to="unknown" if text != b"not TOML" else "s")
    assert (answer.status, answer.json, answer.headers) == (401, REFUSED, unknown.headers)
    line = caplog.records[0]
    assert (line.getMessage(), line.levelname) == ("a source is misconfigured", "ERROR")
    assert (log in vars(line)["reason"], vars(line)["status"], vars(line)["answered"]) == (True, 500, 401)
    assert "hunter" not in json.dumps(vars(line), default=str)


def test_what_is_broken_is_looked_at_as_seldom(
    tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = secrets.read_secret

    def ask(reference: str) -> str:
        asked.append(reference)
        return real(reference)

    monkeypatch.setattr(secrets, "read_secret", ask)
    counting = CountingStore(alluvia.connect(str(tmp_path)).store)
    with warm_lake.using(alluvia.Lake(counting, clock)) as lake:
        counting.put(KEY, b"not TOML")
        assert [send(b"{}").status for _ in range(5)] == [401] * 5
        assert counting.keys.count(("get", KEY)) == 1
        counting.delete([KEY])
        clock.advance(30)
        of = define(lake, "github", monkeypatch, secret="env:NOWHERE")
        assert [post(of, clock).status for _ in range(5)] == [401] * 5
        assert asked == ["env:NOWHERE"]
        monkeypatch.setenv("NOWHERE", SECRETS["github"])
        clock.advance(30)
        assert post(of, clock).status == 200


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
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    for client in (secrets._secrets_manager, secrets._ssm, sqs_sender.sqs):
        client.cache_clear()
    with mock_aws():
        yield
    for client in (secrets._secrets_manager, secrets._ssm, sqs_sender.sqs):
        client.cache_clear()


def test_secrets_of_aws_and_of_files(
    lake: alluvia.Lake, clock: ManualClock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, aws: None
) -> None:
    boto3.client("secretsmanager").create_secret(Name="alluvia/hook", SecretString="of the manager")
    boto3.client("secretsmanager").create_secret(Name="alluvia/pairs", SecretString='{"github":"of a key","n":5}')
    boto3.client("ssm").put_parameter(Name="/alluvia/hook", Value="of the store", Type="SecureString")
    (tmp_path / "secret").write_text("of a file\n")
    places = {
        "secretsmanager:alluvia/hook": "of the manager",
        "secretsmanager:alluvia/pairs#github": "of a key",
        "ssm:/alluvia/hook": "of the store",
        f"file:{tmp_path}/secret": "of a file",
    }
    for reference, secret in places.items():
        of = define(lake, "github", monkeypatch, secret=reference)
        clock.advance(30)
        delivery = signed(of, secret=secret)
        assert send(delivery.body, delivery.headers).status == 200, reference
        assert send(delivery.body, signed(of, secret="other").headers).status == 401
    for missing in (
        "secretsmanager:nothing",
        "secretsmanager:alluvia/hook#x",
        "secretsmanager:alluvia/pairs#n",
        "ssm:/nothing",
        "file:/nothing",
    ):
        of = define(lake, "github", monkeypatch, secret=missing)
        clock.advance(30)
        assert post(of, clock).status == 401


@pytest.mark.parametrize("name", ["alluvia/pairs#n", "alluvia/pairs#other", "alluvia/plain#github"])
def test_a_key_that_a_secret_lacks_is_named_and_the_secret_is_not(name: str, aws: None) -> None:
    boto3.client("secretsmanager").create_secret(Name="alluvia/pairs", SecretString='{"github":"hidden","n":5}')
    boto3.client("secretsmanager").create_secret(Name="alluvia/plain", SecretString="hidden")
    with pytest.raises(Invalid) as raised:
        secrets.read_secret(f"secretsmanager:{name}")
    key = name.rpartition("#")[2]
    assert str(raised.value) == (
        f"the secret secretsmanager:{name} cannot be read: it must be a JSON object with a text under {key!r}"
    )


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


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_any_request_gets_an_answer_that_is_no_fault_of_ours(kind: str, data: st.DataObject) -> None:
    number = data.draw(st.integers(0, 2**32))
    clock = ManualClock(NOW_US, number)
    fresh = alluvia.connect(f"memory://fuzz-{kind}-{number}", clock=clock)
    with warm_lake.using(fresh) as lake, pytest.MonkeyPatch.context() as patch:
        of = define(lake, kind, patch)
        body = data.draw(st.binary(max_size=40) | st.sampled_from(BODIES))
        text = st.text(max_size=12) | st.sampled_from(["1", "application/x-www-form-urlencoded", "gzip", "a" * 2000])
        given_headers = data.draw(st.dictionaries(st.sampled_from(HEADERS), text, max_size=4))
        signs = signed(of, body, NOW_US, None, **given_headers).headers if data.draw(st.booleans()) else given_headers
        method = data.draw(st.sampled_from(["POST", "POST", "POST", "GET", "OPTIONS", "PUT"]))
        answer = send(body, signs, method=method, query=data.draw(st.sampled_from(["", "challenge=1", "%ff=%"])))
        assert answer.status < 500, answer.text


HEADERS = [
    *("content-type", "content-encoding", "webhook-id", "x-github-event", "x-github-delivery", "x-shopify-topic"),
    *("x-shopify-triggered-at", "x-gitlab-event", "idempotency-key", "i-twilio-idempotency-token", "origin"),
]
BODIES = [
    *(b"", b"{}", b'{"event":{"type":5},"event_id":7,"created":"x"}', b"[[1],{},{}]", b"payload=%7B%7D"),
    *(b"\x1f\x8b\x08", b'{"type":"url_verification","challenge":5}', b'{"payload":"{\\"a\\":1}"}'),
    *(b'{"timestamp":1e400}', URL.encode()),
]
