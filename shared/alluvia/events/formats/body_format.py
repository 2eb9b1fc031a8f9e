"""Formats of request bodies: what a format is, which one a request has, and how a body is read again. Pure.

Each format is loaded when it is first used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from importlib import import_module
from typing import NamedTuple

import orjson

from alluvia.errors import Invalid
from alluvia.events.ingest.envelope import NDJSON_TYPES, inflated, media_type
from alluvia.events.ingest.values import BodyReading, Limits, Split
from alluvia.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SentBody:
    """A request as formats read it: `headers` by their names in lower case, `body` after decompression.

    options: what the source declares besides the format's name, such as the delimiter of CSV.
    """

    headers: Mapping[str, str]
    body: bytes
    arrival_us: int
    path: str = ""
    options: Mapping[str, str] = field(default_factory=dict)

    @property
    def media_type(self) -> str:
        """Return the type that Content-Type names, without its parameters."""
        return media_type(self.headers.get("content-type"))


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """The outcome of a request: the status and the JSON that the function answers by itself."""

    status: int
    answer: Mapping[str, object]

    @property
    def rejected(self) -> int:
        """Return how many events became rejects."""
        count = self.answer.get("rejected")
        return count if isinstance(count, int) else 0

    @property
    def reason(self) -> str:
        """Return what went wrong, of the request and of its first reject; "" if nothing did."""
        error, errors = self.answer.get("error"), self.answer.get("errors")
        first = errors[0] if isinstance(errors, list) and errors else {}
        of_event = f"event {first['position']}: {first['reason']}" if first else ""
        return "; ".join(text for text in (error, of_event) if isinstance(text, str) and text)


class ClientReply(NamedTuple):
    """An answer: status, body and media type."""

    status: int
    body: bytes
    media_type: str = "application/json"


def json_reply(status: int, body: Mapping[str, object]) -> ClientReply:
    """Return an answer in JSON."""
    return ClientReply(status, orjson.dumps(body))


def no_key(_sent: SentBody, _found: Split) -> str | None:
    """Leave the identity of events to the events and the Idempotency-Key."""
    return None


@dataclass(frozen=True, slots=True)
class BodyFormat:
    """A format of bodies: how events are read, and how its clients are answered. All of it is pure.

    read: never raises for what a client may send; what is not an event becomes a reject with its bytes.
    key: what stands for an Idempotency-Key where the client sends none, so that a request that it repeats is stored
    once; None where what comes again may be something else. reply: the client's answer; None for a format whose clients
    read nothing but the status. takes_empty: whether a body of no bytes says something.
    """

    read: Callable[[SentBody, Limits], Split]
    key: Callable[[SentBody, Split], str | None] = no_key
    reply: Callable[[SentBody, RequestOutcome], ClientReply] | None = None
    takes_empty: bool = False


NAMES = ("json", "cloudevents", "csv", "firehose", "fluentbit", "form", "otlp", "segment", "vector")
_WITH_OTHERS = {
    "fluentbit": ("json_format", "FLUENTBIT"),
    "form": ("csv_format", "FORM"),
    "vector": ("json_format", "VECTOR"),
}
"""Where formats are that are not in a module of their own."""
MESSAGE_PACK = ("application/msgpack", "application/x-msgpack", "application/vnd.msgpack")
_TYPES = {
    "text/csv": "csv",
    "text/tab-separated-values": "csv",
    "application/x-www-form-urlencoded": "form",
}


_TYPE_OF = {
    "csv": "text/csv",
    "form": "application/x-www-form-urlencoded",
    "cloudevents": "application/cloudevents+json",
}


def type_of(name: str, body: bytes) -> str:
    """Return the media type of a body in a format, where nothing that counts declares it."""
    if name == "otlp" and body.lstrip()[:1] not in (b"", b"{"):
        return "application/x-protobuf"
    return _TYPE_OF.get(name, "application/json")


def never_read(media_type: str) -> bool:
    """Whether a body of a type, unless it is JSON all the same, is never read."""
    return media_type in MESSAGE_PACK or media_type.startswith("multipart/")


def by_name(name: str) -> BodyFormat:
    """Return a format. Raises Invalid for a name that is none."""
    if name not in NAMES:
        raise Invalid(f"format {name!r:.100}: choose one of {', '.join(NAMES)}")
    module, constant = _WITH_OTHERS.get(name, (f"{name}_format", "FORMAT"))
    form: BodyFormat = getattr(import_module(f"alluvia.events.formats.{module}"), constant)
    return form


def declared(media_type: str, headers: Mapping[str, str]) -> str:
    """Return the name of the format that a request declares by its headers, JSON if it declares none."""
    if "ce-specversion" in headers or media_type.startswith("application/cloudevents"):
        return "cloudevents"
    return _TYPES.get(media_type, "json")


def of_source(named: str, of_kind: str, media_type: str, headers: Mapping[str, str]) -> str:
    """Return the name of the format of a request to a source: `named` by its definition ("" for none), else its kind's.

    What a request declares comes before what the definition names.
    """
    if named and not contradicts(named, media_type, headers):
        return named
    return of_kind or declared(media_type, headers)


def contradicts(name: str, media_type: str, headers: Mapping[str, str]) -> bool:
    """Whether a request declares by its headers that its body is not in a format.

    Types that clients send unless they are told otherwise declare nothing: text/plain, application/octet-stream, and
    application/x-www-form-urlencoded, which is that of `curl -d`.
    """
    if media_type.startswith("multipart/"):
        return True
    said = declared(media_type, headers)
    if said in ("cloudevents", "csv"):
        return said != name
    return name in ("csv", "form") and (media_type.endswith(("/json", "+json")) or media_type in NDJSON_TYPES)


_KEY = "idempotency-key"
_BINARY = "ce-specversion"
_DECLARING = ("content-type", _BINARY)
_OF_EVENTS = (_KEY, "x-amz-firehose-request-id", "x-amz-firehose-common-attributes")
_PART_TYPES = {"cloudevents": "application/cloudevents+json", "otlp": "application/json"}
"""What a part of a body is by itself, where its format wants to know."""
NOTHING = Split([], [])


def reading_of(name: str, sent: SentBody, split: Split) -> BodyReading:
    """Return how a request was read by the format of that name, for the rejects that it may bring."""
    rejects = split.rejects
    whole = len(rejects) == 1 and not split.events and rejects[0].raw.strip() == sent.body.strip()
    kept = (*_DECLARING, *_OF_EVENTS) if whole else _DECLARING
    headers = {each: _text(sent.headers[each]) for each in kept if each in sent.headers}
    return BodyReading(name, several=len(split.events) + len(rejects) > 1, whole=whole, headers=headers)


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
    split = form.read(sent, limits)
    return split, headers.get(_KEY) or form.key(sent, split)


def _text(header: str) -> str:
    return header.encode("utf-8", "replace").decode()
