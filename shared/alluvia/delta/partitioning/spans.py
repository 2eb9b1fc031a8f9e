"""Spans: which transforms' values a file's rows have, as one contiguous range of them. Pure.

A key of rows is a tuple with a value for each transform of the specification, in its order; keys compare as tuples,
null after every value. A file holds one value of each identity column, and the keys from `low` to `high`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from alluvia.delta.log.actions import AddFile
from alluvia.lazy_dataclasses import dataclass

PARTITION_TAG = "alluvia.partition"
"""The tag of an add: JSON with a value for each transform, or a list of the values in the lowest and highest key."""

KeyPart = tuple[bool, Any]
"""Whether the value is null, and the value: text or a whole number; the empty text for null."""
Key = tuple[KeyPart, ...]


@dataclass(frozen=True, slots=True)
class Span:
    """The keys from `low` to `high`, both included; of a table without transforms, the empty tuples."""

    low: Key
    high: Key

    @property
    def single(self) -> bool:
        """Whether all rows have one key: no split by partition makes it narrower."""
        return self.low == self.high

    def tag(self, names: Sequence[str]) -> str:
        """Return the text of `PARTITION_TAG`; `names` are the transforms' texts, such as `day(ts)`."""
        values = {}
        for name, low, high in zip(names, self.low, self.high, strict=True):
            values[name] = _plain(low) if low == high else [_plain(low), _plain(high)]
        return orjson.dumps(values).decode()


def part(value: str | int | None) -> KeyPart:
    """Return a transform's value as part of a key."""
    return (value is None, "" if value is None else value)


def hull(spans: Iterable[Span]) -> Span:
    """Return the narrowest span that contains all of some spans. Raises `ValueError` for none."""
    found = list(spans)
    return Span(min(span.low for span in found), max(span.high for span in found))


def tagged_span(file: AddFile, kinds: Mapping[str, type]) -> Span | None:
    """Return the span that a file's tag gives; None without a tag, or for one that is not of these transforms.

    `kinds` has for each transform's text, in the specification's order, what its values are: `str` or `int`.
    """
    try:
        values: Any = orjson.loads(file.tags.get(PARTITION_TAG, "null"))
    except ValueError:
        return None
    if not isinstance(values, dict) or values.keys() != kinds.keys():
        return None
    low, high = [], []
    for name, kind in kinds.items():
        ends = values[name] if isinstance(values[name], list) else [values[name]] * 2
        if len(ends) != 2 or not all(end is None or type(end) is kind for end in ends):
            return None
        low.append(part(ends[0]))
        high.append(part(ends[1]))
    span = Span(tuple(low), tuple(high))
    return span if span.low <= span.high else None


def cut(sizes: Sequence[int], least: int, most: int | None = None) -> list[range]:
    """Cut keys into contiguous ranges of their positions; `sizes` are the bytes of each key's rows, keys in order.

    A range ends once it holds `least` bytes, and before it would hold more than `most`. A key that alone has `least`
    bytes or more is a range of its own. So of `total` bytes come at most `2 * total // least` ranges where `most` is
    None.
    """
    ranges: list[range] = []
    start = held = 0
    for at, size in enumerate(sizes):
        full = held >= least or size >= least or (most is not None and held + size > most)
        if start < at and full:
            ranges.append(range(start, at))
            start, held = at, 0
        held += size
    if start < len(sizes):
        ranges.append(range(start, len(sizes)))
    return ranges


def _plain(value: KeyPart) -> str | int | None:
    found: str | int = value[1]
    return None if value[0] else found
