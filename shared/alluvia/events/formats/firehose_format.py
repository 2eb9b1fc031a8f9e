"""Amazon Data Firehose's HTTP endpoint delivery: records in base64, each of them JSON or lines of JSON. Pure.

Firehose repeats a request under the same id until it is answered with 200, so an event without an id of its own has
that of the request and its position. The stream's attributes are fields of each event. See
"Understand HTTP endpoint delivery request and response specifications" in the developer guide.
"""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import TYPE_CHECKING

from alluvia.errors import Invalid
from alluvia.events.formats.body_format import BodyFormat, ClientReply, RequestOutcome, SentBody, json_reply
from alluvia.events.formats.events import Events, parsed, parsed_list
from alluvia.events.ingest.compression import TooLarge, inflate
from alluvia.events.ingest.envelope import refused, split_json
from alluvia.events.ingest.values import Given, RawEvent
from alluvia.json_values.jsontext import encode

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alluvia.events.ingest.values import Limits, Split

_REQUEST_ID = "x-amz-firehose-request-id"
_COMMON_HEADER = "x-amz-firehose-common-attributes"
_COMMON = "commonAttributes"
_REASON_CHARS = 1000
_ID_CHARS = 200
_LINES = "application/x-ndjson"


def read(sent: SentBody, limits: Limits) -> Split:
    """Take the events of all records of a request."""
    value = parsed_list(sent.body, "records", limits)
    if isinstance(value, Invalid):
        return refused(sent.body, str(value))
    records = value.get("records") if isinstance(value, dict) else None
    if not isinstance(records, list):
        return refused(sent.body, "records: expected an array, as Firehose sends it")
    events, common = Events(sent, limits), _common(sent)
    left_bytes = limits.inflated_bytes
    for record in events.objects(records):
        try:
            text = inflate(_data(record), None, left_bytes)
        except TooLarge as error:
            return refused(sent.body, str(error), too_large=True)
        except Invalid as error:
            events.reject(str(error), encode(record))
            continue
        left_bytes -= len(text)
        split = split_json(text, _LINES, limits)
        if common:
            split = replace(split, events=[_with(common, event) for event in split.events])
        events.extend(split, len(encode(common)) * len(split.events) if common else 0)
    return events.split()


def key(sent: SentBody, _found: Split) -> str | None:
    """Return the request's id, which stays the same when Firehose sends it again."""
    request_id = _request_id(sent)
    return f"firehose-{request_id}" if request_id else None


def reply(sent: SentBody, outcome: RequestOutcome) -> ClientReply:
    """Answer as Firehose requires: only 200 means that the records need not come again.

    Records that are all rejected, and kept as rejects, need not come again either.
    """
    body: dict[str, object] = {"requestId": _request_id(sent), "timestamp": sent.arrival_us // 1000}
    if outcome.status < 300 or (outcome.status == 400 and outcome.rejected and "error" not in outcome.answer):
        return json_reply(200, body)
    return json_reply(outcome.status, body | {"errorMessage": outcome.reason[:_REASON_CHARS]})


def _request_id(sent: SentBody) -> str:
    return sent.headers.get(_REQUEST_ID, "")[:_ID_CHARS]


def _common(sent: SentBody) -> dict[str, object]:
    """Return the attributes that the delivery stream gives all its events, {} if there are none to be read."""
    value = parsed(sent.headers.get(_COMMON_HEADER, "").encode("utf-8", "replace"))
    common = value.get(_COMMON) if isinstance(value, dict) else None
    return common if isinstance(common, dict) else {}


def _with(common: dict[str, object], event: RawEvent) -> RawEvent:
    """Return an event with the attributes, which are not its content: a stream may get others between two attempts.

    They stay in a field of their own, since one called `id` or `source` must not identify all events of a stream.
    """
    if _COMMON in event.value:
        return event
    return event._replace(value={**event.value, _COMMON: common}, raw=None, given=Given(unstable=(_COMMON,)))


def _data(record: Mapping[str, object]) -> bytes:
    data = record.get("data")
    if not isinstance(data, str):
        raise Invalid("data: a record needs this field, in base64")
    try:
        return base64.b64decode(data, validate=True)
    except ValueError:
        raise Invalid("data: not valid base64") from None


FORMAT = BodyFormat(read, key, reply)
