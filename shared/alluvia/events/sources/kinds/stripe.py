"""Stripe's webhooks. Pure.

Source: "Verify webhook signatures manually" and "The Event object" of Stripe's documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from alluvia.events.ingest.values import Given
from alluvia.events.sources.kinds.base import Kind, Sample, moment_of, text_of
from alluvia.events.sources.signatures import MISSING, STALE, WRONG, any_same, is_fresh, mac, to_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alluvia.events.sources.definition import Source
    from alluvia.events.sources.delivery import Delivery

_SIGNATURE = "stripe-signature"
_UNSTABLE = ("pending_webhooks",)
"""How many deliveries are left to make: each attempt has another number."""


class Stripe(Kind):
    """`Stripe-Signature: t=…,v1=…` over the timestamp and the body."""

    settings = frozenset({"tolerance_seconds"})
    identifies_requests = False

    def refusal(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> str | None:
        parts = [part.partition("=")[::2] for part in delivery.headers.get(_SIGNATURE, "").split(",")]
        timestamps = [value for name, value in parts if name == "t"]
        signatures = [value for name, value in parts if name == "v1"]
        if len(timestamps) != 1 or not signatures:
            return MISSING
        [timestamp] = timestamps
        if not any_same([_signature(secret, timestamp, delivery.body)], signatures):
            return WRONG
        return None if is_fresh(timestamp, now_us, source.tolerance_seconds) else STALE

    def sign(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> dict[str, str]:
        timestamp = str(now_us // 1_000_000)
        return {_SIGNATURE: f"t={timestamp},v1={_signature(secret, timestamp, delivery.body)}"}

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
        return Given(
            text_of(value.get("id")), moment_of(value.get("created")), text_of(value.get("type")), unstable=_UNSTABLE
        )


def _signature(secret: str, timestamp: str, body: bytes) -> str:
    return mac(to_bytes(secret), to_bytes(timestamp), b".", body).hex()
