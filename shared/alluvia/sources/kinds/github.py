"""GitHub's webhooks. Pure.

Source: "Validating webhook deliveries" and "Webhook events and payloads" of GitHub's documentation. GitHub signs the
body, and neither a time nor the delivery's id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from alluvia.ingest.values import Given
from alluvia.sources.kinds.base import Sample, SignedBody
from alluvia.sources.kinds.forms import unwrapped
from alluvia.sources.signatures import mac, to_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alluvia.sources.delivery import Delivery


class GitHub(SignedBody):
    """`X-Hub-Signature-256` over the body. A form has the event in its field `payload`."""

    header = "x-hub-signature-256"
    headers = frozenset({"x-github-delivery", "x-github-event"})

    def signature(self, secret: str, body: bytes) -> str:
        return f"sha256={mac(to_bytes(secret), body).hex()}"

    def sample(self, event_id: str, now_us: int) -> Sample:
        body = orjson.dumps({"zen": "Keep it logically awesome.", "hook_id": 1})
        return Sample(
            body, {"content-type": "application/json", "x-github-delivery": event_id, "x-github-event": "ping"}
        )

    def event(self, value: dict[str, object]) -> dict[str, object]:
        return unwrapped(value)

    def given(self, delivery: Delivery, value: Mapping[str, object]) -> Given:
        return Given(delivery.header("x-github-delivery"), None, delivery.header("x-github-event"))
