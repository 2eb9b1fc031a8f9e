"""Shopify's webhooks. Pure.

Source: "Deliver webhooks through HTTPS" and "Headers" of Shopify's documentation. Shopify signs the body and no time.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import orjson

from alluvia.ingest.values import Given
from alluvia.sources.kinds.base import Kind, Sample, moment_of
from alluvia.sources.signatures import MISSING, WRONG, mac, same, to_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alluvia.sources.definition import Source
    from alluvia.sources.delivery import Delivery

_SIGNATURE = "x-shopify-hmac-sha256"


class Shopify(Kind):
    """`X-Shopify-Hmac-Sha256` over the body."""

    def refusal(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> str | None:
        signature = delivery.headers.get(_SIGNATURE)
        if not signature:
            return MISSING
        return None if same(_signature(secret, delivery.body), signature) else WRONG

    def sign(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> dict[str, str]:
        return {_SIGNATURE: _signature(secret, delivery.body)}

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


def _signature(secret: str, body: bytes) -> str:
    return base64.b64encode(mac(to_bytes(secret), body)).decode()
