"""How a body was read, kept with what could not be read of it, and how that is read again. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alluvia.events.formats.registry import by_name
from alluvia.events.formats.values import SentBody
from alluvia.events.ingest.envelope import inflated
from alluvia.events.ingest.values import BodyReading, Limits, Split

if TYPE_CHECKING:
    from collections.abc import Mapping

_KEY = "idempotency-key"
_BINARY = "ce-specversion"
_DECLARING = ("content-type", _BINARY)
_OF_EVENTS = (_KEY, "x-amz-firehose-request-id", "x-amz-firehose-common-attributes")
_PART_TYPES = {"cloudevents": "application/cloudevents+json", "otlp": "application/json"}
"""What a part of a body is by itself, where its format wants to know."""
NOTHING = Split([], [])


def reading_of(name: str, sent: SentBody, found: Split) -> BodyReading:
    """Return how a request was read by the format of that name, for the rejects that it may bring."""
    rejects = found.rejects
    whole = len(rejects) == 1 and not found.events and rejects[0].raw.strip() == sent.body.strip()
    kept = (*_DECLARING, *_OF_EVENTS) if whole else _DECLARING
    headers = {each: _text(sent.headers[each]) for each in kept if each in sent.headers}
    return BodyReading(name, several=len(found.events) + len(rejects) > 1, whole=whole, headers=headers)


def read_again(
    reading: BodyReading, name: str, raw: bytes, arrival_us: int, options: Mapping[str, str]
) -> tuple[Split, str | None]:
    """Read what could not be read, by the format of that name. Returns its events, and the key of its request.

    A part of a body means something only to the format that it was cut off by. The data of a CloudEvent in binary mode
    without its headers means nothing, nor does a row of CSV without those of its table.
    """
    if _BINARY in reading.headers or (not reading.whole and (name != reading.format or name == "csv")):
        return NOTHING, None
    form, limits = by_name(name), Limits()
    if not reading.whole:
        headers = {"content-type": _PART_TYPES[name]} if name in _PART_TYPES else {}
        return form.read(SentBody(headers, raw, arrival_us, options=options), limits), None
    text = inflated(raw, None, limits)
    if isinstance(text, Split):
        return NOTHING, None
    headers = {each: value for each, value in reading.headers.items() if value is not None}
    sent = SentBody(headers, text, arrival_us, options=options)
    found = form.read(sent, limits)
    return found, headers.get(_KEY) or form.key(sent, found)


def _text(header: str) -> str:
    return header.encode("utf-8", "replace").decode()
