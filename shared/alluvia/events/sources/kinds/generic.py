"""Kinds for any sender: Standard Webhooks, HMAC in a header, credentials, and the write key of Segment. Pure.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md. Each attempt has a
timestamp of its own, so the time in the body, where the specification puts that of the event, comes first.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING

import orjson

from alluvia.errors import Invalid
from alluvia.events.formats.segment_format import write_key
from alluvia.events.ingest.values import Given
from alluvia.events.sources.kinds.base import (
    MISSING,
    STALE,
    WRONG,
    Kind,
    Sample,
    any_same,
    is_fresh,
    mac,
    moment_of,
    said_time,
    same,
    text_of,
    to_bytes,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alluvia.events.sources.definition import Source
    from alluvia.events.sources.kinds.base import Delivery

_PREFIXES = ("webhook", "svix")
_SECRET_PREFIX = "whsec_"  # noqa: S105 - the same for all
_NO_KEY = "the secret must be base64, as in whsec_…: copy it from the sender again"


class StandardWebhooks(Kind):
    """`webhook-id`, `webhook-timestamp` and `webhook-signature`, or the same with `svix-`."""

    at_sender = "the address as endpoint. The sender shows the secret, whsec_…"
    headers = frozenset(f"{prefix}-{name}" for prefix in _PREFIXES for name in ("id", "timestamp"))
    settings = frozenset({"tolerance_seconds"})

    def secret_fault(self, secret: str) -> str | None:
        return None if _key(secret) else _NO_KEY

    def refusal(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> str | None:
        webhook_id, timestamp, signature = _headers(delivery)
        if not (webhook_id and timestamp and signature):
            return MISSING
        if not any_same([_standard_signature(secret, webhook_id, timestamp, delivery.body)], signature.split(" ")):
            return WRONG
        return None if is_fresh(timestamp, now_us, source.tolerance_seconds) else STALE

    def sign(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> dict[str, str]:
        webhook_id, timestamp = delivery.headers["webhook-id"], str(now_us // 1_000_000)
        return {
            "webhook-timestamp": timestamp,
            "webhook-signature": _standard_signature(secret, webhook_id, timestamp, delivery.body),
        }

    def sample(self, event_id: str, now_us: int) -> Sample:
        body = orjson.dumps({"type": "alluvia.test", "data": {"note": "a test of this source"}})
        return Sample(body, {"content-type": "application/json", "webhook-id": event_id})

    def given(self, delivery: Delivery, value: Mapping[str, object]) -> Given:
        _, timestamp, _ = _headers(delivery)
        time = said_time("timestamp", value.get("timestamp"))
        name = next((prefix for prefix in _PREFIXES if delivery.header(f"{prefix}-id")), _PREFIXES[0])
        return Given(
            delivery.header(f"{name}-id"),
            moment_of(timestamp) if time.ts_us is None else time.ts_us,
            text_of(value.get("type")),
            unread=time.unread,
        )


def _headers(delivery: Delivery) -> tuple[str, str, str]:
    """Return the id, the timestamp and the signatures; "" for what is missing."""
    for prefix in _PREFIXES:
        if f"{prefix}-id" in delivery.headers:
            webhook_id, timestamp, signature = (
                delivery.headers.get(f"{prefix}-{name}", "") for name in ("id", "timestamp", "signature")
            )
            return webhook_id, timestamp, signature
    return "", "", ""


def _standard_signature(secret: str, webhook_id: str, timestamp: str, body: bytes) -> str:
    key = _key(secret)
    if not key:
        raise Invalid(_NO_KEY)
    made = mac(key, to_bytes(webhook_id), b".", to_bytes(timestamp), b".", body)
    return f"v1,{base64.b64encode(made).decode()}"


def _key(secret: str) -> bytes:
    """Return the key that a secret has; b"" if it has none."""
    text = secret.removeprefix(_SECRET_PREFIX)
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (ValueError, binascii.Error):
        return b""


ALGORITHMS = ("sha256", "sha1", "sha512")
ENCODINGS = ("hex", "base64")
BODY, TIMESTAMP = "{body}", "{timestamp}"
_PLACEHOLDER = re.compile(r"\{[A-Za-z_][A-Za-z0-9_.-]*\}")


class HmacHeader(Kind):
    """A header with a prefix and the HMAC of the body, or of a text with a timestamp from another header."""

    at_sender = "the address, and the secret with which it signs"
    settings = frozenset(
        {"header", "algorithm", "encoding", "prefix", "timestamp_header", "signed", "tolerance_seconds"}
    )

    def fault(self, source: Source) -> str | None:
        if not source.header:
            return "header: name the header that has the signature"
        unknown = [name for name in _PLACEHOLDER.findall(source.signed) if name not in (BODY, TIMESTAMP)]
        if unknown:
            return f"signed: {unknown[0]} stands for nothing: there are {TIMESTAMP} and {BODY}"
        wanted = f"{TIMESTAMP} and {BODY}" if source.timestamp_header else f"{BODY} and no {TIMESTAMP}"
        template = _template(source)
        if template.count(BODY) != 1 or template.count(TIMESTAMP) != (1 if source.timestamp_header else 0):
            return f"signed: {template!r:.100} must hold {wanted}, once"
        return None

    def refusal(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> str | None:
        signature = delivery.headers.get(source.header.lower())
        timestamp = delivery.headers.get(source.timestamp_header.lower(), "") if source.timestamp_header else ""
        if not signature or (source.timestamp_header and not timestamp):
            return MISSING
        if not same(_signature(source, secret, timestamp, delivery.body), signature):
            return WRONG
        if source.timestamp_header and not is_fresh(timestamp, now_us, source.tolerance_seconds):
            return STALE
        return None

    def sign(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> dict[str, str]:
        timestamp = str(now_us // 1_000_000)
        headers = {source.header.lower(): _signature(source, secret, timestamp, delivery.body)}
        return headers | ({source.timestamp_header.lower(): timestamp} if source.timestamp_header else {})

    def sample(self, event_id: str, now_us: int) -> Sample:
        return plain_sample(event_id)


def plain_sample(event_id: str) -> Sample:
    """Return the sample of kinds that say nothing of what is in the body."""
    event = {"event_id": event_id, "event": "alluvia.test", "note": "a test of this source"}
    return Sample(orjson.dumps(event), {"content-type": "application/json"})


def _template(source: Source) -> str:
    return source.signed or (f"{TIMESTAMP}.{BODY}" if source.timestamp_header else BODY)


def _signature(source: Source, secret: str, timestamp: str, body: bytes) -> str:
    before, _, after = _template(source).partition(BODY)
    parts = [to_bytes(text.replace(TIMESTAMP, timestamp)) for text in (before, after)]
    made = mac(to_bytes(secret), parts[0], body, parts[1], algorithm=source.algorithm)
    return f"{source.prefix}{made.hex() if source.encoding == 'hex' else base64.b64encode(made).decode()}"


_AUTHORIZATION = "authorization"


class _Plain(Kind):
    proves_headers = True

    def sample(self, event_id: str, now_us: int) -> Sample:
        return plain_sample(event_id)


class Basic(_Plain):
    """`Authorization: Basic …` (RFC 7617). The secret is `user:password`."""

    at_sender = "the address, and the secret's user and password for Basic authentication"

    def secret_fault(self, secret: str) -> str | None:
        return None if ":" in secret else "the secret must be user:password, with the colon"

    def refusal(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> str | None:
        return _refusal(delivery, "basic", base64.b64encode(to_bytes(secret)).decode())

    def sign(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> dict[str, str]:
        return {_AUTHORIZATION: f"Basic {base64.b64encode(to_bytes(secret)).decode()}"}


class Bearer(_Plain):
    """`Authorization: Bearer …` (RFC 6750). The secret is the token."""

    at_sender = "the address, and the header Authorization: Bearer SECRET"

    def refusal(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> str | None:
        return _refusal(delivery, "bearer", secret)

    def sign(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> dict[str, str]:
        return {_AUTHORIZATION: f"Bearer {secret}"}


class SharedToken(_Plain):
    """A token in a header that the definition names. The secret is the token."""

    at_sender = "the address, and the secret as the value of the header that the source names"
    settings = frozenset({"header"})

    def fault(self, source: Source) -> str | None:
        return None if source.header else "header: name the header that has the token"

    def refusal(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> str | None:
        token = delivery.headers.get(source.header.lower())
        return MISSING if not token else None if same(secret, token) else WRONG

    def sign(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> dict[str, str]:
        return {source.header.lower(): secret}


class Open(_Plain):
    """No proof at all: any caller that knows the address may send events."""

    at_sender = "the address"
    needs_secret = False

    def refusal(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> str | None:
        return None

    def sign(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> dict[str, str]:
        return {}


def _refusal(delivery: Delivery, scheme: str, wanted: str) -> str | None:
    given, _, credential = delivery.headers.get(_AUTHORIZATION, "").partition(" ")
    if given.lower() != scheme or not credential:
        return MISSING
    return None if same(wanted, credential) else WRONG


def basic(key: str) -> dict[str, str]:
    """Return the header that proves a write key."""
    return {"authorization": f"Basic {base64.b64encode(f'{key}:'.encode()).decode()}"}


class WriteKey(Kind):
    """A write key, as the user of Basic authentication or in the body. The secret is the key."""

    at_sender = "the server's address as host of the SDK, and the secret as write key"
    format = "segment"
    proves_headers = True

    def refusal(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> str | None:
        key = write_key(delivery.headers, delivery.body)
        return MISSING if key is None else None if same(secret, key) else WRONG

    def sign(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> dict[str, str]:
        return basic(secret)

    def sample(self, event_id: str, now_us: int) -> Sample:
        call = {"type": "track", "event": "alluvia.test", "messageId": event_id, "userId": "test"}
        return Sample(orjson.dumps(call), {"content-type": "application/json"})
