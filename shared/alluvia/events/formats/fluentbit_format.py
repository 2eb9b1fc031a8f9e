"""Fluent Bit's http output, in its formats json, json_lines and json_stream (objects without line ends). Pure.

The time of a record is its `date`: seconds, or text. Retries are known by their bytes, as those of Vector are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from alluvia.events.formats import json_format
from alluvia.events.formats.events import body_key
from alluvia.events.formats.registry import MESSAGE_PACK
from alluvia.events.formats.values import BodyFormat, SentBody
from alluvia.events.ingest.envelope import refused, split_stream_json
from alluvia.events.ingest.timestamps import instant
from alluvia.events.ingest.values import Given, RawEvent

if TYPE_CHECKING:
    from alluvia.events.ingest.values import Limits, Split

_DATE = "date"


def read(sent: SentBody, limits: Limits) -> Split:
    """Take the records of a request."""
    if sent.media_type in MESSAGE_PACK:
        reason = "MessagePack is not supported: set `Format json_lines` in the output"
        return refused(sent.body, reason, unsupported=True)
    found = json_format.read(sent, limits)
    if not found.events and len(found.rejects) == 1 and sent.body.lstrip().startswith(b"{") and not found.too_large:
        found = split_stream_json(sent.body, limits)
    return replace(found, events=[_dated(event) for event in found.events])


def _dated(event: RawEvent) -> RawEvent:
    moment = instant(event.value.get(_DATE))
    if moment is None:
        return event
    rest = {name: item for name, item in event.value.items() if name != _DATE or not moment[1]}
    return event._replace(value=rest, raw=None, given=Given(ts_us=moment[0]))


FORMAT = BodyFormat(read, body_key)
