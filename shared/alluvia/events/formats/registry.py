"""The formats by name; each is loaded when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from alluvia.errors import Invalid
from alluvia.events.ingest.envelope import NDJSON_TYPES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alluvia.events.formats.values import BodyFormat

NAMES = ("json", "cloudevents", "csv", "firehose", "fluentbit", "form", "otlp", "segment", "vector")
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
    found: BodyFormat = import_module(f"alluvia.events.formats.{name}_format").FORMAT
    return found


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
