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
    looks_like_day,
    meaning_of_commas,
    spelled_number,
)
from alluvia.lazy_dataclasses import dataclass

COMMA = ","
CHARS_MAX = 100
"""The longest format, and the longest text of a date or a time."""
SKIP_MAX = 1000
NULLS_MAX = 100
_BY_COMMA = " with a decimal comma"
UNREADABLE = "?"
"""Replaces a text that does not follow an option. Only text columns can read it."""
_THOUSANDS = {",": ",", ".": "[.]", "'": "['\u2019]", " ": "[ \u00a0\u202f]", "_": "_"}
"""Separators of thousands, and patterns of the characters that each stands for."""
_SAMPLE = datetime(2026, 11, 20, 13, 14, 15, tzinfo=UTC)
_UNPADDED = re.compile(r"%-(?=[dmHIMSjy])")
_OF_CSV = ("csv", "tsv")
_OF_TEXT = ("csv", "tsv", "ndjson")


@dataclass(frozen=True, slots=True)
class ReadingOptions:
    """How a file is written; an empty one leaves it to the file's header and ISO 8601.

    delimiter: of cells. decimal_separator: `.` or `,`. thousands_separator: groups the digits of numbers by three; with
    a decimal comma, points do by default. null: texts of cells that mean null.
    date_format, timestamp_format: of dates, and of times with
    dates, in the codes of `strptime`. rename: columns' names in the table by their names in the file. skip: lines
    before the header. encoding: Python's name of a file's encoding that is not UTF-8.
    """

    delimiter: str = ""
    decimal_separator: str = ""
    thousands_separator: str = ""
    null: tuple[str, ...] = ()
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

    @property
    def groups(self) -> str:
        """Return the characters that group digits, as a pattern; "" if numbers are written as every reader takes them.

        A decimal comma needs a pattern even where no digits are grouped.
        """
        return _THOUSANDS.get(self.thousands_separator or ("." if self.has_decimal_comma else ""), "")

    def of_parts(self) -> ReadingOptions:
        """Return the options for parts of a file, each of which is UTF-8 and begins with the header."""
        return replace(self, skip=0, encoding="") if self.skip or self.encoding else self

    def check(self, kind: str) -> None:
        """Raise `Invalid` for an option that does not apply to a format."""
        for name, kinds in (
            ("delimiter", _OF_CSV), ("decimal_separator", _OF_CSV), ("skip", _OF_CSV),
            ("thousands_separator", _OF_CSV), ("null", _OF_CSV),
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
        if not self.groups or not is_number(kind):
            return ""
        return f" with {self.thousands_separator!r} between thousands" if self.thousands_separator else _BY_COMMA

    def plain(self, texts: pa.Array, kind: pa.DataType) -> pa.Array:
        """Return texts of values of a type as every reader takes them; `UNREADABLE` where they are not ones."""
        if self.format_of(kind):
            words = texts.dictionary_encode()
            plain = [self.plain_text(text, kind) for text in words.dictionary.to_pylist()]
            return pa.array(plain, pa.string()).take(words.indices)
        if self.groups and is_number(kind):
            grouped = pc.fill_null(pc.match_substring_regex(texts, _grouped(self)), False)
            if pc.any(grouped).as_py():
                texts = pc.if_else(grouped, pc.replace_substring_regex(texts, self.groups, ""), texts)
            other = pc.fill_null(pc.match_substring_regex(texts, _others(self)), False)
            if pc.any(other).as_py():
                texts = pc.if_else(other, UNREADABLE, texts)
            return pc.replace_substring(texts, COMMA, ".") if self.has_decimal_comma else texts
        return texts

    def plain_text(self, text: str, kind: pa.DataType) -> str:
        """Return one text as `plain` does."""
        if written := self.format_of(kind):
            if len(text) > CHARS_MAX:
                return UNREADABLE
            return _iso(text, written, pa.types.is_date(kind)) if text else text
        if self.groups and is_number(kind):
            text = re.sub(self.groups, "", text) if re.search(_grouped(self), text) else text
            if re.search(_others(self), text):
                return UNREADABLE
            return text.replace(COMMA, ".") if self.has_decimal_comma else text
        return text

    def refusal(self, reason: str, text: str | None, kind: pa.DataType) -> str:
        """Return why a text has no value of a type: `reason`, or what an option says, or the option that is missing."""
        if text and (written := self.format_of(kind)):
            name = "date_format" if pa.types.is_date(kind) else "timestamp_format"
            hint = (
                f"; {found} reads it" if looks_like_day(text) and written not in (found := formats_of([text])) else ""
            )
            return f"expected {name} {written!r}, as in {_SAMPLE.strftime(_codes(written))!r}{hint}"
        if text and is_number(kind) and self.groups and self.plain_text(text, kind) == UNREADABLE:
            if self.thousands_separator:
                point = self.decimal_separator or "."
                return (
                    f"expected a number with {point!r} before its decimals, if any, and {self.thousands_separator!r} "
                    "between groups of three digits, if any"
                )
            return "expected a number with a decimal comma, whose points, if any, group its digits by three"
        if text and (pa.types.is_date(kind) or pa.types.is_timestamp(kind)) and looks_like_day(text):
            name = "date_format" if pa.types.is_date(kind) else "timestamp_format"
            option = f"--{name.replace('_', '-')}"
            return f"{reason}; say how it is written with {option}, such as {formats_of([text])} ({name})"
        return reason

    def missing(self, texts: Sequence[str]) -> str:
        """Return what most of a column's texts seem to be that an option would read, and which; "" for others."""
        if not self.groups and (said := meaning_of_commas(texts, may_be_decimal=not self.decimal_separator)):
            return said
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


NAMES = (
    "delimiter", "decimal_separator", "date_format", "timestamp_format", "rename", "skip", "encoding",
    "thousands_separator", "null",
)  # fmt: skip
DEFAULT = ReadingOptions()


def reading_options(
    delimiter: str | None = None,
    decimal_separator: str | None = None,
    date_format: str | None = None,
    timestamp_format: str | None = None,
    rename: Mapping[str, str] | str | None = None,
    skip: int | None = None,
    encoding: str | None = None,
    thousands_separator: str | None = None,
    null: Sequence[str] | str | None = None,
) -> ReadingOptions:
    r"""Return options as callers give them.

    `rename` may be text: `old=new,other=name`, or a JSON object; `null`: `n/a,-`, or a JSON array.

    `\t` is a tab. Raises `Invalid`, naming the option.
    """
    by = "\t" if delimiter in (r"\t", "tab") else delimiter or ""
    if len(by) > 1 or by in ('"', "\r", "\n", "\0"):
        raise Invalid(f"delimiter: use one character, and no quote or line end, not {by!r:.20}")
    if decimal_separator not in (None, "", ".", COMMA):
        raise Invalid(f"decimal_separator: use . or , and not {decimal_separator!r:.20}")
    if decimal_separator == COMMA == by:
        raise Invalid("delimiter, decimal_separator: both are a comma")
    if thousands_separator and thousands_separator not in _THOUSANDS:
        raise Invalid(f"thousands_separator: use one of , . ' _ and a space, not {thousands_separator!r:.20}")
    if thousands_separator == (decimal_separator or "."):
        other = ": with points between thousands, give --decimal-separator , too" if not decimal_separator else ""
        raise Invalid(f"thousands_separator, decimal_separator: both are {thousands_separator!r}{other}")
    _check_format("date_format", date_format or "")
    _check_format("timestamp_format", timestamp_format or "")
    names = _renames(rename) if isinstance(rename, str) else dict(rename or {})
    if skip is not None and not 0 <= skip <= SKIP_MAX:
        raise Invalid(f"skip: use a number of lines from 0 to {SKIP_MAX}")
    codec = codec_named(encoding) if encoding else ""
    return ReadingOptions(
        by,
        decimal_separator or "",
        thousands_separator or "",
        _nulls(null or ()),
        date_format or "",
        timestamp_format or "",
        names,
        skip or 0,
        codec,
    )


def _nulls(given: Sequence[str] | str) -> tuple[str, ...]:
    """Return the texts without a value, without spaces around them, as they are compared."""
    texts: Any = given
    if isinstance(given, str):
        try:
            texts = orjson.loads(given) if given.startswith("[") else given.split(",")
        except orjson.JSONDecodeError as error:
            raise Invalid(f"null: expected texts, such as n/a,- or a JSON array ({error})") from None
    if not all(isinstance(text, str) for text in texts) or len(texts) > NULLS_MAX:
        raise Invalid(f"null: expected at most {NULLS_MAX} texts, such as n/a,- or a JSON array of them")
    return tuple(text.strip() for text in texts)


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


@lru_cache(maxsize=64)
def _patterns(groups: str, comma: bool) -> tuple[str, str]:
    point, wrong = ("," if comma else "[.]"), ("[.]" if comma else groups)
    return f"^[-+]?[1-9][0-9]{{0,2}}(?:{groups}[0-9]{{3}})+(?:{point}[0-9]+)?$", f"{groups}|{wrong}"


def _grouped(options: ReadingOptions) -> str:
    """Return the pattern of a number whose digits are grouped."""
    return _patterns(options.groups, options.has_decimal_comma)[0]


def _others(options: ReadingOptions) -> str:
    """Return the pattern of the characters that a number without grouped digits cannot have."""
    return _patterns(options.groups, options.has_decimal_comma)[1]


class YearsOfTwoDigits:
    """The years that `%y` has made of two digits, by column: 1969 to 2068, so 60 is 2060."""

    def __init__(self, options: ReadingOptions) -> None:
        self._options = options
        self._years: dict[str, tuple[int, int]] = {}

    def see(self, table: pa.Table) -> None:
        """Take the rows of a file into account."""
        for column, values in zip(table.schema, table.columns, strict=True):
            written = _codes(self._options.format_of(column.type))
            if "%y" in written and values.null_count < len(values):
                found = pc.min_max(values).as_py()
                first, last = found["min"].year, found["max"].year
                before = self._years.get(column.name, (first, last))
                self._years[column.name] = (min(first, before[0]), max(last, before[1]))

    def notes(self) -> list[str]:
        """Return a note for each column."""
        return [
            f"column {name}: the years read by %y are from {first} to {last}, because two digits are years from 1969 "
            "to 2068: give other years four digits, and %Y"
            for name, (first, last) in self._years.items()
        ]


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
