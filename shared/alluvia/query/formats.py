"""The forms of a query's rows, by name and by media type, and the one that a caller accepts. Pure."""

from __future__ import annotations

import math

from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """A form of results: the media types that ask for it, whether it is text, and compressed as it is."""

    name: str
    media_types: tuple[str, ...]
    content_type: str
    is_text: bool = True
    is_compressed: bool = False


NDJSON = Format("NDJSON", ("application/x-ndjson", "application/ndjson", "application/jsonl"), "application/x-ndjson")
JSON = Format("JSON", ("application/json",), "application/json")
CSV = Format("CSV", ("text/csv",), "text/csv; charset=utf-8")
ARROW = Format(
    "Arrow",
    ("application/vnd.apache.arrow.stream",),
    "application/vnd.apache.arrow.stream",
    is_text=False,
)
PARQUET = Format(
    "Parquet", ("application/vnd.apache.parquet",), "application/vnd.apache.parquet", is_text=False, is_compressed=True
)
TSV = Format("TSV", ("text/tab-separated-values",), "text/tab-separated-values; charset=utf-8")
SAFE_CSV = Format("SafeCSV", (), CSV.content_type)
"""CSV for spreadsheets, which take a text for a formula if it begins as one. Not exact, so it must be asked by name."""
FORMATS = (NDJSON, JSON, CSV, ARROW, PARQUET, TSV, SAFE_CSV)


class NotAcceptable(Invalid):
    """None of the forms that the caller accepts is one that results come in."""


def choose_format(accept: str | None) -> Format:
    """Return the form that an Accept header asks for; NDJSON where it leaves the choice. Raises `NotAcceptable`."""
    ranges = accepted(accept or "*/*")
    best: tuple[float, Format] = (0.0, NDJSON)
    for one in FORMATS:
        quality = max((_quality(media_type, ranges) for media_type in one.media_types), default=0.0)
        if quality > best[0]:
            best = (quality, one)
    if best[0] <= 0:
        offered = ", ".join(one.media_types[0] for one in FORMATS if one.media_types)
        raise NotAcceptable(f"Accept: results are available as {offered}")
    return best[1]


def format_named(name: str) -> Format:
    """Return the form of a name, which is also a file's suffix. Raises `Invalid`."""
    form = next((one for one in FORMATS if one.name.lower() == name.lower()), None)
    if form is None:
        raise Invalid(f"format: {name[:100]!r} must be one of {', '.join(one.name.lower() for one in FORMATS)}")
    return form


def accepted(accept: str) -> dict[str, float]:
    """Return the qualities of the names in a header such as Accept; `*/*` where it names nothing."""
    qualities: dict[str, float] = {}
    for part in accept.split(","):
        media_type, *parameters = (piece.strip().lower() for piece in part.split(";"))
        quality = 1.0
        for parameter in parameters:
            name, _, value = parameter.partition("=")
            if name.strip() == "q":
                quality = _number(value)
        if media_type:
            qualities[media_type] = max(quality, qualities.get(media_type, 0.0))
    return qualities or {"*/*": 1.0}


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return min(1.0, number) if math.isfinite(number) else 0.0


def _quality(media_type: str, ranges: dict[str, float]) -> float:
    """Return the quality of the most specific range that a media type falls into."""
    family = media_type.partition("/")[0]
    for name in (media_type, f"{family}/*", "*/*"):
        if name in ranges:
            return ranges[name]
    return 0.0
