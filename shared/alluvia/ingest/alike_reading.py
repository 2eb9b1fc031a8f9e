"""Read lines of JSON that are alike as columns, and prove that these say what the lines say. Pure.

Lines with the same keys are cut at their quotes, as pyarrow reads CSV, or else parsed by pyarrow.json, which is slower.
Neither is as strict as `jsontext`, so nothing that they read is trusted: each line is written again, key by
key, from the columns that were read of it. Only a line that comes out byte for byte is kept as columns. It is then the
very text that the values have: it has no other key, no key twice, no escape, no digit that was rounded, and no space
but one after each colon and comma, where all lines have these.
"""

from __future__ import annotations

import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import NamedTuple

import orjson
import pyarrow as pa

from alluvia.arrow_compute import pc

_SAMPLES = 16
_USUAL_SHARE_MIN = 0.75
"""Of the lines that are looked at, so many have the same keys. The others may be odd ones."""
_BOUNDS = Struct("=ii")
_LINE_END = "\n"
_FEW = 16
_COMPARED_BYTES = 1 << 16
_TEXT_BYTES_MAX = (1 << 31) - 1
_KINDS = {str: pa.string(), int: pa.int64(), bool: pa.bool_()}
_NULL = "\0\0"  # as a text, which JSON does not allow: as long as null with its quotes, so that no line moves
_FIRST_PRINTABLE = 0x20  # JSON allows no character below it in a text
SPACE = b" \t\r\n"


class Separators(NamedTuple):
    """What stands between keys and values, and between the fields of an object."""

    colon: str = ":"
    comma: str = ","


COMPACT = Separators()
_SPACED = Separators(": ", ", ")  # as Python's json module writes it


class AlikeColumns:
    """Objects with the same keys, as a column for each: texts, integers (64 bits), or true and false, with nulls."""

    def __init__(self, columns: Mapping[str, pa.Array]) -> None:
        self.columns = columns
        self._json: dict[str, pa.Array] = {}

    def texts(self, names: Sequence[str], end: str = "", separators: Separators = COMPACT) -> pa.Array:
        """Return for each object the JSON text of its fields of those names, in that order, and an end."""
        literals: list[str] = []
        columns: list[pa.Array] = []
        literal = "{"
        for at, name in enumerate(names):
            column = self.columns[name]
            literal += f'{separators.comma if at else ""}"{name}"{separators.colon}'
            if column.null_count == len(column):
                literal += "null"
                continue
            plain = pa.types.is_string(column.type) and not column.null_count
            literals.append(f'{literal}"' if plain else literal)
            columns.append(column if plain else self._json_of(name, column))
            literal = '"' if plain else ""
        literal += f"}}{end}"
        if not columns:
            return pa.repeat(literal, len(self.columns[names[0]]))
        first, *others = columns
        rest = [each for pair in zip(literals[1:], others, strict=True) for each in pair]
        return pc.binary_join_element_wise(literals[0], first, *rest, literal, "")

    def _json_of(self, name: str, column: pa.Array) -> pa.Array:
        if name not in self._json:
            is_text = pa.types.is_string(column.type)
            found = pc.binary_join_element_wise('"', column, '"', "") if is_text else column.cast(pa.string())
            self._json[name] = pc.fill_null(found, "null") if found.null_count else found
        return self._json[name]

    def where(self, mask: pa.BooleanArray) -> AlikeColumns:
        """Return the objects for which a mask holds."""
        return AlikeColumns({name: column.filter(mask) for name, column in self.columns.items()})


class Alike(NamedTuple):
    """Those of the `size` lines of a text that are alike, as columns.

    `others` are the other lines, by their places, without the space around them. None of them is blank.
    """

    text: pa.Buffer
    columns: AlikeColumns
    size: int
    others: Mapping[int, bytes]


class _Shape(NamedTuple):
    """What sampled lines have in common: the type of each key, in order, which values are null, and the separators.

    `never` are the keys whose value is in none of them, `some` those whose value is null in a part of them.
    """

    kinds: Mapping[str, pa.DataType]
    never: frozenset[str]
    some: frozenset[str]
    separators: Separators


class _Read(NamedTuple):
    """The lines that were read, as columns, and the places of those that were skipped."""

    columns: AlikeColumns
    skipped: Sequence[int] = ()


def read_alike(text: pa.Buffer, longest: int = sys.maxsize) -> Alike | None:
    """Read lines that seem alike. None if they do not, if most of them are not, or if some are blank.

    Lines of more than `longest` bytes are alike to no other. Raises pyarrow.ArrowInvalid for one that is not JSON, not
    UTF-8, or has a value of another type than the others.
    """
    if len(text) > _TEXT_BYTES_MAX:
        return None
    sent = text.to_pybytes()
    shape = _shape_of(sent)
    if shape is None:
        return None
    whole = _one_text(text)
    cut = _cut_at_quotes(whole, sent, shape)
    if cut is not None and (found := _proved(cut, shape, whole, sent, longest)) is not None:
        return found
    parsed = _parsed(text, shape)
    return None if parsed is None else _proved(parsed, shape, whole, sent, longest)


