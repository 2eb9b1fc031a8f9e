"""Read lines of JSON that are alike as columns, and prove that these say what the lines say. Pure.

Lines with the same keys are cut at their quotes, as pyarrow reads CSV. That knows nothing of JSON, so nothing that it
reads is trusted: each line is written again, key by key, from the columns that were read of it. Only a line that comes
out byte for byte is kept as columns. It is then the very text that the values have: it has no other key, no key twice,
no escape, no digit that was rounded, and no space but one after each colon and comma, where all lines have these.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import NamedTuple

import orjson
import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.ingest.values import all_but

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
_CONTROL_CHARACTER = r"[\x00-\x1f]"
_WRITTEN = {pa.int64(): "^-?[0-9]{1,18}$", pa.bool_(): "^(true|false)$"}
SPACE = b" \t\r\n"


class Separators(NamedTuple):
    """What stands between keys and values, and between the fields of an object."""

    colon: str = ":"
    comma: str = ","


COMPACT = Separators()
_SPACED = Separators(": ", ", ")  # as Python's json module writes it


class AlikeColumns:
    """Objects with the same keys, as a column for each: texts, integers (64 bits), or true and false, with nulls."""

    def __init__(self, columns: Mapping[str, pa.Array], separators: Separators = COMPACT) -> None:
        self.columns = columns
        self._separators = separators  # as sent
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

    def at(self, places: Sequence[int]) -> AlikeColumns:
        """Return the objects at some places."""
        taken = pa.array(places, pa.int64())
        return AlikeColumns({name: column.take(taken) for name, column in self.columns.items()}, self._separators)

    def without(self, places: Sequence[int]) -> AlikeColumns:
        """Return all objects but those at some places, in order."""
        size = len(next(iter(self.columns.values())))
        if len(places) > _FEW:
            return self.at(all_but(places, size))
        starts = [0, *(place + 1 for place in places)]
        pieces = [(start, end - start) for start, end in zip(starts, [*places, size], strict=True)]

        def rest(columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
            return {name: pa.concat_arrays([each.slice(*piece) for piece in pieces]) for name, each in columns.items()}

        found = AlikeColumns(rest(self.columns), self._separators)
        found._json = rest(self._json)
        return found

    def lines(self, end: str = "") -> pa.Array:
        """Return the objects' JSON texts as sent, and an end."""
        return self.texts(list(self.columns), end, self._separators)


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
    skipped: Sequence[int]


def read_alike(text: pa.Buffer, longest: int = sys.maxsize) -> Alike | None:
    """Read lines that seem alike. None if they do not, if most of them are not, or if some are blank.

    Lines of more than `longest` bytes are alike to no other.
    """
    if len(text) > _TEXT_BYTES_MAX:
        return None
    sent = text.to_pybytes()
    shape = _shape_of(sent)
    cells = None if shape is None else _cells_of(shape)
    if shape is None or cells is None:
        return None
    read = _cut_at_quotes(_to_cut(text, sent, shape, cells), shape, cells)
    return None if read is None else _proved(read, text, sent, longest)


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
    kinds: dict[str, pa.DataType] = {}
    never: set[str] = set()
    some: set[str] = set()
    for name in keys:
        types = Counter(type(value[name]) for _, value in usual)
        nulls = types.pop(type(None), 0)
        [(kind, count)] = types.most_common(1) or [(str, 0)]
        is_simple = kind in _KINDS and orjson.dumps(name) == b'"%b"' % name.encode()
        if not is_simple or count < types.total() * _USUAL_SHARE_MIN:
            return None
        kinds[name] = _KINDS[kind]
        if nulls:
            (some if types else never).add(name)
    return _Shape(kinds, frozenset(never), frozenset(some), _SPACED if spaced else COMPACT)


def _one_text(text: pa.Buffer) -> pa.Array:
    """Return an array of one text, which may not be UTF-8."""
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(_BOUNDS.pack(0, len(text))), text])


def _to_cut(text: pa.Buffer, sent: bytes, shape: _Shape, cells: _Cells) -> pa.Buffer:
    """Return lines for cutting: UTF-8 without `\\r`, and as many quotes in all as in most of them.

    A line that is changed, other than for a null, will not be what is written of it.
    """
    try:
        whole: pa.Array = _one_text(text).cast(pa.string())
    except pa.ArrowInvalid:
        whole = pa.array([sent.decode("utf-8", "ignore")])
    colon = shape.separators.colon
    for before in cells.before_nulls:
        whole = pc.replace_substring(whole, f"{before}{colon}null", f'{before}{colon}"{_NULL}"')
    for code in ("\\", "\r"):  # what begins an escape, and what ends a line of CSV: as a quote, it spoils its line
        if code.encode() in sent:
            whole = pc.replace_substring(whole, code, '"')
    return whole.buffers()[2]


