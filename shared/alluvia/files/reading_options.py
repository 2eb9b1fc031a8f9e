"""Conventions that a file does not show: delimiter, decimal separator, dates, and other names. Pure.

Each option converts the text of cells to the form that every reader takes: `12,50` becomes `12.50`, `20.11.2026`
becomes `2026-11-20`. A text in another form has no value, so a file is never read half in one way and half in another.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import orjson
import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.errors import Invalid
from alluvia.events.formats.charset import codec_named
from alluvia.files.column_notes import (
    are_days,
    are_moments,
    formats_of,
    have_decimal_commas,
    looks_like_day,
    spelled_number,
)
from alluvia.lazy_dataclasses import dataclass

COMMA = ","
CHARS_MAX = 100
"""The longest format, and the longest text of a date or a time."""
SKIP_MAX = 1000
UNREADABLE = "?"
"""Replaces a text that does not follow an option. Only text columns can read it."""
_GROUPED = r"^[-+]?[1-9][0-9]{0,2}(?:\.[0-9]{3})+(?:,[0-9]+)?$"
"""A number whose points group digits, where the decimal separator is a comma."""
_IS_GROUPED = re.compile(_GROUPED, re.ASCII)
_SAMPLE = datetime(2026, 11, 20, 13, 14, 15, tzinfo=UTC)
_UNPADDED = re.compile(r"%-(?=[dmHIMSjy])")
_OF_CSV = ("csv", "tsv")
_OF_TEXT = ("csv", "tsv", "ndjson")


@dataclass(frozen=True, slots=True)
class ReadingOptions:
    """How a file is written; an empty one leaves it to the file's header and ISO 8601.

    delimiter: of cells. decimal_separator: `.` or `,`. date_format, timestamp_format: of dates, and of times with
    dates, in the codes of `strptime`. rename: columns' names in the table by their names in the file. skip: lines
    before the header. encoding: Python's name of a file's encoding that is not UTF-8.
    """

    delimiter: str = ""
    decimal_separator: str = ""
    date_format: str = ""
    timestamp_format: str = ""
    rename: Mapping[str, str] = field(default_factory=dict)
    skip: int = 0
    encoding: str = ""

    def __bool__(self) -> bool:
        return any(getattr(self, name) for name in NAMES)

    @property
    def has_decimal_comma(self) -> bool:
        """Whether numbers have a decimal comma."""
        return self.decimal_separator == COMMA

    def of_parts(self) -> ReadingOptions:
        """Return the options for parts of a file, each of which is UTF-8 and begins with the header."""
        return replace(self, skip=0, encoding="") if self.skip or self.encoding else self

    def check(self, kind: str) -> None:
        """Raise `Invalid` for an option that does not apply to a format."""
        for name, kinds in (
            ("delimiter", _OF_CSV), ("decimal_separator", _OF_CSV), ("skip", _OF_CSV),
            ("date_format", _OF_TEXT), ("timestamp_format", _OF_TEXT), ("encoding", _OF_TEXT),
        ):  # fmt: skip
            if getattr(self, name) and kind not in kinds:
                raise Invalid(f"{name}: leave it out, because the file is {kind}: it is for {' and '.join(kinds)}")

    def format_of(self, kind: pa.DataType) -> str:
        """Return how values of a type are written; "" unless it is one of dates or times with a format."""
        if pa.types.is_date(kind):
            return self.date_format
        return self.timestamp_format if pa.types.is_timestamp(kind) else ""

    def as_written(self, kind: pa.DataType) -> str:
        """Return how the options say that values of a type are written, as the end of a sentence; "" if they do not."""
        if written := self.format_of(kind):
            return f" that is written as {written!r} says"
        return " with a decimal comma" if self.has_decimal_comma and is_number(kind) else ""

    def plain(self, texts: pa.Array, kind: pa.DataType) -> pa.Array:
        """Return texts of values of a type as every reader takes them; `UNREADABLE` where they are not ones."""
        if self.format_of(kind):
            words = texts.dictionary_encode()
            plain = [self.plain_text(text, kind) for text in words.dictionary.to_pylist()]
            return pa.array(plain, pa.string()).take(words.indices)
        if self.has_decimal_comma and is_number(kind):
            grouped = pc.fill_null(pc.match_substring_regex(texts, _GROUPED), False)
            if pc.any(grouped).as_py():
                texts = pc.if_else(grouped, pc.replace_substring(texts, ".", ""), texts)
            pointed = pc.fill_null(pc.match_substring(texts, "."), False)
            if pc.any(pointed).as_py():
                texts = pc.if_else(pointed, UNREADABLE, texts)
            return pc.replace_substring(texts, COMMA, ".")
        return texts

    def plain_text(self, text: str, kind: pa.DataType) -> str:
        """Return one text as `plain` does."""
        if written := self.format_of(kind):
            if len(text) > CHARS_MAX:
                return UNREADABLE
            return _iso(text, written, pa.types.is_date(kind)) if text else text
        if self.has_decimal_comma and is_number(kind):
            text = text.replace(".", "") if _IS_GROUPED.fullmatch(text) else text
            return UNREADABLE if "." in text else text.replace(COMMA, ".")
        return text

    def refusal(self, reason: str, text: str | None, kind: pa.DataType) -> str:
        """Return why a text has no value of a type: `reason`, or what an option says, or the option that is missing."""
        if text and (written := self.format_of(kind)):
            name = "date_format" if pa.types.is_date(kind) else "timestamp_format"
            hint = (
                f"; {found} reads it" if looks_like_day(text) and written not in (found := formats_of([text])) else ""
            )
            return f"expected {name} {written!r}, as in {_SAMPLE.strftime(_codes(written))!r}{hint}"
        if text and is_number(kind) and self.has_decimal_comma and self.plain_text(text, kind) == UNREADABLE:
            return "expected a number with a decimal comma, whose points, if any, group its digits by three"
        if text and (pa.types.is_date(kind) or pa.types.is_timestamp(kind)) and looks_like_day(text):
            name = "date_format" if pa.types.is_date(kind) else "timestamp_format"
            option = f"--{name.replace('_', '-')}"
            return f"{reason}; say how it is written with {option}, such as {formats_of([text])} ({name})"
        return reason

    def missing(self, texts: Sequence[str]) -> str:
        """Return what most of a column's texts seem to be that an option would read, and which; "" for others."""
        if not self.decimal_separator and have_decimal_commas(texts):
            return "numbers with a decimal comma, which --decimal-separator , reads (decimal_separator)"
        if not self.date_format and (days := are_days(texts)):
            found = formats_of(days)
            return f"dates such as {days[0]!r:.30}, which --date-format reads, such as {found} (date_format)"
        if not self.timestamp_format and (moments := are_moments(texts)):
            found = formats_of(moments)
            return (
                f"times such as {moments[0]!r:.30}, which --timestamp-format reads, such as {found} (timestamp_format)"
            )
        return ""

    def unread(self, texts: Sequence[str]) -> str:
        """Return what most of a column's texts seem to be that is written in another way; "" for others."""
        for name, found in (("date_format", are_days(texts)), ("timestamp_format", are_moments(texts))):
            if found:
                written = getattr(self, name)
                better = formats_of(found)
                hint = "" if written in better else f": use {better}"
                return f"{found[0]!r:.30}, which {name} {written!r} does not read{hint}"
        number = spelled_number(texts)
        return f"{number!r:.30}, which has a sign, a currency or spaces besides the number" if number else ""

    def unused(self, kinds: Sequence[pa.DataType]) -> list[str]:
        """Return which formats say how dates or times are written, of columns that have none."""
        unused = []
        if self.date_format and not any(map(pa.types.is_date, kinds)):
            unused.append(f"date_format {self.date_format!r}: no column has dates that are written so")
        if self.timestamp_format and not any(map(pa.types.is_timestamp, kinds)):
            unused.append(f"timestamp_format {self.timestamp_format!r}: no column has times that are written so")
        return unused


