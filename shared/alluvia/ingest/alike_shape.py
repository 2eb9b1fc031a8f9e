"""What lines of JSON have in common, and where the values of such lines are if they are cut at their quotes. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import orjson
import pyarrow as pa

from alluvia.ingest.alike_columns import COMPACT, NUMBER, Separators

_SAMPLES = 16
_USUAL_SHARE_MIN = 0.75
"""Of the lines that are looked at, so many have the same keys. The others may be odd ones."""
_KINDS = {str: pa.string(), int: pa.int64(), bool: pa.bool_(), float: NUMBER}
NULL = "\0\0"  # as a text, which JSON does not allow: as long as null with its quotes, so that no line moves
_SPACED = Separators(": ", ", ")  # as Python's json module writes it


class Shape(NamedTuple):
    """What sampled lines have in common: the type of each key, in order, which values are null, separators and `end`.

    `never` are the keys whose value is in none of them, `some` those whose value is null in a part of them.
    """

    kinds: Mapping[str, pa.DataType]
    never: frozenset[str]
    some: frozenset[str]
    separators: Separators
    end: str


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
        sampled.append((tuple(value) if isinstance(value, dict) else (), line, value))
    [(keys, count)] = Counter(keys for keys, _, _ in sampled).most_common(1) or [((), 0)]
    if not keys or count < len(sampled) * _USUAL_SHARE_MIN:
        return None
    usual = [(line, value) for found, line, value in sampled if found == keys]
    opening = b"{%b: " % orjson.dumps(keys[0])
    spaced = sum(line.startswith(opening) for line, _ in usual) * 2 > len(usual)
    returned = sum(line.endswith(b"\r") for line, _ in usual) * 2 > len(usual)
    kinds: dict[str, pa.DataType] = {}
    never: set[str] = set()
    some: set[str] = set()
    for name in keys:
        types = Counter(type(value[name]) for _, value in usual)
        nulls = types.pop(type(None), 0)
        if types[float] and types[int] < types.total() * _USUAL_SHARE_MIN:
            types[float] += types.pop(int, 0)
        [(kind, count)] = types.most_common(1) or [(str, 0)]
        is_simple = kind in _KINDS and orjson.dumps(name) == b'"%b"' % name.encode()
        if not is_simple or count < types.total() * _USUAL_SHARE_MIN:
            return None
        kinds[name] = _KINDS[kind]
        if nulls:
            (some if types else never).add(name)
    return Shape(
        kinds,
        frozenset(never),
        frozenset(some),
        _SPACED if spaced else COMPACT,
        "\r\n" if returned else "\n",
    )


class Cells(NamedTuple):
    """In which cell of a line that is cut at its quotes the values of each key are, of `width` cells.

    `before_nulls` stand before the colons of nulls that are written as texts first, so that all lines have the same
    number of quotes.
    """

    texts: Mapping[str, str]
    others: Mapping[str, str]
    last: str
    width: int
    before_nulls: Sequence[str]


def cells_of(shape: Shape) -> Cells | None:
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
    return Cells(
        {name: found[name] for name in found if name in texts}, others, next(reversed(found)), at + 1, before_nulls
    )
