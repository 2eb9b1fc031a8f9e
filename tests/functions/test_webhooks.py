"""Webhooks in the ingest function: proofs that senders give, answers that they get, and handshakes."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import alluvia
from alluvia.clock import ManualClock
from alluvia.events.sources.kinds.registry import KINDS
from alluvia.serverless import warm_lake
from tests.functions.webhooks import REFUSED, define, post, rows
from tests.functions.webhooks import clock as clock  # noqa: PLC0414 - a fixture
from tests.functions.webhooks import lake as lake  # noqa: PLC0414 - a fixture
from tests.webhooks import NOW_US, SECRETS, URL, identity, send, signed


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
    of = define(lake, "open", monkeypatch, origins=["https://Shop.Example:443"])
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
