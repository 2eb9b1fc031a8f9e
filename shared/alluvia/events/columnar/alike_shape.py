"""What lines of JSON have in common, and where the values of such lines are if they are cut at their quotes. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import accumulate
from typing import NamedTuple

import orjson
import pyarrow as pa

from alluvia.events.columnar.alike_columns import COMPACT, NUMBER, Path, Separators, literals_of

_SAMPLES = 16
_KEYS_MAX = 512
"""Each key takes as much as several lines do."""
_DEPTH_MAX = 16
"""Of objects in objects: far less than an event may have."""
_LINE = re.compile(rb"[ \t\r\n]*([^\n]*)")  # the next one that is not blank
_USUAL_SHARE_MIN = 0.75
"""Of the lines that are looked at, so many have the same keys. The others may be odd ones."""
_KINDS = {str: pa.string(), int: pa.int64(), bool: pa.bool_(), float: NUMBER}
NULL = "\0\0"  # as a text, which JSON does not allow: as long as null with its quotes, so that no line moves
_SPACED = Separators(": ", ", ")  # as Python's json module writes it


class Shape(NamedTuple):
    """What sampled lines have in common: the type at each path, in order, which values are null, separators and `end`.

    `never` are the paths whose value is in none of them, `some` those whose value is null in a part of them.
    """

    kinds: Mapping[Path, pa.DataType]
    never: frozenset[Path]
    some: frozenset[Path]
    separators: Separators
    end: str


def shape_of(sent: bytes) -> Shape | None:
    """Return what most of the lines have in common; None if their keys or types differ, or are not simple."""
    sampled = list(_sampled(sent))
    [(paths, count)] = Counter(tuple(fields) for _, fields in sampled).most_common(1) or [((), 0)]
    if not 0 < len(paths) <= _KEYS_MAX or count < len(sampled) * _USUAL_SHARE_MIN:
        return None
    usual = [(line, fields) for line, fields in sampled if tuple(fields) == paths]
    opening = b"{%b: " % orjson.dumps(paths[0][0])
    spaced = sum(line.startswith(opening) for line, _ in usual) * 2 > len(usual)
    returned = sum(line.endswith(b"\r") for line, _ in usual) * 2 > len(usual)
    kinds: dict[Path, pa.DataType] = {}
    never: set[Path] = set()
    some: set[Path] = set()
    for path, values in zip(paths, zip(*(fields.values() for _, fields in usual), strict=True), strict=True):
        types = Counter(map(type, values))
        nulls = types.pop(type(None), 0)
        kind = _usual(types) if types else pa.string()
        if kind is None or not all(orjson.dumps(name) == b'"%b"' % name.encode() for name in path):
            return None
        kinds[path] = kind
        if nulls:
            (some if types else never).add(path)
    separators, end = _SPACED if spaced else COMPACT, "\r\n" if returned else "\n"
    return Shape(kinds, frozenset(never), frozenset(some), separators, end)


def _sampled(sent: bytes) -> Iterator[tuple[bytes, dict[Path, object]]]:
    """Yield some lines and their fields, without those that no reader takes."""
    for number in range(_SAMPLES):
        start = sent.find(b"\n", len(sent) * number // _SAMPLES) + 1 if number else 0
        found = _LINE.search(sent, start)
        line = found[1] if found else b""
        with suppress(orjson.JSONDecodeError):
            value = orjson.loads(line)
            yield line, _fields(value) if isinstance(value, dict) else {}


def _fields(value: Mapping[str, object], parents: Path = ()) -> dict[Path, object]:
    """Return the values that are not objects, but for those without keys or too deep, by their paths."""
    found: dict[Path, object] = {}
    for name, each in value.items():
        if isinstance(each, dict) and each and len(parents) < _DEPTH_MAX:
            found |= _fields(each, (*parents, name))
        else:
            found[*parents, name] = each
    return found


def _usual(types: Counter[type]) -> pa.DataType | None:
    """Return the type of a column of values, most of which are of it; None if there is none."""
    if types[float] and types[int] < types.total() * _USUAL_SHARE_MIN:
        types[float] += types.pop(int, 0)
    [(kind, count)] = types.most_common(1)
    return _KINDS.get(kind) if count >= types.total() * _USUAL_SHARE_MIN else None


class Cells(NamedTuple):
    """In which cell of a line that is cut at its quotes the value at each path is, of `width` cells.

    After the value that is not a text comes the rest of its cell, of so many characters in `rests`, which are all that
    `ends` has. `before_nulls` stand before the colons of nulls that are written as texts first, so that all lines have
    the same number of quotes. What stands between the values of a line has `size` characters.
    """

    texts: Mapping[Path, str]
    others: Mapping[Path, str]
    rests: Mapping[Path, int]
    ends: frozenset[str]
    width: int
    before_nulls: Sequence[str]
    size: int


def cells_of(shape: Shape) -> Cells | None:
    """Return where the values are. None for lines without a value.

    The cell of a text is its own. A number stands between colon and comma, in one cell with them, and so does null.
    """
    texts = {path for path, kind in shape.kinds.items() if pa.types.is_string(kind)}
    before_nulls = [f'"{path[-1]}"' for path in shape.kinds if path in shape.some & texts]
    if before_nulls and shape.some <= texts:
        before_nulls = [""]  # in one pass, those that are always null too
    else:
        texts -= shape.never
    null = shape.never - texts
    literals = literals_of(tuple(shape.kinds), frozenset(texts), frozenset(null), shape.separators)
    valued = [path for path in shape.kinds if path not in null]
    if not valued:
        return None
    found = dict(zip(valued, map(str, accumulate(literal.count('"') for literal in literals)), strict=False))
    ends = {path: literal.partition('"')[0] for path, literal in zip(valued, literals[1:], strict=True)}
    others = {path: cell for path, cell in found.items() if path not in texts}
    return Cells(
        {path: cell for path, cell in found.items() if path in texts},
        others,
        {path: len(ends[path]) for path in others},
        frozenset(ends[path] for path in others),
        "".join(literals).count('"') + 1,
        before_nulls,
        len("".join(literals)),
    )
