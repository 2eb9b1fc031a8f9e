"""GitHub's webhooks. Pure.

Source: "Validating webhook deliveries" and "Webhook events and payloads" of GitHub's documentation. GitHub signs the
body, and neither a time nor the delivery's id.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from alluvia.ingest.values import Given
from alluvia.sources.kinds.base import Kind, Sample
from alluvia.sources.kinds.forms import unwrapped
from alluvia.sources.signatures import MISSING, WRONG, mac, same, to_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alluvia.sources.definition import Source
    from alluvia.sources.delivery import Delivery

_SIGNATURE = "x-hub-signature-256"


class GitHub(Kind):
    """`X-Hub-Signature-256` over the body. A form has the event in its field `payload`."""

    def refusal(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> str | None:
        signature = delivery.headers.get(_SIGNATURE)
        if not signature:
            return MISSING
        return None if same(_signature(secret, delivery.body), signature) else WRONG

    def sign(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> dict[str, str]:
        return {_SIGNATURE: _signature(secret, delivery.body)}

    def sample(self, event_id: str, now_us: int) -> Sample:
        body = orjson.dumps({"zen": "Keep it logically awesome.", "hook_id": 1})
        return Sample(
            body, {"content-type": "application/json", "x-github-delivery": event_id, "x-github-event": "ping"}
        )

    def event(self, value: dict[str, object]) -> dict[str, object]:
        return unwrapped(value)

    def given(self, delivery: Delivery, value: Mapping[str, object]) -> Given:
        return Given(delivery.header("x-github-delivery"), None, delivery.header("x-github-event"))


def _signature(secret: str, body: bytes) -> str:
    return f"sha256={mac(to_bytes(secret), body).hex()}"
