"""JSON: one object, an array, or NDJSON. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alluvia.formats.values import BodyFormat, SentBody
from alluvia.ingest.envelope import split_json

if TYPE_CHECKING:
    from alluvia.ingest.values import Limits, Split


def read(sent: SentBody, limits: Limits) -> Split:
    """Take the events of a body."""
    return split_json(sent.body, sent.headers.get("content-type"), limits)


FORMAT = BodyFormat(read)
