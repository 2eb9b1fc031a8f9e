"""Shopify's webhooks. Pure.

Source: "Deliver webhooks through HTTPS" and "Headers" of Shopify's documentation. Shopify signs the body and no time.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import orjson

from alluvia.ingest.values import Given
from alluvia.sources.kinds.base import Sample, SignedBody, moment_of
from alluvia.sources.signatures import mac, to_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alluvia.sources.delivery import Delivery


class Shopify(SignedBody):
    """`X-Shopify-Hmac-Sha256` over the body."""

    header = "x-shopify-hmac-sha256"
    headers = frozenset({"x-shopify-webhook-id", "x-shopify-triggered-at", "x-shopify-topic"})

    def signature(self, secret: str, body: bytes) -> str:
        return base64.b64encode(mac(to_bytes(secret), body)).decode()

    def sample(self, event_id: str, now_us: int) -> Sample:
        headers = {
            "content-type": "application/json",
            "x-shopify-topic": "alluvia/test",
            "x-shopify-webhook-id": event_id,
        }
        return Sample(orjson.dumps({"note": "a test of this source"}), headers)

    def given(self, delivery: Delivery, value: Mapping[str, object]) -> Given:
        return Given(
            delivery.header("x-shopify-webhook-id"),
            moment_of(delivery.header("x-shopify-triggered-at")),
            delivery.header("x-shopify-topic"),
        )
