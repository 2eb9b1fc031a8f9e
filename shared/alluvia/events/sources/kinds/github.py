"""GitHub's webhooks. Pure.

Source: "Validating webhook deliveries" and "Webhook events and payloads" of GitHub's documentation. GitHub signs the
body, and no time, nor what is in headers: the delivery's id and the event's name. So the body's bytes are the identity,
which a redelivery repeats, and the name is what the event's fields tell.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from alluvia.events.ingest.values import Given
from alluvia.events.sources.kinds.base import Sample, SignedBody
from alluvia.events.sources.kinds.forms import json_or_form, unwrapped
from alluvia.events.sources.kinds.github_names import name_of
from alluvia.events.sources.signatures import mac, to_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alluvia.events.sources.delivery import Delivery


class GitHub(SignedBody):
    """`X-Hub-Signature-256` over the body. A form has the event in its field `payload`."""

    header = "x-hub-signature-256"

    def signature(self, secret: str, body: bytes) -> str:
        return f"sha256={mac(to_bytes(secret), body).hex()}"

    def sample(self, event_id: str, now_us: int) -> Sample:
        body = orjson.dumps({"zen": "Keep it logically awesome.", "hook_id": 1, "note": event_id})
        return Sample(
            body, {"content-type": "application/json", "x-github-delivery": event_id, "x-github-event": "ping"}
        )

    def body_format(self, body: bytes) -> str:
        return json_or_form(body)

    def event(self, value: dict[str, object]) -> dict[str, object]:
        return unwrapped(value)

    def given(self, delivery: Delivery, value: Mapping[str, object]) -> Given:
        return Given(event=name_of(value))
