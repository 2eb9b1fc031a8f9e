"""JSON: one object, an array, or NDJSON. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alluvia.events.formats.registry import MESSAGE_PACK, never_read
from alluvia.events.formats.values import BodyFormat, SentBody
from alluvia.events.ingest.envelope import refused, split_json

if TYPE_CHECKING:
    from alluvia.events.ingest.values import Limits, Split


def read(sent: SentBody, limits: Limits) -> Split:
    """Take the events of a body. One that begins as JSON does is JSON, whatever its type says."""
    fault = "" if sent.body.lstrip()[:1] in (b"", b"{", b"[") else _fault(sent.media_type)
    if fault:
        return refused(sent.body, fault, unsupported=True)
    return split_json(sent.body, sent.headers.get("content-type"), limits)


def _fault(media_type: str) -> str:
    """Return why a body that says to be of a type is never read; "" for other types."""
    if not never_read(media_type):
        return ""
    if media_type in MESSAGE_PACK:
        return "MessagePack is not supported: send JSON"
    return f"{media_type:.100} is not supported here: send events as JSON, and files to POST /v1/upload/{{table}}"


FORMAT = BodyFormat(read)
