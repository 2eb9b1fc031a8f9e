"""Columns of text, such as those of CSV, to columns of a type, and the type that loses nothing. Pure.

Inference takes a type only where every value of the file is written as that type writes it: `007`, `1.50e400`, `+5` and
numbers beyond 64 bits make a column text. Declared types take what they can hold exactly, as ingestion does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.events.ingest.convert import column, read_text
from alluvia.events.ingest.event_time import TIMESTAMP, plain_instants
from alluvia.events.ingest.jsontext import survives_double
from alluvia.files.reading_options import DEFAULT, ReadingOptions

_DAY = r"(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-[0-9]{2}-[0-9]{2}"
"""Of the years that Python and JSON's readers have: Arrow has the year 0 as well."""
_CLOCK = rf"{_DAY}[T ][0-9]{{2}}:[0-9]{{2}}(?::[0-9]{{2}}(?:\.[0-9]{{1,6}})?)?"
_PATTERNS: dict[pa.DataType, str] = {
    pa.bool_(): r"^(?i:true|false)$",
    pa.int64(): r"^(?:0|-?[1-9][0-9]{0,18})$",
    pa.float64(): r"^-?(?:0|[1-9][0-9]{0,99})(?:\.[0-9]{1,99})?(?:[eE][-+]?[0-9]{1,3})?$",
    pa.date32(): rf"^{_DAY}$",
    TIMESTAMP: rf"^{_CLOCK}(?:Z|[-+][0-9]{{2}}(?::?[0-9]{{2}})?)$",
    pa.timestamp("us"): rf"^{_CLOCK}$",
}
_SURVIVING = r"^-?[0-9.]{1,15}$"
"""Every decimal of up to 15 digits survives a double."""


def plain(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the value of each text that is written as the type writes it, and null for the others.

    Where a text only looks like a value (February 30), others may be null, too.
    """
    texts = pc.if_else(pc.match_substring_regex(texts, _PATTERNS[kind]), texts, pa.scalar(None, pa.string()))
    if kind == TIMESTAMP:
        return plain_instants(texts)
    if pa.types.is_boolean(kind):
        return pc.equal(pc.ascii_lower(texts), "true")
    try:
        values = texts.cast(kind)
    except pa.ArrowInvalid:
        return pa.nulls(len(texts), kind)
    return pc.if_else(_exact(texts), values, pa.scalar(None, kind)) if kind == pa.float64() else values


def _exact(texts: pa.Array) -> pa.BooleanArray:
    """Return for each number whether a double holds all of its digits."""
    sure = pc.fill_null(pc.match_substring_regex(texts, _SURVIVING), False)
    if pc.all(sure).as_py():
        return sure
    doubtful = pc.indices_nonzero(pc.and_(pc.invert(sure), pc.is_valid(texts)))
    exact = pa.array([survives_double(text) for text in texts.take(doubtful).to_pylist()], pa.bool_())
    mask = pc.and_(pc.invert(sure), pc.is_valid(texts))
    return pc.replace_with_mask(sure, mask, exact)


LOOKED_AT = 1000
"""So many of a column's texts, the first ones, show which option may be missing."""


class TextType:
    """The types that all texts of a column seen so far can have. `empty_is_null`: an empty text says nothing."""

    def __init__(
        self,
        kinds: Sequence[pa.DataType] = tuple(_PATTERNS),
        *,
        empty_is_null: bool = True,
        options: ReadingOptions = DEFAULT,
    ) -> None:
        self._left = list(kinds)
        self._options = options
        self._empty_is_null = empty_is_null
        self._first: list[str] = []

    def see(self, texts: pa.Array) -> None:
        """Take some of the column's texts into account; nulls say nothing."""
        if not self._left and self._first:
            return
        says = pc.not_equal(texts, "") if self._empty_is_null else pc.is_valid(texts)
        texts = texts.filter(pc.fill_null(says, False))
        if len(texts):
            self._first = self._first or texts.slice(0, LOOKED_AT).to_pylist()
            self._left = [kind for kind in self._left if self._all_are(texts, kind)]

    def kind(self) -> pa.DataType:
        """Return the type: text where no other is exact, or nothing was seen."""
        return self._left[0] if self._first and self._left else pa.string()

    def note(self) -> str:
        """Return the apparent kind of a column's values if it is text only because an option is missing; else ""."""
        return "" if self._left or not self._first else self._options.missing(self._first)

    def _all_are(self, texts: pa.Array, kind: pa.DataType) -> bool:
        return not any(plain(self._options.plain(some, kind), kind).null_count for some in (texts.slice(0, 1), texts))


Typed = tuple[pa.Array, dict[int, str]]
"""An array, and why values do not fit, by their index; they are null in it."""


def typed(texts: pa.Array, field: pa.Field, options: ReadingOptions = DEFAULT) -> Typed:
    """Return texts as values of a field. An empty text is null, but for a column of text."""
    kind = field.type
    if pa.types.is_string(kind):
        return _required(texts, field, {})
    array, reasons = _typed(options.plain(texts, kind), field)
    return array, {at: options.refusal(reason, texts[at].as_py(), kind) for at, reason in reasons.items()}


def _typed(texts: pa.Array, field: pa.Field) -> Typed:
    kind = field.type
    texts = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    read = _readers.get(kind)
    if read is None:
        array, reasons = column(field.with_nullable(True), [read_text(kind, text) for text in texts.to_pylist()])
        return _required(array, field, {at: _bare(reason, field) for at, reason in reasons.items()})
    plain_values = read(texts)
    odd = pc.and_(pc.is_valid(texts), pc.is_null(plain_values))
    if not pc.any(odd).as_py():
        return _required(plain_values, field, {})
    values = [read_text(kind, text) for text in texts.filter(odd).to_pylist()]
    places = pc.indices_nonzero(odd).to_pylist()
    array, reasons = column(field.with_nullable(True), values)
    plain_values = pc.replace_with_mask(plain_values, odd, array)
    return _required(plain_values, field, {places[at]: _bare(reason, field) for at, reason in reasons.items()})


def _required(array: pa.Array, field: pa.Field, reasons: dict[int, str]) -> Typed:
    if not field.nullable and array.null_count:
        for at in pc.indices_nonzero(pc.is_null(array)).to_pylist():
            reasons.setdefault(at, "required, but missing or null")
    return array, reasons


def _bare(reason: str, field: pa.Field) -> str:
    """Return a reason without the column's name, which comes before it anyway."""
    return reason.removeprefix(f"{field.name}: ")


def _integers(kind: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    def read(texts: pa.Array) -> pa.Array:
        numbers = plain(texts, pa.int64())
        try:
            return numbers.cast(kind)
        except pa.ArrowInvalid:
            return pa.nulls(len(texts), kind)

    return read


_readers: dict[pa.DataType, Callable[[pa.Array], pa.Array]] = {
    kind: (lambda texts, kind=kind: plain(texts, kind)) for kind in _PATTERNS
} | {kind: _integers(kind) for kind in (pa.int32(), pa.int16(), pa.int8())}
