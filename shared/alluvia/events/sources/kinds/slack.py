"""Slack's Events API, interactions and commands. Pure.

Source: "Verifying requests from Slack", "url_verification event" and "Slash commands" of Slack's documentation.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from alluvia.events.ingest.values import Given
from alluvia.events.sources.kinds.base import Kind, Sample, Thanks, moment_of, text_of
from alluvia.events.sources.kinds.forms import json_or_form, unwrapped
from alluvia.events.sources.signatures import MISSING, STALE, WRONG, is_fresh, mac, same, to_bytes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alluvia.events.sources.definition import Source
    from alluvia.events.sources.delivery import Delivery

_SIGNATURE, _TIMESTAMP = "x-slack-signature", "x-slack-request-timestamp"


class Slack(Kind):
    """`X-Slack-Signature` over the timestamp and the body. The answer is empty: Slack would show it to the user."""

    settings = frozenset({"tolerance_seconds"})
    identifies_requests = False
    thanks = Thanks("text/plain", "")

    def refusal(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> str | None:
        signature, timestamp = delivery.headers.get(_SIGNATURE), delivery.headers.get(_TIMESTAMP)
        if not (signature and timestamp):
            return MISSING
        if not same(_signature(secret, timestamp, delivery.body), signature):
            return WRONG
        return None if is_fresh(timestamp, now_us, source.tolerance_seconds) else STALE

    def sign(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> dict[str, str]:
        timestamp = str(now_us // 1_000_000)
        return {_TIMESTAMP: timestamp, _SIGNATURE: _signature(secret, timestamp, delivery.body)}

    def sample(self, event_id: str, now_us: int) -> Sample:
        event = {
            "type": "event_callback",
            "event_id": event_id,
            "event_time": now_us // 1_000_000,
            "event": {"type": "alluvia_test"},
        }
        return Sample(orjson.dumps(event), {"content-type": "application/json"})

    def body_format(self, body: bytes) -> str:
        return json_or_form(body)

    def event(self, value: dict[str, object]) -> dict[str, object]:
        return unwrapped(value)

    def given(self, delivery: Delivery, value: Mapping[str, object]) -> Given:
        """Name an event by its type, an interaction by its own, a command by itself. Those two have trigger ids."""
        inner = value.get("event")
        name = text_of(inner.get("type")) if isinstance(inner, dict) else None
        return Given(
            text_of(value.get("event_id")) or text_of(value.get("trigger_id")),
            moment_of(value.get("event_time")),
            name or text_of(value.get("type")) or text_of(value.get("command")),
        )

    def challenge(self, value: Mapping[str, object]) -> str | None:
        """Return the challenge with which Slack checks a new address."""
        return text_of(value.get("challenge")) if value.get("type") == "url_verification" else None


def _signature(secret: str, timestamp: str, body: bytes) -> str:
    return f"v0={mac(to_bytes(secret), b'v0:', to_bytes(timestamp), b':', body).hex()}"
