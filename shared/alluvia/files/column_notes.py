"""Why a column of text is not one of numbers, dates or times: what to tell the sender of a file. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime

import pyarrow as pa

from alluvia.arrow_compute import pc

GROUPED = r"^[-+]?[1-9][0-9]{0,2}(?:\.[0-9]{3})+$"
"""A number whose points group digits or, if it has one point, come before decimals."""
_POINTED = r"^[-+]?[0-9]+\.[0-9]+(?:[eE][-+]?[0-9]+)?$"
_WITH_COMMA = re.compile(r"[-+]?[0-9]+(?:\.[0-9]{3})*(?:,[0-9]+)?", re.ASCII)
_BY_COMMAS = re.compile(r"[-+]?[1-9][0-9]{0,2}(?:,[0-9]{3})+(?:\.[0-9]+)?", re.ASCII)
_PLAIN = re.compile(r"[-+]?[0-9]+(?:\.[0-9]+)?", re.ASCII)
_COMMA, _GROUPING = "--decimal-separator ,", "--thousands-separator ,"
_SPELLED = re.compile(r"[-+]?\s?(?:[€$£]\s?)?[0-9][0-9., '\u00a0\u2019\u202f]*(?:\s?(?:[€$£%]|EUR|USD|GBP|CHF))?")
_IS_SPELLED = re.compile(r"[€$£%]|[A-Z]{3}$|,[0-9]{1,2}$|^\+[0-9]+\.")
CODE = r"^(?:\+|-?0[0-9]|-?[0-9]+[eE][0-9])"
"""How texts begin that may be codes, such as `007`, `+49` and `1E5`: as numbers they would look different."""
_DIGITS = re.compile(r"\+?[0-9]+(?:[eE][0-9]+)?", re.ASCII)
_YES_AND_NO = [set(pair.split()) for pair in ("yes no", "ja nein", "wahr falsch", "oui non", "vrai faux", "si no")]
_DAY = re.compile(r"[0-9]{1,2}[./-][0-9]{1,2}[./-][0-9]{2,4}\b|[0-9]{4}[./][0-9]{1,2}[./][0-9]{1,2}\b", re.ASCII)
_CLOCKS = ("", " %H:%M", " %H:%M:%S", " %H:%M:%S.%f", " %I:%M %p", " %I:%M:%S %p", "T%H:%M", "T%H:%M:%S", ", %H:%M")
_FORMATS_OF = 100
"""So many texts show a format."""


def looks_like_day(text: str) -> bool:
    """Whether a text begins as days are written that are not ISO 8601."""
    return _DAY.match(text.strip()) is not None


def formats_of(texts: Sequence[str]) -> str:
    """Return the formats of `strptime` that read all of some dates or times, quoted, for a message."""
    texts = [text.strip() for text in texts[:_FORMATS_OF]]
    match = _DAY.match(texts[0])
    by = "." if match is None else next(each for each in match[0] if not each.isdigit())
    days = (f"%d{by}%m{by}%Y", f"%m{by}%d{by}%Y", f"%d{by}%m{by}%y", f"%m{by}%d{by}%y", f"%Y{by}%m{by}%d")
    clocks = _CLOCKS[:1] if match is None or match.end() == match.endpos else _CLOCKS[1:]
    found = [day + clock for day in days for clock in clocks if all(_is_read(text, day + clock) for text in texts)]
    return " or ".join(repr(each) for each in found) or f"'{days[0]}{clocks[0]}'"


def _is_read(text: str, written: str) -> bool:
    try:
        datetime.strptime(text, written)  # noqa: DTZ007 - it may have no zone
    except ValueError:
        return False
    return True


def are_days(texts: Sequence[str]) -> list[str]:
    """Return the dates that are not ISO 8601, if most texts are such."""
    found = [text for text in texts if (day := _DAY.match(text)) is not None and day.end() == day.endpos]
    return found if 2 * len(found) > len(texts) else []


def are_moments(texts: Sequence[str]) -> list[str]:
    """Return the times whose dates are not ISO 8601, if most texts are such."""
    found = [text for text in texts if (day := _DAY.match(text)) is not None and day.end() < day.endpos]
    return found if 2 * len(found) > len(texts) else []


def meaning_of_commas(texts: Sequence[str], *, may_be_decimal: bool = True) -> str:
    """Return the meaning of commas in numbers, with the option that reads them, if most texts are numbers; else "".

    `12,50` has a decimal comma, and `1,234.50` groups digits; `1,234` alone may be either.
    """
    decimal = [text for text in texts if _WITH_COMMA.fullmatch(text)] if may_be_decimal else []
    grouped = [text for text in texts if _BY_COMMAS.fullmatch(text)]
    are_decimal = any("," in text and not _BY_COMMAS.fullmatch(text) for text in decimal)
    sure = [text for text in grouped if text.count(",") > 1 or "." in text]
    if not may_be_decimal or any("." in text and _PLAIN.fullmatch(text) for text in texts):
        sure = sure or [text for text in grouped if "," in text]
    numbers = len(grouped) + sum(1 for text in texts if _PLAIN.fullmatch(text))
    if are_decimal and not sure:
        said = f"numbers with a decimal comma, which {_COMMA} reads (decimal_separator)"
        return said if 2 * len(decimal) > len(texts) else ""
    if not grouped or are_decimal or 2 * numbers <= len(texts):
        return ""
    if sure:
        return f"numbers such as {sure[0]!r:.30}, which {_GROUPING} reads (thousands_separator)"
    number = grouped[0]
    return (
        f"numbers such as {number!r}, which may be {number.replace(',', '')} or {number.replace(',', '.')}: "
        f"{_GROUPING} or {_COMMA} says which it is (thousands_separator, decimal_separator)"
    )


def spelled_number(texts: Sequence[str]) -> str:
    """Return the first number with a currency, a plus or grouped digits, if most texts are numbers; else ""."""
    found = [text for text in texts if _SPELLED.fullmatch(text)]
    return next(filter(_IS_SPELLED.search, found), "") if 2 * len(found) > len(texts) else ""


def are_yes_or_no(texts: Sequence[str]) -> bool:
    """Whether all texts are one of a pair of words for true and false, and both occur."""
    return {text.strip().lower() for text in texts} in _YES_AND_NO


def is_code(text: str) -> bool:
    """Whether a text is digits that a number would not keep, such as `007`, `+49301234`, `1E5` and 20 digits."""
    return _DIGITS.fullmatch(text) is not None


def as_code(stored: object, column: str, kind: str) -> str:
    """Return why a code is refused in a column of numbers, which would store it as another text."""
    return (
        f"it may be a code, which a {kind} would store as {stored}: use a column of type string, or, if it is a "
        f'number, declare the column: --schema "{column}:{kind}" (schema)'
    )


def said_of(kind: pa.DataType) -> str:
    """Return a type as in "'k.A.' is not a number"."""
    if pa.types.is_boolean(kind):
        return "true or false"
    if pa.types.is_date(kind):
        return "a date"
    return "a time" if pa.types.is_timestamp(kind) else "a number"


class PointedNumbers:
    """Whether the points in the numbers of a column are decimal or group digits: `1.000` alone may be 1 or 1000.

    One number of the column such as `12.5` or `0.125` shows that they are decimal. first: the first of the others,
    with the number of its row; None without one.
    """

    def __init__(self) -> None:
        self.first: tuple[int, str] | None = None
        self._are_decimal = False

    def see(self, texts: pa.Array, rows: pa.Array | None = None, start: int = 0) -> None:
        """Take texts without spaces around them into account. `rows`: where they are after the first `start` rows."""
        if self._are_decimal or not pc.any(pc.fill_null(pc.match_substring(texts, "."), False)).as_py():
            return
        grouped = pc.fill_null(pc.match_substring_regex(texts, GROUPED), False)
        pointed = pc.fill_null(pc.match_substring_regex(texts, _POINTED), False)
        self._are_decimal = bool(pc.any(pc.and_not(pointed, grouped)).as_py())
        if self.first is None and len(found := pc.indices_nonzero(grouped)):
            at = found[0].as_py()
            self.first = (start + (at if rows is None else rows[at].as_py()) + 1, texts[at].as_py())

    @property
    def are_doubtful(self) -> bool:
        """Whether nothing shows what the points are."""
        return self.first is not None and not self._are_decimal


def may_be(text: str) -> str:
    """Return why a number such as `1.000` is not read, and which option says what it is."""
    grouped = text.replace(".", "")
    other = f" or {float(text):g}" if text.count(".") == 1 else ""
    return f"{text!r} may be {grouped}{other}: --decimal-separator says which it is, with , or . (decimal_separator)"
