"""The forms of a query's rows, by name and by media type, and the one that a caller accepts. Pure."""

from __future__ import annotations

import math
from dataclasses import replace
from urllib.parse import parse_qsl, urlencode

from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Format:
    """A form of results: the media types that ask for it, whether it is text, and compressed as it is.

    CSV can be written in other ways: with another delimiter, with decimal commas, and with a byte order mark (`bom`).
    The name then says so, too, because it identifies a form.
    """

    name: str
    media_types: tuple[str, ...]
    content_type: str
    is_text: bool = True
    is_compressed: bool = False
    delimiter: str = ","
    decimal_separator: str = "."
    bom: bool = False

    @property
    def suffix(self) -> str:
        """Return the suffix of files of this form, without its point."""
        return self.name.partition("?")[0].lower()


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
_CSV = (CSV.suffix, SAFE_CSV.suffix)
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
    base, _, how = name.partition("?")
    form = next((one for one in FORMATS if one.name.lower() == base.lower()), None)
    if form is None:
        raise Invalid(f"format: {name[:100]!r} must be one of {', '.join(one.name.lower() for one in FORMATS)}")
    said = dict(parse_qsl(how)) if how else {}
    return csv_written(form, said.get("delimiter"), said.get("decimal_separator"), bom=said.get("bom") == "true")


def csv_written(
    form: Format, delimiter: str | None = None, decimal_separator: str | None = None, *, bom: bool = False
) -> Format:
    """Return a form of CSV that is written in another way. Raises `Invalid`, naming the option.

    With a decimal comma, semicolons separate cells unless another delimiter is given, as spreadsheets expect it.
    """
    if not (delimiter or decimal_separator or bom):
        return form
    if form.suffix not in _CSV:
        raise Invalid(f"delimiter, decimal_separator, bom: they are for {' and '.join(_CSV)}, not for {form.suffix}")
    if decimal_separator not in (None, "", ".", ","):
        raise Invalid(f"decimal_separator: use . or , and not {decimal_separator!r:.20}")
    by = "\t" if delimiter in (r"\t", "tab") else delimiter or (";" if decimal_separator == "," else ",")
    if len(by) > 1 or by in '"\r\n\0' or by.isalnum() or by in "+-.":
        raise Invalid(f"delimiter: use one character that no number has, and no quote or line end, not {by!r:.20}")
    if by == decimal_separator:
        raise Invalid("delimiter, decimal_separator: both are a comma")
    point = decimal_separator or "."
    how = {"delimiter": by, "decimal_separator": point} | ({"bom": "true"} if bom else {})
    name = f"{form.name.partition('?')[0]}?{urlencode(how)}"
    return replace(form, name=name, delimiter=by, decimal_separator=point, bom=bom)


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
