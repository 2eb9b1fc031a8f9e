"""CloudEvents over HTTP: structured, batched and binary (CloudEvents 1.0.2, its HTTP binding and JSON format). Pure.

An event in binary mode is kept as its structured form, so all three modes make the same rows.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING
from urllib.parse import unquote_to_bytes

from alluvia.errors import Invalid
from alluvia.events.formats.body_format import BodyFormat, SentBody
from alluvia.events.formats.events import Events, parsed_list
from alluvia.events.ingest.envelope import refused
from alluvia.events.ingest.values import Given
from alluvia.json_values.jsontext import decode, encode
from alluvia.json_values.time_texts import instant

if TYPE_CHECKING:
    from alluvia.events.ingest.values import Limits, Split

_REQUIRED = ("id", "source", "specversion", "type")
_OF_AN_ATTEMPT = ("traceparent", "tracestate")
"""The extensions of distributed tracing, which describe the request that an event came with."""
_PREFIX = "ce-"
_CHARSET = re.compile(r";\s*charset\s*=\s*\"?([A-Za-z0-9._-]+)", re.ASCII)
_TEXTS = ("application/xml", "application/javascript", "application/x-www-form-urlencoded")
_QUOTED = re.compile(r"\\(.)", re.DOTALL)


def read(sent: SentBody, limits: Limits) -> Split:
    """Take the events of a request, in the mode that its headers declare."""
    events = Events(sent, limits)
    if f"{_PREFIX}specversion" in sent.headers:
        _binary(events, sent)
        return events.split()
    if not sent.media_type.endswith("json"):
        reason = f"Content-Type: {sent.media_type!r:.100} is not supported: send CloudEvents as JSON"
        return refused(sent.body, reason, unsupported=True)
    value = parsed_list(sent.body, "", limits)
    if isinstance(value, Invalid):
        return refused(sent.body, str(value))
    for event in events.objects(value if isinstance(value, list) else [value]):
        _add(events, event)
    return events.split()


def _add(events: Events, event: dict[str, object]) -> None:
    missing = [name for name in _REQUIRED if not (isinstance(event.get(name), str) and event[name])]
    if missing:
        events.reject(f"{missing[0]}: a CloudEvent needs this attribute, a non-empty string", encode(event))
        return
    moment = instant(event.get("time"))
    given_us = moment[0] if moment is not None and ("ts" in event or "timestamp" in event) else None
    unstable = tuple(name for name in _OF_AN_ATTEMPT if name in event)
    events.add(event, Given(ts_us=given_us, event=str(event["type"]), unstable=unstable))


def _binary(events: Events, sent: SentBody) -> None:
    event: dict[str, object] = {}
    for name, value in sent.headers.items():
        if name.startswith(_PREFIX) and name not in ("ce-data", "ce-data_base64"):
            event[name.removeprefix(_PREFIX)] = _header_text(value)
    content_type = sent.headers.get("content-type")
    if content_type:
        event["datacontenttype"] = content_type
    if sent.body:
        try:
            event |= _data(sent, str(event.get("datacontenttype", "")))
        except Invalid as error:
            events.reject(f"data: {error}", encode(event | _base64(sent.body)))
            return
    _add(events, event)


def _data(sent: SentBody, content_type: str) -> dict[str, object]:
    """Return the member that holds the data in the JSON format: JSON as such, text as a string, else base64."""
    kind = sent.media_type or content_type.partition(";")[0].strip().lower()
    if kind.endswith(("/json", "+json")):
        return {"data": decode(sent.body)}
    if kind.startswith("text/") or kind.endswith("+xml") or kind in _TEXTS:
        charset = _CHARSET.search(content_type)
        try:
            return {"data": sent.body.decode(charset[1] if charset else "utf-8")}
        except (UnicodeError, LookupError):
            return _base64(sent.body)
    return _base64(sent.body)


def _base64(body: bytes) -> dict[str, object]:
    return {"data_base64": base64.b64encode(body).decode()}


def _header_text(value: str) -> str:
    """Decode a header's value as section 3.1.3.2 of the HTTP binding says."""
    if len(value) > 1 and value.startswith('"') and value.endswith('"'):
        value = _QUOTED.sub(r"\1", value[1:-1])
    return unquote_to_bytes(value).decode("utf-8", "replace") if "%" in value else value


FORMAT = BodyFormat(read, takes_empty=True)
