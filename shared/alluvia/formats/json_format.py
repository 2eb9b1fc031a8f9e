"""JSON: one object, an array, or NDJSON. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alluvia.formats.values import BodyFormat, SentBody
from alluvia.ingest.envelope import refused, split_json

if TYPE_CHECKING:
    from alluvia.ingest.values import Limits, Split


MESSAGE_PACK = ("application/msgpack", "application/x-msgpack", "application/vnd.msgpack")


def read(sent: SentBody, limits: Limits) -> Split:
    """Take the events of a body. One that begins as JSON does is JSON, whatever its type says."""
    if sent.media_type in MESSAGE_PACK and sent.body.lstrip()[:1] not in (b"", b"{", b"["):
        return refused(sent.body, "MessagePack is not supported: send JSON", unsupported=True)
    return split_json(sent.body, sent.headers.get("content-type"), limits)


FORMAT = BodyFormat(read)
