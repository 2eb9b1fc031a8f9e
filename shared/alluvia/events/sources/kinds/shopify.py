"""Shopify's webhooks. Pure.

Source: "Deliver webhooks through HTTPS" and "Headers" of Shopify's documentation. Shopify signs the body, and no time,
nor what is in headers: the id, the topic and the moment. So the body's bytes are the identity, which attempts repeat.
"""

from __future__ import annotations

import base64

import orjson

from alluvia.events.sources.kinds.base import Sample, SignedBody
from alluvia.events.sources.signatures import mac, to_bytes


class Shopify(SignedBody):
    """`X-Shopify-Hmac-Sha256` over the body."""

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
