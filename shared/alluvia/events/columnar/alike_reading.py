"""Read lines of JSON that are alike as columns, and prove that these say what the lines say. Pure.

Lines with the same keys are cut at their quotes, as pyarrow reads CSV. That knows nothing of JSON, so nothing that it
reads is trusted: each line is written again, key by key, from the columns that were read of it. Only a line that comes
out byte for byte is kept as columns. It is then the very text that the values have: it has no other key, no key twice,
no escape, no digit that was rounded, and no space but one after each colon and comma, where all lines have these.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from struct import Struct
from typing import NamedTuple

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.events.columnar.alike_columns import NUMBER, AlikeColumns
from alluvia.events.columnar.alike_shape import NULL, Cells, Shape, cells_of, shape_of
from alluvia.events.ingest.casting import cast_texts, replaced

_BOUNDS = Struct("=ii")
_FEW = 16
_RARE_MAX = 4  # nulls of a block, or others than null
_COMPARED_BYTES = 1 << 16
_WRITTEN_SHARE_MAX = 4
"""How many times as long as what was sent that may be which is written: most lines have the keys of the usual ones."""
_TEXT_BYTES_MAX = (1 << 31) - 1
_FIRST_PRINTABLE = 0x20  # JSON allows no character below it in a text
_CONTROL_CHARACTER = r"[\x00-\x1f]"
_WRITTEN = {
    pa.int64(): "^-?[0-9]{1,18}$",
    pa.bool_(): "^(true|false)$",
    pa.float64(): r"^-?[0-9]{1,18}(\.[0-9]{1,20})?$",
}
_PLAIN_MIN, _PLAIN_MAX = 1e-4, 1e15  # between them, whoever writes a double writes no exponent
_ZEROS = pa.array(["0", "0.0"], pa.string())  # but not -0, which is 0
SPACE = b" \t\r\n"
LINES_MIN = 64
"""Fewer lines, or fewer than each has keys, are not worth the work that a block takes for each key."""


class Alike(NamedTuple):
    """The `size` lines of a text that are not blank, as columns of all but those at the places `skipped`.

    Most of them are alike. `others` are the lines that are not, by their places, without the space around them: those
    that were skipped, and those of which the columns say something else.
    """

    text: pa.Buffer
    columns: AlikeColumns
    size: int
    skipped: Sequence[int]
    others: Mapping[int, bytes]

    def without(self, places: Sequence[int]) -> Alike:
        """Return all but the lines at some of the places of `others`, in order."""
        if not places:
            return self
        out = set(places)
        read = [at - bisect_left(self.skipped, at) for at in sorted(out.difference(self.skipped))]
        return Alike(
            self.text,
            self.columns.without(read) if read else self.columns,
            self.size - len(places),
            [at - bisect_left(places, at) for at in self.skipped if at not in out],
            {at - bisect_left(places, at): line for at, line in self.others.items() if at not in out},
        )


class _Read(NamedTuple):
    """The lines that were read, as columns, and the places of those that were skipped."""

    columns: AlikeColumns
    skipped: Sequence[int]


def read_alike(text: pa.Buffer, longest: int = sys.maxsize) -> Alike | None:
    """Read lines that seem alike. None if they do not, if most of them are not, or if there are few.

    Lines of more than `longest` bytes are alike to no other.
    """
    sent = _without_blank_end(text.to_pybytes())
    text = text.slice(0, len(sent))
    lines = sent.count(b"\n") + 1
    if len(text) > _TEXT_BYTES_MAX or lines < LINES_MIN:
        return None
    shape = shape_of(sent)
    cells = None if shape is None else cells_of(shape)
    if shape is None or cells is None or lines < len(shape.kinds):
        return None
    if lines * cells.size > len(sent) * _WRITTEN_SHARE_MAX:
        return None
    read = _cut_at_quotes(_to_cut(text, sent, shape, cells), shape, cells)
    return None if read is None else _proved(read, shape.end, text, sent, longest)


def _without_blank_end(sent: bytes) -> bytes:
    if sent.endswith((b"}", b"}\r")):
        return sent
    bare = len(sent.rstrip(SPACE))
    return sent[: bare + sent.startswith(b"\r", bare)]


def _one_text(text: pa.Buffer) -> pa.Array:
    """Return an array of one text, which may not be UTF-8."""
    return pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(_BOUNDS.pack(0, len(text))), text])


def _to_cut(text: pa.Buffer, sent: bytes, shape: Shape, cells: Cells) -> pa.Buffer:
    """Return lines for cutting: UTF-8 without other ends, and as many quotes in all as in most of them.

    A line that is changed, other than for a null, will not be what is written of it.
    """
    try:
        whole: pa.Array = _one_text(text).cast(pa.string())
    except pa.ArrowInvalid:
        whole = pa.array([sent.decode("utf-8", "ignore")])
    colon = shape.separators.colon
    for before in cells.before_nulls:
        whole = pc.replace_substring(whole, f"{before}{colon}null", f'{before}{colon}"{NULL}"')
    spoiling = "\\" if "\r" in shape.end else "\\\r"  # what begins an escape, and what ends a line of CSV
    for code in spoiling:
        if code.encode() in sent:
            whole = pc.replace_substring(whole, code, '"')  # as a quote, it spoils its line
    return whole.buffers()[2]


def _cut_at_quotes(text: pa.Buffer, shape: Shape, cells: Cells) -> _Read | None:
    """Cut lines at their quotes, and return what stands where values should be: some value where that is none.

    Lines with another number of quotes are skipped. None if all are.
    """
    from pyarrow import csv  # only for many lines: a cold start does without

    skipped: list[int] = []

    def skip(row: csv.InvalidRow) -> str:
        skipped.append(row.number - 1)
        return "skip"

    colon = shape.separators.colon
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
        null_values=[NULL, *(f"{colon}null{end}" for end in cells.ends)],
        strings_can_be_null=True,
    )
    found = csv.read_csv(pa.BufferReader(text), options, parsing, converting)
    if not len(found):
        return None
    columns = {path: pa.nulls(len(found), kind) for path, kind in shape.kinds.items()}
    for path, cell in {**cells.texts, **cells.others}.items():
        texts, is_text = found[cell].chunk(0), path in cells.texts
        if not is_text:
            texts = pc.binary_slice(texts, len(colon), -cells.rests[path]).cast(pa.string(), safe=False)
        if path in shape.never:
            texts = _all_null(texts)
        elif path not in shape.some and 0 < texts.null_count <= _RARE_MAX:
            texts = pc.fill_null(texts, "" if is_text else "0")
        columns[path] = _plain(texts) if is_text else _cast(texts, shape.kinds[path])
    return _Read(AlikeColumns(columns, shape.separators), skipped)


def _all_null(texts: pa.Array) -> pa.Array:
    """Return nulls where few texts are others: to look at their lines takes less than to write them."""
    return pa.nulls(len(texts), texts.type) if 0 < len(texts) - texts.null_count <= _RARE_MAX else texts


def _plain(texts: pa.Array) -> pa.Array:
    """Return texts, with an empty one for any with a control character."""
    data = texts.buffers()[2]
    codes = pa.Array.from_buffers(pa.uint8(), len(data or b""), [None, data])
    if texts.null_count == len(texts) or not len(codes) or pc.min(codes).as_py() >= _FIRST_PRINTABLE:
        return texts
    low = pc.indices_nonzero(pc.less(codes, _FIRST_PRINTABLE))
    if len(low) > _FEW:
        return pc.if_else(pc.match_substring_regex(texts, _CONTROL_CHARACTER), "", texts)
    ends = memoryview(texts.buffers()[1]).cast("i")[1:]
    return replaced(texts, sorted({bisect_right(ends, at) for at in low.to_pylist()}), "")


def _cast(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return the values of a type that texts say, with 0 or false for other texts."""
    if kind == NUMBER:
        return _numbers(texts)
    return cast_texts(texts, kind, _WRITTEN[kind], "false" if pa.types.is_boolean(kind) else "0")


