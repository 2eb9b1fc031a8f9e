"""Read lines of JSON that have the same keys as columns, and prove that these say what the lines say. Pure.

msgspec reads such lines with a type made for their keys, in half of the time that Python objects of any shape take. It
is laxer than `jsontext`: of two equal keys it takes the last one, it skips keys that it does not know, and it rounds
long numbers. So nothing that it reads is trusted: each line is written again, and only a line that comes out as it was
sent, but for spaces, is kept as columns. Such a line has no other key, none twice, and no number that was changed. One
with a backslash is not kept either, so that every text stands in JSON as it is.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from io import BytesIO
from itertools import islice
from operator import attrgetter, methodcaller
from typing import Annotated, Any, NamedTuple

import orjson
import pyarrow as pa

from alluvia.events.ingest.json_columns import NUMBER, JsonColumns, Path, numbers

SPACE = b" \t\r\n"
_STRIP = methodcaller("strip", SPACE)
LINES_MIN = 64
"""Fewer lines, or fewer than each has keys, are not worth the work that a block takes for each key."""
_SAMPLES = 16
_KEYS_MAX = 512
"""Each key takes as much as several lines do."""
_DEPTH_MAX = 16
"""Of objects in objects: far less than an event may have."""
_USUAL_SHARE_MIN = 0.75
"""The share of the sampled lines that have the same keys, and of the values of a key that have one type."""
_PART_BYTES = 1 << 14
"""Lines of about this many bytes are read at once; where one of them may be odd, one by one."""
_KINDS = {str: pa.string(), int: pa.int64(), bool: pa.bool_(), float: NUMBER}
Kinds = tuple[tuple[Path, pa.DataType], ...]
"""The keys that lines have in common: the type of the value at each path, in order. Any value may be null."""


class ParsedLines(NamedTuple):
    """`size` lines, none of them blank. `columns` has all of them but the `odd` ones, by their places."""

    kinds: Kinds
    columns: JsonColumns
    size: int
    odd: Mapping[int, bytes]


class _Reader(NamedTuple):
    """What reads lines with some keys. `values`: what takes the value at each path from an object that was read."""

    decode: Callable[[bytes], object]
    decode_lines: Callable[[bytes], list[object]]
    encode_lines: Callable[[Sequence[object]], bytes]
    values: Mapping[Path, Callable[[object], Any]]


def lines_of(text: bytes) -> list[bytes]:
    """Return the lines of a text that are not blank, without the space around them."""
    return list(filter(None, map(_STRIP, text.split(b"\n"))))


def lines_at(numbers: Collection[int], text: memoryview) -> dict[int, bytes]:
    """Return some of the lines that `lines_of` returns, by their numbers, without a copy of all of them."""
    lines = filter(None, map(_STRIP, BytesIO(text)))
    some = enumerate(islice(lines, max(numbers, default=-1) + 1))
    return {number: line for number, line in some if number in numbers}


def parse_columns(text: bytes, longest: int = sys.maxsize, known: Kinds | None = None) -> ParsedLines | None:
    """Read the lines of a text as columns. None if there are few, or if most of them do not have the same keys.

    Lines of more than `longest` bytes are odd. known: the keys of lines before these, which are tried first.
    """
    parsed = None if known is None else _parsed(text, longest, known)
    if parsed is not None and len(parsed.odd) <= parsed.size * (1 - _USUAL_SHARE_MIN):
        return parsed
    lines = lines_of(text)
    kinds = _kinds_of(lines) if len(lines) >= LINES_MIN else None
    return None if kinds is None or len(lines) < len(kinds) else _parsed(text, longest, kinds)


def _parsed(text: bytes, longest: int, kinds: Kinds) -> ParsedLines | None:
    reader = _reader_of(kinds)
    objects: list[object] = []
    odd: dict[int, bytes] = {}
    plain = True
    for part in _parts(text):
        values = _whole(part, longest, reader) if plain else None
        plain = values is not None  # after a part with odd lines, the next one often has some, too
        if values is None:
            lines = lines_of(part)
            values, failed = _decoded(lines, reader.decode)
            failed |= set(_changed(lines, values, failed, reader.encode_lines))
            failed |= {at for at, line in enumerate(lines) if b"\\" in line or len(line) > longest}
            odd |= {len(objects) + at: lines[at] for at in sorted(failed)}
            plain = not failed
        objects += values
    if len(objects) < LINES_MIN or len(odd) * 2 > len(objects):
        return None
    kept = [each for at, each in enumerate(objects) if at not in odd] if odd else objects
    columns = {path: _column(kind, list(map(reader.values[path], kept))) for path, kind in kinds}
    return ParsedLines(kinds, JsonColumns(columns), len(objects), odd)


def _parts(text: bytes) -> Iterator[bytes]:
    """Cut a text into parts of whole lines, so that an odd line has only those around it looked at one by one."""
    start = 0
    while start < len(text):
        end = text.find(b"\n", start + _PART_BYTES) + 1 or len(text)
        yield text[start:end]
        start = end


def _whole(part: bytes, longest: int, reader: _Reader) -> list[object] | None:
    """Return the values of the lines of a part; None if one of them may be odd."""
    if b"\\" in part or len(part) > longest:
        return None
    try:
        values = reader.decode_lines(part)
    except (ValueError, RecursionError):
        return None
    if returns := part.count(b"\r"):
        if returns != part.count(b"\n"):  # they do not end lines alone
            return None
        part = part.replace(b"\r", b"")
    written, sent = reader.encode_lines(values), part if part.endswith(b"\n") else part + b"\n"
    return values if written == sent or _bare(written) == _bare(sent) else None


def _decoded(lines: Sequence[bytes], decode: Callable[[bytes], object]) -> tuple[list[object], set[int]]:
    """Return what lines hold, and the places of those that cannot be read, where None stands for it."""
    values: list[object] = []
    failed: set[int] = set()
    rest = iter(lines)
    while True:
        try:
            values.extend(map(decode, rest))
        except (ValueError, RecursionError):  # what came before it is there, and `rest` goes on after it
            failed.add(len(values))
            values.append(None)
        else:
            return values, failed


def _changed(
    lines: Sequence[bytes],
    objects: Sequence[object],
    failed: set[int],
    encode_lines: Callable[[Sequence[object]], bytes],
) -> Iterator[int]:
    """Yield the places of the lines that are not written again as they were sent, but for spaces."""
    read = [at for at in range(len(lines)) if at not in failed]
    written = encode_lines([objects[at] for at in read]).split(b"\n")
    yield from (at for at, again in zip(read, written, strict=False) if _bare(lines[at]) != _bare(again))


def _bare(text: bytes) -> bytes:
    return text.replace(b" ", b"")


def _column(kind: pa.DataType, values: list[Any]) -> pa.Array:
    if kind == NUMBER and int in set(map(type, values)):
        return numbers(values)
    return pa.array(values, pa.float64() if kind == NUMBER else kind)


def _kinds_of(lines: Sequence[bytes]) -> Kinds | None:
    """Return what most of the lines have in common; None if their keys or types differ, or are not simple."""
    sampled = list(_sampled(lines))
    [(paths, count)] = Counter(map(tuple, sampled)).most_common(1) or [((), 0)]
    if not 0 < len(paths) <= _KEYS_MAX or count < len(sampled) * _USUAL_SHARE_MIN:
        return None
    usual = [fields for fields in sampled if tuple(fields) == paths]
    kinds: list[tuple[Path, pa.DataType]] = []
    for path, values in zip(paths, zip(*(fields.values() for fields in usual), strict=True), strict=True):
        types = Counter(type(value) for value in values if value is not None)
        kind = _usual(types) if types else pa.string()
        if kind is None or not all(orjson.dumps(name) == b'"%b"' % name.encode() for name in path):
            return None
        kinds.append((path, kind))
    return tuple(kinds)


def _sampled(lines: Sequence[bytes]) -> Iterator[dict[Path, object]]:
    """Yield the fields of some lines, without those that no reader takes."""
    for number in range(_SAMPLES):
        with suppress(orjson.JSONDecodeError):
            value = orjson.loads(lines[len(lines) * number // _SAMPLES])
            yield _fields(value) if isinstance(value, dict) else {}


def _fields(value: Mapping[str, object], parents: Path = ()) -> dict[Path, object]:
    """Return the values that are not objects, but for those without keys or too deep, by their paths."""
    fields: dict[Path, object] = {}
    for name, each in value.items():
        if isinstance(each, dict) and each and len(parents) < _DEPTH_MAX:
            fields |= _fields(each, (*parents, name))
        else:
            fields[*parents, name] = each
    return fields


def _usual(types: Counter[type]) -> pa.DataType | None:
    """Return the type of a column of values, most of which are of it; None if there is none."""
    if types[float] and types[int] < types.total() * _USUAL_SHARE_MIN:
        types[float] += types.pop(int, 0)
    [(kind, count)] = types.most_common(1)
    return _KINDS.get(kind) if count >= types.total() * _USUAL_SHARE_MIN else None


@lru_cache(maxsize=64)  # most blocks are like the one before
def _reader_of(kinds: Kinds) -> _Reader:
    from msgspec import Meta, json  # only for many lines: a cold start does without

    int64, exact = Meta(ge=-(2**63), le=2**63 - 1), Meta(ge=-(2**53), le=2**53)  # a double holds each of these
    types: dict[pa.DataType, Any] = {
        pa.string(): str, pa.int64(): Annotated[int, int64], pa.bool_(): bool, NUMBER: Annotated[int, exact] | float,
    }  # fmt: skip
    tree: dict[str, Any] = {}
    for path, kind in kinds:
        fields = tree
        for name in path[:-1]:
            fields = fields.setdefault(name, {})
        fields[path[-1]] = types[kind] | None
    places: dict[Path, str] = {}
    decoder: json.Decoder[object] = json.Decoder(_record_of(tree, places))
    return _Reader(
        decoder.decode,
        decoder.decode_lines,
        json.Encoder().encode_lines,
        {path: attrgetter(place) for path, place in places.items()},
    )


def _record_of(tree: Mapping[str, Any], places: dict[Path, str], parents: Path = (), prefix: str = "") -> type:
    """Return the type of objects with some keys, and add the place of the value at each path in such an object."""
    from msgspec import defstruct

    fields: list[tuple[str, Any]] = []
    for number, (name, kind) in enumerate(tree.items()):
        place = f"f{number}"
        if isinstance(kind, dict):
            fields.append((place, _record_of(kind, places, (*parents, name), f"{prefix}{place}.")))
        else:
            fields.append((place, kind))
            places[*parents, name] = prefix + place
    return defstruct("Record", fields, rename=dict(zip((place for place, _ in fields), tree, strict=True)), gc=False)
