"""Standard Webhooks, as Svix and many others sign them. Pure.

Source: https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md. Each attempt has a
timestamp of its own, so the time in the body, where the specification puts that of the event, comes first.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

import orjson

from alluvia.errors import Invalid
from alluvia.events.ingest.values import Given
from alluvia.events.sources.kinds.base import Kind, Sample, moment_of, text_of
from alluvia.events.sources.signatures import MISSING, STALE, WRONG, any_same, is_fresh, mac, to_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alluvia.events.sources.definition import Source
    from alluvia.events.sources.delivery import Delivery

_PREFIXES = ("webhook", "svix")
_SECRET_PREFIX = "whsec_"  # noqa: S105 - the same for all
_NO_KEY = "the secret must be base64, as in whsec_…: copy it from the sender again"


class StandardWebhooks(Kind):
    """`webhook-id`, `webhook-timestamp` and `webhook-signature`, or the same with `svix-`."""

    headers = frozenset(f"{prefix}-{name}" for prefix in _PREFIXES for name in ("id", "timestamp"))
    settings = frozenset({"tolerance_seconds"})

    def secret_fault(self, secret: str) -> str | None:
        return None if _key(secret) else _NO_KEY

    def refusal(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> str | None:
        webhook_id, timestamp, signature = _headers(delivery)
        if not (webhook_id and timestamp and signature):
            return MISSING
        if not any_same([_signature(secret, webhook_id, timestamp, delivery.body)], signature.split(" ")):
            return WRONG
        return None if is_fresh(timestamp, now_us, source.tolerance_seconds) else STALE

    def sign(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> dict[str, str]:
        webhook_id, timestamp = delivery.headers["webhook-id"], str(now_us // 1_000_000)
        return {
            "webhook-timestamp": timestamp,
            "webhook-signature": _signature(secret, webhook_id, timestamp, delivery.body),
        }

    def sample(self, event_id: str, now_us: int) -> Sample:
        body = orjson.dumps({"type": "alluvia.test", "data": {"note": "a test of this source"}})
        return Sample(body, {"content-type": "application/json", "webhook-id": event_id})

    def given(self, delivery: Delivery, value: Mapping[str, object]) -> Given:
        _, timestamp, _ = _headers(delivery)
        moment_us = moment_of(value.get("timestamp"))
        name = next((prefix for prefix in _PREFIXES if delivery.header(f"{prefix}-id")), _PREFIXES[0])
        return Given(
            delivery.header(f"{name}-id"),
            moment_of(timestamp) if moment_us is None else moment_us,
            text_of(value.get("type")),
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


def _signature(secret: str, webhook_id: str, timestamp: str, body: bytes) -> str:
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
