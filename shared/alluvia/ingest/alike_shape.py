"""What lines of JSON have in common, and where the values of such lines are if they are cut at their quotes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple

import orjson
import pyarrow as pa

from alluvia.ingest.alike_columns import COMPACT, NUMBER, Path, Separators, literals_of

_SAMPLES = 16
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


def _fields(value: Mapping[str, object], parents: Path = ()) -> Iterator[tuple[Path, object]]:
    """Yield the values that are no objects, but for those without keys, with their paths."""
    for name, found in value.items():
        if isinstance(found, dict) and found:
            yield from _fields(found, (*parents, name))
        else:
            yield (*parents, name), found


def shape_of(sent: bytes) -> Shape | None:
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
        fields = dict(_fields(value)) if isinstance(value, dict) else {}
        sampled.append((tuple(fields), line, fields))
    [(paths, count)] = Counter(paths for paths, _, _ in sampled).most_common(1) or [((), 0)]
    if not paths or count < len(sampled) * _USUAL_SHARE_MIN:
        return None
    usual = [(line, fields) for found, line, fields in sampled if found == paths]
    opening = b"{%b: " % orjson.dumps(paths[0][0])
    spaced = sum(line.startswith(opening) for line, _ in usual) * 2 > len(usual)
    returned = sum(line.endswith(b"\r") for line, _ in usual) * 2 > len(usual)
    kinds: dict[Path, pa.DataType] = {}
    never: set[Path] = set()
    some: set[Path] = set()
    for path in paths:
        types = Counter(type(fields[path]) for _, fields in usual)
        nulls = types.pop(type(None), 0)
        if types[float] and types[int] < types.total() * _USUAL_SHARE_MIN:
            types[float] += types.pop(int, 0)
        [(kind, count)] = types.most_common(1) or [(str, 0)]
        is_simple = kind in _KINDS and all(orjson.dumps(name) == b'"%b"' % name.encode() for name in path)
        if not is_simple or count < types.total() * _USUAL_SHARE_MIN:
            return None
        kinds[path] = _KINDS[kind]
        if nulls:
            (some if types else never).add(path)
    return Shape(
        kinds,
        frozenset(never),
        frozenset(some),
        _SPACED if spaced else COMPACT,
        "\r\n" if returned else "\n",
    )


class Cells(NamedTuple):
    """In which cell of a line that is cut at its quotes the value at each path is, of `width` cells.

    After the value that is no text comes the rest of its cell, of so many characters in `rests`, which are all that
    `ends` has. `before_nulls` stand before the colons of nulls that are written as texts first, so that all lines have
    the same number of quotes.
    """

    texts: Mapping[Path, str]
    others: Mapping[Path, str]
    rests: Mapping[Path, int]
    ends: frozenset[str]
    width: int
    before_nulls: Sequence[str]


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
    literals = literals_of(shape.kinds, texts, null, shape.separators)
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
    )
