"""The SDKs of Segment and RudderStack: each request has the source's write key. Pure."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import orjson

from alluvia.events.formats.segment_format import write_key
from alluvia.events.sources.kinds.base import Kind, Sample
from alluvia.events.sources.signatures import MISSING, WRONG, same

if TYPE_CHECKING:
    from alluvia.events.sources.definition import Source
    from alluvia.events.sources.delivery import Delivery


def basic(key: str) -> dict[str, str]:
    """Return the header that proves a write key."""
    return {"authorization": f"Basic {base64.b64encode(f'{key}:'.encode()).decode()}"}


class WriteKey(Kind):
    """A write key, as the user of Basic authentication or in the body. The secret is the key."""

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