def _cut_at_quotes(text: pa.Buffer, shape: _Shape, cells: _Cells) -> _Read | None:
    """Cut lines at their quotes, and return what stands where values should be: some value where that is none.

    Lines with another number of quotes are skipped. None if all are.
    """
    from pyarrow import csv  # only for many lines: a cold start does without

    skipped: list[int] = []

    def skip(row: csv.InvalidRow) -> str:
        skipped.append(row.number - 1)
        return "skip"

    colon, comma = shape.separators
    options = csv.ReadOptions(
        use_threads=False, block_size=len(text) + 1, column_names=[str(at) for at in range(cells.width)]
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
    found = csv.read_csv(pa.BufferReader(text), options, parsing, converting)
    if not len(found):
        return None
    columns = {name: pa.nulls(len(found), kind) for name, kind in shape.kinds.items()}
    columns |= {name: _plain(found[cell].chunk(0)) for name, cell in cells.texts.items()}
    for name, cell in cells.others.items():
        end = 1 if name == cells.last else len(comma)  # a brace or a comma
        values = pc.binary_slice(found[cell].chunk(0), len(colon), -end)
        columns[name] = _cast(values.cast(pa.string(), safe=False), shape.kinds[name])
    return _Read(AlikeColumns(columns, shape.separators), skipped)


def _plain(texts: pa.Array) -> pa.Array:
    """Return texts, with an empty one for any with a control character."""
    data = texts.buffers()[2]
    if not data or pc.min(pa.Array.from_buffers(pa.uint8(), len(data), [None, data])).as_py() >= _FIRST_PRINTABLE:
        return texts
    return pc.if_else(pc.match_substring_regex(texts, _CONTROL_CHARACTER), "", texts)


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the values of a type that texts say, with 0 or false for other texts."""
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        known = pc.match_substring_regex(texts, _WRITTEN[kind])
        return pc.if_else(known, texts, "0" if pa.types.is_int64(kind) else "false").cast(kind)


class _Cells(NamedTuple):
    """In which cell of a line that is cut at its quotes the values of each key are, of `width` cells.

    `before_nulls` stand before the colons of nulls that are written as texts first, so that all lines have the same
    number of quotes.
    """

    texts: Mapping[str, str]
    others: Mapping[str, str]
    last: str
    width: int
    before_nulls: Sequence[str]


def _cells_of(shape: _Shape) -> _Cells | None:
    """Return where the values are. None for lines without a value.

    After the cell of a key come that of a colon, for a text its own, and that of a comma. A number stands between colon
    and comma, in one cell with them, and so does null.
    """
    texts = {name for name, kind in shape.kinds.items() if pa.types.is_string(kind)}
    before_nulls = [f'"{name}"' for name in shape.kinds if name in shape.some & texts]
    if before_nulls and shape.some <= texts:
        before_nulls = [""]  # in one pass, those that are always null too
    else:
        texts -= shape.never
    found: dict[str, str] = {}
    at = 0
    for name in shape.kinds:
        found[name] = str(at + (3 if name in texts else 2))
        at += 4 if name in texts else 2
    others = {name: cell for name, cell in found.items() if name not in texts and name not in shape.never}
    if not texts and not others:
        return None
    return _Cells(
        {name: found[name] for name in found if name in texts}, others, next(reversed(found)), at + 1, before_nulls
    )


def _proved(read: _Read, text: pa.Buffer, sent: bytes, longest: int) -> Alike | None:
    """Return the lines that are what is written of them; None if most are not, or if some are blank."""
    every, skipped = read
    written = every.lines(_LINE_END)
    size = len(written) + len(skipped)
    others = _few_others(written, skipped, sent) if len(sent) <= longest else None
    if others is None:
        lines = pc.split_pattern(_one_text(text), "\n").flatten()
        others = _others(_with_blanks(written, skipped), lines, longest)
    if others is None or len(others) * 2 > size or not all(others.values()):
        return None
    if len(others) > len(skipped):
        left_out = set(skipped)
        every = every.without([at - bisect_left(skipped, at) for at in others if at not in left_out])
    return Alike(text, every, size, others)


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


def _few_others(written: pa.Array, skipped: Sequence[int], sent: bytes) -> dict[int, bytes] | None:
    """Return the lines that are not what was written of them, by their places; None if there are more than a few.

    Nothing was written of those at the places `skipped`. All that was written lies one after another, as all lines do,
    so they are compared many at a time.
    """
    ends = memoryview(written.buffers()[1]).cast("i")
    ours, theirs = written.buffers()[2], pa.py_buffer(sent)
    found: dict[int, bytes] = {}
    passed = at = start = 0  # how many were skipped, and of a line, where it was written and where it was sent
    while True:
        same = _common(ours, at, theirs, start)
        if start + same == len(sent) and at + same + 1 == len(ours):
            return found if passed == len(skipped) else None
        place = bisect_right(ends, at + same) - 1
        is_skipped = passed < len(skipped) and skipped[passed] == place + passed
        if len(found) == _FEW or (place == len(written) and not is_skipped):
            return None
        begin = start + ends[place] - at
        end = sent.find(b"\n", begin)
        found[place + passed] = sent[begin : len(sent) if end < 0 else end].strip(SPACE)
        passed += is_skipped
        place += not is_skipped
        if end < 0:
            return found if (place, passed) == (len(written), len(skipped)) else None
        at, start = ends[place], end + 1


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
    same = pc.equal(written.cast(pa.binary()), pc.binary_join_element_wise(sent, _LINE_END.encode(), b""))
    different = pc.invert(pc.and_(same, pc.less_equal(pc.binary_length(sent), longest)))
    lines = sent.filter(different).to_pylist()
    places = pc.indices_nonzero(different).to_pylist()
    return {place: line.strip(SPACE) for place, line in zip(places, lines, strict=True)}
