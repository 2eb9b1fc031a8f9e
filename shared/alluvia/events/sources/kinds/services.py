"""Webhooks of Shopify, Slack, Stripe and Twilio. Pure.

Source: "Deliver webhooks through HTTPS" and "Headers" of Shopify's documentation. Shopify signs the body, and no time,
nor what is in headers: the id, the topic and the moment. So the body's bytes are the identity, which attempts repeat.

Source: "Verifying requests from Slack", "url_verification event" and "Slash commands" of Slack's documentation.

Source: "Verify webhook signatures manually" and "The Event object" of Stripe's documentation.

Source: "Webhooks security" of Twilio's documentation, and its library's RequestValidator. The signed text is the
address that Twilio was told, which proxies hide, and the parameters of a form, in the order of their names; of other
bodies, a hash in the address. Twilio signs no time, nor the idempotency token in a header: the parameters are the
identity, which attempts repeat.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import orjson

from alluvia.errors import Invalid
from alluvia.events.ingest.values import Given
from alluvia.events.sources.kinds.base import (
    MISSING,
    STALE,
    WRONG,
    Kind,
    Sample,
    SignedBody,
    Thanks,
    any_same,
    is_fresh,
    mac,
    said_time,
    same,
    text_of,
    to_bytes,
)
from alluvia.json_values.jsontext import decode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alluvia.events.sources.definition import Source
    from alluvia.events.sources.kinds.base import Delivery

_FORM = re.compile(rb"[A-Za-z0-9_.*+%\[\]-]{1,200}=")


def json_or_form(body: bytes) -> str:
    """Return the format of a body that is one of the two. No JSON begins with a name and `=`."""
    return "form" if _FORM.match(body) else "json"


def unwrapped(value: dict[str, object]) -> dict[str, object]:
    """Return the JSON object in the field `payload` of a form that has no other; else the value itself."""
    payload = value.get("payload")
    if len(value) != 1 or not isinstance(payload, str):
        return value
    try:
        inner = decode(payload.encode("utf-8", "surrogatepass"))
    except Invalid:  # a text like any other
        return value
    return inner if isinstance(inner, dict) else value


class Shopify(SignedBody):
    """`X-Shopify-Hmac-Sha256` over the body."""

    at_sender = "Settings → Notifications → Webhooks, or the app: the address as URL. Shopify shows the secret"
    header = "x-shopify-hmac-sha256"

    def signature(self, secret: str, body: bytes) -> str:
        return base64.b64encode(mac(to_bytes(secret), body)).decode()

    def sample(self, event_id: str, now_us: int) -> Sample:
        headers = {
            "content-type": "application/json",
            "x-shopify-topic": "alluvia/test",
            "x-shopify-webhook-id": event_id,
        }
        return Sample(orjson.dumps({"note": f"a test of this source: {event_id}"}), headers)


_SLACK_SIGNATURE, _TIMESTAMP = "x-slack-signature", "x-slack-request-timestamp"


class Slack(Kind):
    """`X-Slack-Signature` over the timestamp and the body. The answer is empty: Slack would show it to the user."""

    at_sender = "the app → Event Subscriptions: the address as request URL. The secret is the app's signing secret"
    settings = frozenset({"tolerance_seconds"})
    identifies_requests = False
    thanks = Thanks("text/plain", "")

    def refusal(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> str | None:
        signature, timestamp = delivery.headers.get(_SLACK_SIGNATURE), delivery.headers.get(_TIMESTAMP)
        if not (signature and timestamp):
            return MISSING
        if not same(_slack_signature(secret, timestamp, delivery.body), signature):
            return WRONG
        return None if is_fresh(timestamp, now_us, source.tolerance_seconds) else STALE

    def sign(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> dict[str, str]:
        timestamp = str(now_us // 1_000_000)
        return {_TIMESTAMP: timestamp, _SLACK_SIGNATURE: _slack_signature(secret, timestamp, delivery.body)}

    def sample(self, event_id: str, now_us: int) -> Sample:
        event = {
            "type": "event_callback",
            "event_id": event_id,
            "event_time": now_us // 1_000_000,
            "event": {"type": "alluvia_test"},
        }
        return Sample(orjson.dumps(event), {"content-type": "application/json"})

    def body_format(self, body: bytes) -> str:
        return json_or_form(body)

    def event(self, value: dict[str, object]) -> dict[str, object]:
        return unwrapped(value)

    def given(self, delivery: Delivery, value: Mapping[str, object]) -> Given:
        """Name an event by its type, an interaction by its own, a command by itself. Those two have trigger ids."""
        inner = value.get("event")
        name = text_of(inner.get("type")) if isinstance(inner, dict) else None
        time = said_time("event_time", value.get("event_time"))
        return Given(
            text_of(value.get("event_id")) or text_of(value.get("trigger_id")),
            time.ts_us,
            name or text_of(value.get("type")) or text_of(value.get("command")),
            unread=time.unread,
        )

    def challenge(self, value: Mapping[str, object]) -> str | None:
        """Return the challenge with which Slack checks a new address."""
        return text_of(value.get("challenge")) if value.get("type") == "url_verification" else None


def _slack_signature(secret: str, timestamp: str, body: bytes) -> str:
    return f"v0={mac(to_bytes(secret), b'v0:', to_bytes(timestamp), b':', body).hex()}"


_STRIPE_SIGNATURE = "stripe-signature"
_UNSTABLE = ("pending_webhooks",)
"""How many deliveries are left to make: each attempt has another number."""


class Stripe(Kind):
    """`Stripe-Signature: t=…,v1=…` over the timestamp and the body."""

    at_sender = "Developers → Webhooks: the address as endpoint. Stripe shows the secret, whsec_…"
    settings = frozenset({"tolerance_seconds"})
    identifies_requests = False

    def refusal(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> str | None:
        parts = [part.partition("=")[::2] for part in delivery.headers.get(_STRIPE_SIGNATURE, "").split(",")]
        timestamps = [value for name, value in parts if name == "t"]
        signatures = [value for name, value in parts if name == "v1"]
        if len(timestamps) != 1 or not signatures:
            return MISSING
        [timestamp] = timestamps
        if not any_same([_stripe_signature(secret, timestamp, delivery.body)], signatures):
            return WRONG
        return None if is_fresh(timestamp, now_us, source.tolerance_seconds) else STALE

    def sign(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> dict[str, str]:
        timestamp = str(now_us // 1_000_000)
        return {_STRIPE_SIGNATURE: f"t={timestamp},v1={_stripe_signature(secret, timestamp, delivery.body)}"}

    def sample(self, event_id: str, now_us: int) -> Sample:
        event = {
            "id": f"evt_{event_id}",
            "object": "event",
            "created": now_us // 1_000_000,
            "type": "alluvia.test",
            "data": {"object": {}},
        }
        return Sample(orjson.dumps(event), {"content-type": "application/json"})

    def given(self, delivery: Delivery, value: Mapping[str, object]) -> Given:
        time = said_time("created", value.get("created"))
        name = text_of(value.get("type"))
        return Given(text_of(value.get("id")), time.ts_us, name, unstable=_UNSTABLE, unread=time.unread)


def _stripe_signature(secret: str, timestamp: str, body: bytes) -> str:
    return mac(to_bytes(secret), to_bytes(timestamp), b".", body).hex()


_TWILIO_SIGNATURE, _ALGORITHM = "x-twilio-signature", "x-twilio-webhooks-signature-settings"
_ALGORITHMS = {"HMAC_SHA1": "sha1", "HMAC_SHA256": "sha256"}
_NAMES = ("EventType", "StatusCallbackEvent", "MessageStatus", "SmsStatus", "CallStatus")
_PARAMETERS_MAX = 10_000
_PORTS = {"https": 443, "http": 80}


class Twilio(Kind):
    """`X-Twilio-Signature` over the address and the parameters. The answer is TwiML that says nothing."""

    at_sender = "the address as callback, with method POST. The secret is the account's auth token"
    settings = frozenset({"url"})
    thanks = Thanks("text/xml", "<Response/>")

    def refusal(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> str | None:
        signature = delivery.headers.get(_TWILIO_SIGNATURE)
        algorithm = _algorithm(delivery)
        parameters = _parameters(delivery)
        if not signature or algorithm is None or parameters is None:
            return MISSING
        expected = [_twilio_signature(secret, address, parameters, algorithm) for address in _addresses(delivery.url)]
        return None if any_same(expected, [signature]) else WRONG

    def sign(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> dict[str, str]:
        return {_TWILIO_SIGNATURE: _twilio_signature(secret, delivery.url, _parameters(delivery) or b"", "sha1")}

    def sample(self, event_id: str, now_us: int) -> Sample:
        form = {"MessageSid": f"SM{event_id}", "MessageStatus": "delivered", "Note": "a test of this source"}
        headers = {"content-type": "application/x-www-form-urlencoded", "i-twilio-idempotency-token": event_id}
        return Sample(urlencode(form).encode(), headers)

    def given(self, delivery: Delivery, value: Mapping[str, object]) -> Given:
        name = next((name for name in _NAMES if text_of(value.get(name))), None)
        time = said_time("Timestamp", value.get("Timestamp"))
        return Given(None, time.ts_us, None if name is None else str(value[name]), unread=time.unread)

    def body_format(self, body: bytes) -> str:
        return json_or_form(body)

    def key(self, delivery: Delivery) -> str | None:
        """Return a hash of the parameters in the order in which they are signed, whichever they came in."""
        pairs = _pairs(delivery.body) if json_or_form(delivery.body) == "form" else None
        signed = delivery.body if pairs is None else _signed(pairs)
        return hashlib.sha256(signed).hexdigest()


def _algorithm(delivery: Delivery) -> str | None:
    """Return the hash function that the request names, by default SHA-1; None for one that Twilio has not."""
    for part in delivery.headers.get(_ALGORITHM, "").split(","):
        name, _, value = part.partition("=")
        if name.strip() == "algorithm":
            return _ALGORITHMS.get(value.strip().upper())
    return "sha1"


def _parameters(delivery: Delivery) -> bytes | None:
    """Return the names and values that are signed; None for a body that is not a form, or not what its hash says."""
    try:
        query = parse_qs(urlsplit(delivery.url).query, max_num_fields=_PARAMETERS_MAX)
        if "bodySHA256" in query:
            return b"" if same(hashlib.sha256(delivery.body).hexdigest(), query["bodySHA256"][0]) else None
    except ValueError:  # of addresses, and too many fields
        return None
    pairs = _pairs(delivery.body)
    return None if pairs is None else _signed(pairs)


def _pairs(body: bytes) -> list[tuple[str, str]] | None:
    """Return the names and values of a form; None if the text is not a form."""
    try:
        return parse_qsl(body.decode(), keep_blank_values=True, errors="strict", max_num_fields=_PARAMETERS_MAX)
    except ValueError:  # of UTF-8, and too many fields
        return None


def _signed(pairs: list[tuple[str, str]]) -> bytes:
    return b"".join(to_bytes(name + value) for name, value in sorted(set(pairs)))


def _addresses(url: str) -> list[str]:
    """Return the address without and with its port: Twilio signs either."""
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.netloc.rpartition(":")[0]
    except ValueError:
        return [url]
    if port is not None:
        return [url, parts._replace(netloc=host).geturl()]
    return [url, parts._replace(netloc=f"{parts.netloc}:{_PORTS.get(parts.scheme, 443)}").geturl()]


def _twilio_signature(secret: str, url: str, parameters: bytes, algorithm: str) -> str:
    return base64.b64encode(mac(to_bytes(secret), to_bytes(url), parameters, algorithm=algorithm)).decode()
