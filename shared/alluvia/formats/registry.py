"""The formats by name; each is loaded when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from alluvia.errors import Invalid

if TYPE_CHECKING:
    from collections.abc import Mapping

    from alluvia.formats.values import BodyFormat

NAMES = ("json", "cloudevents", "csv", "firehose", "fluentbit", "form", "otlp", "segment", "vector")
_TYPES = {
    "text/csv": "csv",
    "text/tab-separated-values": "csv",
    "application/x-www-form-urlencoded": "form",
}


def by_name(name: str) -> BodyFormat:
    """Return a format. Raises Invalid for a name that is none."""
    if name not in NAMES:
        raise Invalid(f"format {name!r:.100}: choose one of {', '.join(NAMES)}")
    found: BodyFormat = import_module(f"alluvia.formats.{name}_format").FORMAT
    return found


def declared(media_type: str, headers: Mapping[str, str]) -> str:
    """Return the name of the format that a request declares by its headers, where no source does."""
    if "ce-specversion" in headers or media_type.startswith("application/cloudevents"):
        return "cloudevents"
    return _TYPES.get(media_type, "json")