def _numbers(texts: pa.Array) -> pa.Array:
    """Return the texts of numbers, with 0 for those that a double would not give back as they are written."""
    values = _cast(texts, pa.float64())
    written, size = values.cast(pa.string()), pc.abs(values)
    same = pc.or_(pc.equal(written, texts), pc.equal(pc.binary_join_element_wise(written, ".0", ""), texts))
    same = pc.and_(same, pc.and_(pc.greater_equal(size, _PLAIN_MIN), pc.less(size, _PLAIN_MAX)))
    return pc.if_else(pc.or_(same, pc.is_in(texts, _ZEROS)), texts, "0").cast(NUMBER)


def _proved(read: _Read, end: str, text: pa.Buffer, sent: bytes, longest: int) -> Alike | None:
    """Return the lines that are what is written of them; None if most of those that are not blank are not."""
    every, skipped = read
    written = every.lines(end)
    size = len(written) + len(skipped)
    others = _few_others(written, skipped, sent) if len(sent) <= longest else None
    if others is None:
        lines = pc.split_pattern(_one_text(text), "\n").flatten()
        others = _others(_with_blanks(written, skipped), lines, longest)
    if others is None:
        return None
    found = Alike(text, every, size, skipped, others).without([at for at, line in others.items() if not line])
    return None if len(found.others) * 2 > found.size else found


def _with_blanks(lines: pa.Array, places: Sequence[int]) -> pa.Array:
    """Return lines with blank ones put in, which will be at some places."""
    if not places:
        return lines
    blank = pa.array([""], lines.type)
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
    same = pc.equal(written.cast(pa.binary()), pc.binary_join_element_wise(sent, b"\n", b""))
    different = pc.invert(pc.and_(same, pc.less_equal(pc.binary_length(sent), longest)))
    lines = sent.filter(different).to_pylist()
    places = pc.indices_nonzero(different).to_pylist()
    return {place: line.strip(SPACE) for place, line in zip(places, lines, strict=True)}
