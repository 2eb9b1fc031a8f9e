"""Senders that put an HMAC of the body into a header, each in its own way. Pure."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING

import orjson

from alluvia.events.sources.kinds.base import Kind, Sample
from alluvia.events.sources.signatures import MISSING, STALE, WRONG, is_fresh, mac, same, to_bytes

if TYPE_CHECKING:
    from alluvia.events.sources.definition import Source
    from alluvia.events.sources.delivery import Delivery

ALGORITHMS = ("sha256", "sha1", "sha512")
ENCODINGS = ("hex", "base64")
BODY, TIMESTAMP = "{body}", "{timestamp}"
_PLACEHOLDER = re.compile(r"\{[A-Za-z_][A-Za-z0-9_.-]*\}")


class HmacHeader(Kind):
    """A header with a prefix and the HMAC of the body, or of a text with a timestamp from another header."""

    settings = frozenset(
        {"header", "algorithm", "encoding", "prefix", "timestamp_header", "signed", "tolerance_seconds"}
    )

    def fault(self, source: Source) -> str | None:
        if not source.header:
            return "header: name the header that has the signature"
        unknown = [name for name in _PLACEHOLDER.findall(source.signed) if name not in (BODY, TIMESTAMP)]
        if unknown:
            return f"signed: {unknown[0]} stands for nothing: there are {TIMESTAMP} and {BODY}"
        wanted = f"{TIMESTAMP} and {BODY}" if source.timestamp_header else f"{BODY} and no {TIMESTAMP}"
        template = _template(source)
        if template.count(BODY) != 1 or template.count(TIMESTAMP) != (1 if source.timestamp_header else 0):
            return f"signed: {template!r:.100} must hold {wanted}, once"
        return None

    def refusal(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> str | None:
        signature = delivery.headers.get(source.header.lower())
        timestamp = delivery.headers.get(source.timestamp_header.lower(), "") if source.timestamp_header else ""
        if not signature or (source.timestamp_header and not timestamp):
            return MISSING
        if not same(_signature(source, secret, timestamp, delivery.body), signature):
            return WRONG
        if source.timestamp_header and not is_fresh(timestamp, now_us, source.tolerance_seconds):
            return STALE
        return None

    def sign(self, source: Source, delivery: Delivery, secret: str, now_us: int) -> dict[str, str]:
        timestamp = str(now_us // 1_000_000)
        headers = {source.header.lower(): _signature(source, secret, timestamp, delivery.body)}
        return headers | ({source.timestamp_header.lower(): timestamp} if source.timestamp_header else {})

    def sample(self, event_id: str, now_us: int) -> Sample:
        return plain_sample(event_id)


def plain_sample(event_id: str) -> Sample:
    """Return the sample of kinds that say nothing of what is in the body."""
    event = {"event_id": event_id, "event": "alluvia.test", "note": "a test of this source"}
    return Sample(orjson.dumps(event), {"content-type": "application/json"})


def _template(source: Source) -> str:
    return source.signed or (f"{TIMESTAMP}.{BODY}" if source.timestamp_header else BODY)


def _signature(source: Source, secret: str, timestamp: str, body: bytes) -> str:
    before, _, after = _template(source).partition(BODY)
    parts = [to_bytes(text.replace(TIMESTAMP, timestamp)) for text in (before, after)]
    made = mac(to_bytes(secret), parts[0], body, parts[1], algorithm=source.algorithm)
    return f"{source.prefix}{made.hex() if source.encoding == 'hex' else base64.b64encode(made).decode()}"
