"""Columns of text, such as those of CSV, to columns of a type, and the type that loses nothing. Pure.

Spaces around a value say nothing, except in text. Inference takes a type only where every value of the file is written
as that type writes it: `007`, `1E5`, `1.50e400`, `+5` and numbers beyond 64 bits make a column text. Declared types
take what they can hold exactly, as ingestion does. In columns that only the table has declared, such codes are errors:
one rule decides whether a column is text, and whether a text may become a number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import repeat

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.schema.types import type_name
from alluvia.files.column_notes import CODE, PointedNumbers, are_yes_or_no, as_code, is_code, may_be, said_of
from alluvia.files.reading_options import DEFAULT, ReadingOptions, is_number
from alluvia.json_values.convert import column, read_text
from alluvia.json_values.instants import TIMESTAMP, plain_instants
from alluvia.json_values.jsontext import survives_double

_DAY = r"(?:[1-9][0-9]{3}|0[1-9][0-9]{2}|00[1-9][0-9]|000[1-9])-[0-9]{2}-[0-9]{2}"
"""Of the years that Python and JSON's readers have: Arrow has the year 0 as well."""
_CLOCK = rf"{_DAY}[T ][0-9]{{2}}:[0-9]{{2}}(?::[0-9]{{2}}(?:\.[0-9]{{1,6}})?)?"
_FRACTION, _POWER = r"\.[0-9]{1,99}", "[0-9]{1,3}"
_PATTERNS: dict[pa.DataType, str] = {
    pa.bool_(): r"^(?i:true|false)$",
    pa.int64(): r"^(?:0|-?[1-9][0-9]{0,18})$",
    pa.float64(): rf"^-?(?:0|[1-9][0-9]{{0,99}})(?:(?:{_FRACTION})?(?:[eE][-+]{_POWER})?|{_FRACTION}[eE]{_POWER})$",
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
NAMED = 3
"""So many texts that are of another type than most are named."""
SAMPLE = 100
"""So many show whether most of them are of some type."""


class TextType:
    """The types that all texts of a column seen so far can have. `empty_is_null`: an empty text says nothing.

    `points_may_group`: where no comma separates cells, points in numbers may group digits.
    """

    def __init__(
        self,
        kinds: Sequence[pa.DataType] = tuple(_PATTERNS),
        *,
        empty_is_null: bool = True,
        options: ReadingOptions = DEFAULT,
        points_may_group: bool = False,
    ) -> None:
        self._left = list(kinds)
        self._options = options
        self._empty_is_null = empty_is_null
        self._first: list[str] = []
        self._misfit = ""
        self._points = PointedNumbers() if points_may_group else None

    def see(self, texts: pa.Array, start: int = 0) -> None:
        """Take some of the column's texts into account, after the first `start` rows; nulls say nothing."""
        if not self._left and self._first:
            return
        if self._empty_is_null:
            texts = pc.utf8_trim_whitespace(texts)
        says = pc.fill_null(pc.not_equal(texts, "") if self._empty_is_null else pc.is_valid(texts), False)
        texts = texts.filter(says)
        if not len(texts):
            return
        self._first = self._first or texts.slice(0, LOOKED_AT).to_pylist()
        before = self._left
        self._left = [kind for kind in before if self._all_are(texts, kind)]
        if not self._left:
            found = self._first_misfit(texts, before)
            if found is not None:
                at = start + pc.indices_nonzero(says)[found[0]].as_py()
                by_null = "; --null reads such a text as null (null)" if self._empty_is_null else ""
                self._misfit = f"row {at + 1}: {found[1]}{by_null}"
        elif self._points is not None and pa.float64() in self._left:
            self._points.see(texts, pc.indices_nonzero(says), start)

    def kind(self) -> pa.DataType:
        """Return the type: text where no other is exact, or nothing was seen."""
        if not self._first or not self._left or self._doubt() is not None:
            return pa.string()
        return self._left[0]

    def note(self) -> str:
        """Return why the column is text, if most of its values are something else: "is text …"; else ""."""
        if not self._first:
            return ""
        if (doubt := self._doubt()) is not None:
            return f"is text: in row {doubt[0]}, {may_be(doubt[1])}"
        if self._left:
            return ""
        if missing := self._options.missing(self._first):
            return f"is text: it seems to have {missing}"
        if self._misfit:
            return f"is text because of {self._misfit}"
        if are_yes_or_no(self._first):
            return f"is text: it has {self._first[0]!r:.20}, but booleans are written true and false"
        unread = self._options.unread(self._first)
        return f"is text: it has values such as {unread}" if unread else ""

    def _doubt(self) -> tuple[int, str] | None:
        if self._points is None or not self._points.are_doubtful or self._left[:1] != [pa.float64()]:
            return None
        return self._points.first

    def _all_are(self, texts: pa.Array, kind: pa.DataType) -> bool:
        return not any(self._plain(some, kind).null_count for some in (texts.slice(0, 1), texts))

    def _plain(self, texts: pa.Array, kind: pa.DataType) -> pa.Array:
        return plain(self._options.plain(texts, kind), kind)

    def _first_misfit(self, texts: pa.Array, kinds: Sequence[pa.DataType]) -> tuple[int, str] | None:
        """Return the first text that is not of the type that most texts have, by its index, and why; None without one.

        The reason names the next ones, too. Codes such as `007` do not count: a number would not keep their digits.
        """
        sample = texts.slice(0, SAMPLE)
        counts = {kind: self._unread(sample, kind).count(False) for kind in kinds}
        kind = max(counts, key=lambda each: counts[each], default=None)
        if kind is None or 2 * counts[kind] < len(sample) or not counts[kind]:
            return None
        found: dict[str, int] = {}
        for start in range(0, len(texts), LOOKED_AT):
            some = texts.slice(start, LOOKED_AT)
            for at, is_unread in enumerate(self._unread(some, kind) if self._plain(some, kind).null_count else ()):
                if is_unread and not is_code(text := some[at].as_py()):
                    found.setdefault(text, start + at)
            if len(found) > NAMED:
                break
        if not found:
            return None
        (first, place), *others = found.items()
        reason = f"{first!r:.50} is not {said_of(kind)}{self._options.as_written(kind)}"
        if others:
            more = " and others" if len(others) >= NAMED else ""
            reason += f", like {', '.join(f'{text!r:.50}' for text, _ in others[: NAMED - 1])}{more} in later rows"
        return place, reason

    def _unread(self, texts: pa.Array, kind: pa.DataType) -> list[bool]:
        """Return for each text whether it is not of a type."""
        texts = self._options.plain(texts, kind)
        unread = [value is None for value in plain(texts, kind).to_pylist()]
        if all(unread) and pc.any(pc.match_substring_regex(texts, _PATTERNS[kind])).as_py():
            return [plain(text, kind).null_count > 0 for text in map(texts.slice, range(len(texts)), repeat(1))]
        return unread


Typed = tuple[pa.Array, dict[int, str]]
"""An array, and why values do not fit, by their index; they are null in it."""


_DECLARED = {b"alluvia.declared": b"by the sender"}


def as_declared(schema: pa.Schema, declared: pa.Schema | None) -> pa.Schema:
    """Return a schema for `typed` whose fields say whether the sender of a file has declared them."""
    names = () if declared is None else declared.names
    return pa.schema([each.with_metadata(_DECLARED) if each.name in names else each for each in schema])


def typed(texts: pa.Array, field: pa.Field, options: ReadingOptions = DEFAULT) -> Typed:
    """Return texts as values of a field. An empty text is null, but for a column of text.

    A code such as `007` does not fit a number, unless the sender has declared the column.
    """
    kind = field.type
    if pa.types.is_string(kind):
        return _required(texts, field, {})
    if options.format_of(kind) or options.groups:
        texts = pc.utf8_trim_whitespace(texts)
    array, reasons = _typed(options.plain(texts, kind), field)
    return array, {at: options.refusal(reason, texts[at].as_py(), kind) for at, reason in reasons.items()}


def _typed(texts: pa.Array, field: pa.Field) -> Typed:
    kind = field.type
    texts = _nulled(texts)
    read = _readers.get(kind)
    if read is None:
        texts = _nulled(pc.utf8_trim_whitespace(texts))
        array, reasons = column(field.with_nullable(True), [read_text(kind, text) for text in texts.to_pylist()])
        return _required(array, field, _why(reasons, texts, array, field))
    plain_values = read(texts)
    odd = pc.and_(pc.is_valid(texts), pc.is_null(plain_values))
    if pc.any(odd).as_py():
        texts = _nulled(pc.utf8_trim_whitespace(texts))
        plain_values = read(texts)
        odd = pc.and_(pc.is_valid(texts), pc.is_null(plain_values))
    if not pc.any(odd).as_py():
        return _required(plain_values, field, {})
    odd_texts = texts.filter(odd)
    places = pc.indices_nonzero(odd).to_pylist()
    array, reasons = column(field.with_nullable(True), [read_text(kind, text) for text in odd_texts.to_pylist()])
    plain_values = pc.replace_with_mask(plain_values, odd, array)
    why = _why(reasons, odd_texts, array, field)
    return _required(plain_values, field, {places[at]: reason for at, reason in why.items()})


def _nulled(texts: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)


def _required(array: pa.Array, field: pa.Field, reasons: dict[int, str]) -> Typed:
    if not field.nullable and array.null_count:
        for at in pc.indices_nonzero(pc.is_null(array)).to_pylist():
            reasons.setdefault(at, "required, but missing or null")
    return array, reasons


def _why(reasons: Mapping[int, str], texts: pa.Array, values: pa.Array, field: pa.Field) -> dict[int, str]:
    """Return the reasons without the column's name, which comes before them anyway, and those of codes."""
    bare = {at: reason.removeprefix(f"{field.name}: ") for at, reason in reasons.items()}
    if not is_number(field.type) or _DECLARED.items() <= (field.metadata or {}).items():
        return bare
    codes = pc.indices_nonzero(pc.and_(pc.match_substring_regex(texts, CODE), pc.is_valid(values))).to_pylist()
    kind = type_name(field.type)
    return bare | {at: as_code(values[at], field.name, kind) for at in codes}


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
