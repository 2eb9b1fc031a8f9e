"""JSON: one object, an array, or NDJSON; also as Vector and Fluent Bit send it. Pure.

Events of Vector's http sink have no id of their own. A batch that was not acknowledged comes again byte for byte, so
its bytes identify it if each of its events has a time of its own.

Fluent Bit's http output sends json, json_lines, or json_stream (objects without line ends). The time of a record is its
`date`: seconds, or text. Retries are known by their bytes, as those of Vector are.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from alluvia.events.formats.body_format import MESSAGE_PACK, BodyFormat, SentBody, never_read
from alluvia.events.formats.events import body_key, lines_key
from alluvia.events.ingest.envelope import refused, split_json, split_stream_json
from alluvia.events.ingest.event_time import unread_given
from alluvia.events.ingest.values import Given, RawEvent
from alluvia.json_values.time_texts import instant

if TYPE_CHECKING:
    from alluvia.events.ingest.values import Limits, Split


def read(sent: SentBody, limits: Limits) -> Split:
    """Take the events of a body. One that begins as JSON does is JSON, whatever its type says, unless it is Kafka's."""
    if sent.media_type.startswith(_KAFKA):
        return refused(sent.body, _OF_KAFKA, unsupported=True)
    fault = "" if sent.body.lstrip()[:1] in (b"", b"{", b"[") else _fault(sent.media_type)
    if fault:
        return refused(sent.body, fault, unsupported=True)
    return split_json(sent.body, sent.headers.get("content-type"), limits)


_KAFKA = "application/vnd.kafka."
_OF_KAFKA = (
    "records of Kafka's REST proxy are not supported: send the value of each record as an event, in a JSON array, with "
    "Content-Type: application/json"
)
"""An envelope with `records` would be stored as one event."""


def _fault(media_type: str) -> str:
    """Return why a body that says to be of a type is never read; "" for other types."""
    if not never_read(media_type):
        return ""
    if media_type in MESSAGE_PACK:
        return "MessagePack is not supported: send JSON"
    return f"{media_type:.100} is not supported here: send events as JSON, and files to POST /v1/upload/{{table}}"


FORMAT = BodyFormat(read, lines_key)


VECTOR = BodyFormat(read, body_key)


_DATE = "date"


def read_records(sent: SentBody, limits: Limits) -> Split:
    """Take the records of a request."""
    if sent.media_type in MESSAGE_PACK:
        reason = "MessagePack is not supported: set `Format json_lines` in the output"
        return refused(sent.body, reason, unsupported=True)
    split = read(sent, limits)
    if not split.events and len(split.rejects) == 1 and sent.body.lstrip().startswith(b"{") and not split.too_large:
        split = split_stream_json(sent.body, limits)
    return replace(split, events=[_dated(event) for event in split.events])


def _dated(event: RawEvent) -> RawEvent:
    sent = event.value.get(_DATE)
    moment = instant(sent)
    if moment is None:
        return event if sent is None else event._replace(given=unread_given(_DATE, sent))
    rest = {name: item for name, item in event.value.items() if name != _DATE or not moment[1]}
    return event._replace(value=rest, raw=None, given=Given(ts_us=moment[0]))


FLUENTBIT = BodyFormat(read_records, body_key)