def _shape_of(sent: bytes) -> _Shape | None:
    """Return what most of the lines have in common; None if their keys or types differ, or are not simple."""
    sampled = []
    for number in range(_SAMPLES):
        start = sent.find(b"\n", len(sent) * number // _SAMPLES) + 1 if number else 0
        end = sent.find(b"\n", start)
        line = sent[start : len(sent) if end < 0 else end]
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError:  # no reader takes it
            continue
        sampled.append((tuple(value) if isinstance(value, dict) else (), line, value))
    [(keys, count)] = Counter(keys for keys, _, _ in sampled).most_common(1) or [((), 0)]
    if not keys or count < len(sampled) * _USUAL_SHARE_MIN:
        return None
    usual = [(line, value) for found, line, value in sampled if found == keys]
    spaced = usual[0][0].startswith(b"{%b: " % orjson.dumps(keys[0]))
    seen = {name: {type(value[name]) for _, value in usual} for name in keys}
    null = type(None)
    kinds: dict[str, pa.DataType] = {}
    for name, types in seen.items():
        known = types - {null} or {str}
        if len(known) > 1 or not known <= _KINDS.keys() or orjson.dumps(name) != b'"%b"' % name.encode():
            return None
        kinds[name] = _KINDS[known.pop()]
    never = frozenset(name for name, types in seen.items() if types == {null})
    some = frozenset(name for name, types in seen.items() if null in types and name not in never)
    return _Shape(kinds, never, some, _SPACED if spaced else COMPACT)


def _one_text(text: pa.Buffer) -> pa.Array:
    """Return an array of one text. Raises pyarrow.ArrowInvalid if it is not UTF-8."""
    bounds = pa.py_buffer(_BOUNDS.pack(0, len(text)))
    return pa.Array.from_buffers(pa.binary(), 1, [None, bounds, text]).cast(pa.string())


def _cut_at_quotes(whole: pa.Array, sent: bytes, shape: _Shape) -> _Read | None:
    """Cut lines at their quotes, and return what stands where values should be. None if that is not what they are.

    Lines with another number of quotes are skipped; None if there are more than a few.
    """
    cells = _cells_of(shape)
    if cells is None or b"\r" in sent:  # which ends a line of CSV
        return None
    from pyarrow import csv  # only for many lines: a cold start does without

    skipped: list[int] = []

    def skip(row: csv.InvalidRow) -> str:
        skipped.append(row.number - 1)
        return "skip" if len(skipped) <= _FEW else "error"

    colon, comma = shape.separators
    if cells.null_texts:
        whole = pc.replace_substring(whole, f"{colon}null", f'{colon}"{_NULL}"')
    if b"\\" in sent:  # escapes begin with it: as a quote, it spoils its line
        whole = pc.replace_substring(whole, "\\", '"')
    options = csv.ReadOptions(
        use_threads=False, block_size=len(sent) + 1, column_names=[str(at) for at in range(cells.width)]
    )
    parsing = csv.ParseOptions(
        delimiter='"', quote_char=False, double_quote=False, ignore_empty_lines=False, invalid_row_handler=skip
    )
    converting = csv.ConvertOptions(
        check_utf8=False,
        include_columns=[*cells.texts.values(), *cells.others.values()],
        column_types=dict.fromkeys(cells.texts.values(), pa.string())
        | dict.fromkeys(cells.others.values(), pa.binary()),
        null_values=[_NULL, f"{colon}null{comma}", f"{colon}null}}"],
        strings_can_be_null=True,
    )
    try:
        found = csv.read_csv(pa.BufferReader(whole.buffers()[2]), options, parsing, converting)
        if not len(found):
            return None
        columns = {name: pa.nulls(len(found), kind) for name, kind in shape.kinds.items()}
        columns |= {name: found[cell].chunk(0) for name, cell in cells.texts.items()}
        for name, cell in cells.others.items():
            end = 1 if name == cells.last else len(comma)  # a brace or a comma
            values = pc.binary_slice(found[cell].chunk(0), len(colon), -end)
            columns[name] = values.cast(pa.string()).cast(shape.kinds[name])
    except pa.ArrowInvalid:
        return None
    if any(_has_control_characters(columns[name]) for name in cells.texts):
        return None
    return _Read(AlikeColumns(columns), skipped)


class _Cells(NamedTuple):
    """In which cell of a line that is cut at its quotes the values of each key are, of `width` cells.

    `null_texts` says that nulls are written as texts first, so that all lines have the same number of quotes.
    """

    texts: Mapping[str, str]
    others: Mapping[str, str]
    last: str
    width: int
    null_texts: bool


def _cells_of(shape: _Shape) -> _Cells | None:
    """Return where the values are. None for lines that differ in their numbers of quotes, or without a value.

    After the cell of a key come that of a colon, for a text its own, and that of a comma. A number stands between colon
    and comma, in one cell with them, and so does null.
    """
    texts = {name for name, kind in shape.kinds.items() if pa.types.is_string(kind)}
    null_texts = bool(shape.some & texts)
    if not null_texts:
        texts -= shape.never
    elif not shape.some <= texts:  # a number that is null would be a text too
        return None
    found: dict[str, str] = {}
    at = 0
    for name in shape.kinds:
        found[name] = str(at + (3 if name in texts else 2))
        at += 4 if name in texts else 2
    others = {name: cell for name, cell in found.items() if name not in texts and name not in shape.never}
    if not texts and not others:
        return None
    return _Cells(
        {name: found[name] for name in found if name in texts}, others, next(reversed(found)), at + 1, null_texts
    )


def _has_control_characters(texts: pa.Array) -> bool:
    data = texts.buffers()[2]
    if not data:
        return False
    return bool(pc.min(pa.Array.from_buffers(pa.uint8(), len(data), [None, data])).as_py() < _FIRST_PRINTABLE)


def _parsed(text: pa.Buffer, shape: _Shape) -> _Read | None:
    """Parse lines as JSON; None if there are none.

    Raises pyarrow.ArrowInvalid for one that is not JSON or has a value of another type than the others.
    """
    from pyarrow import json  # only for many lines: a cold start does without

    options = json.ParseOptions(
        explicit_schema=pa.schema(list(shape.kinds.items())), unexpected_field_behavior="ignore"
    )
    found = json.read_json(
        pa.BufferReader(text), json.ReadOptions(use_threads=False, block_size=len(text) + 1), options
    )
    return _Read(AlikeColumns({name: found[name].chunk(0) for name in shape.kinds})) if len(found) else None


def _proved(read: _Read, shape: _Shape, whole: pa.Array, sent: bytes, longest: int) -> Alike | None:
    """Return the lines that are what is written of them; None if most are not, or if some are blank."""
    every, skipped = read
    names = list(shape.kinds)
    size = len(every.columns[names[0]]) + len(skipped)
    written = _with_blanks(every.texts(names, _LINE_END, shape.separators), skipped)
    others = _few_others(written, sent) if len(sent) <= longest else None
    if others is None:
        others = _others(written, pc.split_pattern(whole, "\n").flatten(), longest)
    if others is None or len(others) * 2 > size or not all(others.values()):
        return None
    if others.keys() != set(skipped):
        every = every.where(pa.array([at not in others for at in range(size) if at not in skipped], pa.bool_()))
    return Alike(whole.buffers()[2], every, size, others)


def _with_blanks(lines: pa.Array, places: Sequence[int]) -> pa.Array:
    """Return lines with blank ones put in, which will be at some places."""
    if not places:
        return lines
    blank = pa.array([_LINE_END], lines.type)
    found, start = [], 0
    for before, place in enumerate(places):
        found += [lines.slice(start, place - before - start), blank]
        start = place - before
    return pa.concat_arrays([*found, lines.slice(start)])


def _few_others(written: pa.Array, sent: bytes) -> dict[int, bytes] | None:
    """Return the lines that are not what was written of them, by their places; None if there are more than a few.

    All that was written lies one after another, as all lines do, so they are compared many at a time.
    """
    ends = memoryview(written.buffers()[1]).cast("i")
    ours, theirs = written.buffers()[2], pa.py_buffer(sent)
    found: dict[int, bytes] = {}
    at = start = 0  # of a line, where it was written and where it was sent
    while True:
        same = _common(ours, at, theirs, start)
        if start + same == len(sent) and at + same + 1 == len(ours):
            return found
        place = bisect_right(ends, at + same) - 1
        if place == len(written) or len(found) == _FEW:
            return None
        begin = start + ends[place] - at
        end = sent.find(b"\n", begin)
        found[place] = sent[begin : len(sent) if end < 0 else end].strip(SPACE)
        if end < 0 or place + 1 == len(written):
            return found if end < 0 and place + 1 == len(written) else None
        at, start = ends[place + 1], end + 1


def _common(one: pa.Buffer, at: int, other: pa.Buffer, start: int) -> int:
    """Return how many bytes are the same from some place of one buffer and another on."""
    most = min(len(one) - at, len(other) - start)
    same, step = 0, _COMPARED_BYTES
    while same < most and step:
        size = min(step, most - same)
        if one.slice(at + same, size).equals(other.slice(start + same, size)):
            same += size
        else:
            step = size // 2
    return same


def _others(written: pa.Array, sent: pa.Array, longest: int) -> dict[int, bytes] | None:
    """Return the lines that are not what was written of them, or too long; None if their numbers differ."""
    if len(written) != len(sent):
        return None
    same = pc.equal(written, pc.binary_join_element_wise(sent, _LINE_END, ""))
    different = pc.invert(pc.and_(same, pc.less_equal(pc.binary_length(sent), longest)))
    lines = sent.filter(different).cast(pa.binary()).to_pylist()
    places = pc.indices_nonzero(different).to_pylist()
    return {place: line.strip(SPACE) for place, line in zip(places, lines, strict=True)}