NAMES = ("delimiter", "decimal_separator", "date_format", "timestamp_format", "rename", "skip", "encoding")
DEFAULT = ReadingOptions()


def reading_options(
    delimiter: str | None = None,
    decimal_separator: str | None = None,
    date_format: str | None = None,
    timestamp_format: str | None = None,
    rename: Mapping[str, str] | str | None = None,
    skip: int | None = None,
    encoding: str | None = None,
) -> ReadingOptions:
    r"""Return options as callers give them. `rename` may be text: `old=new,other=name`, or a JSON object.

    `\t` is a tab. Raises `Invalid`, naming the option.
    """
    by = "\t" if delimiter in (r"\t", "tab") else delimiter or ""
    if len(by) > 1 or by in ('"', "\r", "\n", "\0"):
        raise Invalid(f"delimiter: use one character, and no quote or line end, not {by!r:.20}")
    if decimal_separator not in (None, "", ".", COMMA):
        raise Invalid(f"decimal_separator: use . or , and not {decimal_separator!r:.20}")
    if decimal_separator == COMMA == by:
        raise Invalid("delimiter, decimal_separator: both are a comma")
    _check_format("date_format", date_format or "")
    _check_format("timestamp_format", timestamp_format or "")
    names = _renames(rename) if isinstance(rename, str) else dict(rename or {})
    if skip is not None and not 0 <= skip <= SKIP_MAX:
        raise Invalid(f"skip: use a number of lines from 0 to {SKIP_MAX}")
    codec = codec_named(encoding) if encoding else ""
    return ReadingOptions(
        by, decimal_separator or "", date_format or "", timestamp_format or "", names, skip or 0, codec
    )


def _renames(text: str) -> dict[str, str]:
    example = 'such as old=new,other=name, or {"old": "new"}'
    if text.lstrip().startswith("{"):
        try:
            names = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            raise Invalid(f"rename: expected names, {example} ({error})") from None
        if not all(isinstance(name, str) and name for name in names.values()):
            raise Invalid(f"rename: expected names, {example}")
        return dict(names)
    names = {}
    for pair in filter(None, text.split(",")):
        old, _, new = pair.partition("=")
        if not old.strip() or not new.strip():
            raise Invalid(f"rename: {pair!r:.100} is not a pair of names: {example}")
        if old.strip() in names:
            raise Invalid(f"rename: {old.strip()!r:.100} is given twice")
        names[old.strip()] = new.strip()
    return names


def _check_format(name: str, written: str) -> None:
    if not written:
        return
    if len(written) > CHARS_MAX:
        raise Invalid(f"{name}: a format has at most {CHARS_MAX} characters")
    try:
        text = _SAMPLE.strftime(_codes(written))
        read = datetime.strptime(text, _codes(written))  # noqa: DTZ007 - it may have no zone
    except ValueError as error:
        raise Invalid(f"{name}: {written!r:.100} is not a format, such as '%d.%m.%Y' ({error})") from None
    if read.date() != _SAMPLE.date():
        raise Invalid(f"{name}: {written!r:.100} does not say the day, the month and the year, as '%d.%m.%Y' does")
    if name == "date_format" and read.hour:
        raise Invalid(f"{name}: {written!r:.100} has a time, too: give it as timestamp_format")


def _codes(written: str) -> str:
    """Return a format with the codes that Python knows: it reads numbers without zeros in front in any case."""
    return _UNPADDED.sub("%", written)


@lru_cache(maxsize=65536)
def _iso(text: str, written: str, is_date: bool) -> str:
    try:
        moment = datetime.strptime(text.strip(), _codes(written))  # noqa: DTZ007 - it may have no zone
    except ValueError:
        return UNREADABLE
    return moment.date().isoformat() if is_date else moment.isoformat()


def is_number(kind: pa.DataType) -> bool:
    """Whether values of a type are numbers."""
    return bool(pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind))


def as_json(options: ReadingOptions) -> dict[str, Any]:
    """Return options as `reading_options` takes them."""
    return {name: value for name in NAMES if (value := getattr(options, name))}
