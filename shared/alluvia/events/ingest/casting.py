"""Cast texts to a type that some of them do not fit. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa

from alluvia.arrow_compute import pc

_TRIES = 4
_REFUSED = re.compile(r"Failed to parse string: '(.*)' as a scalar of type", re.DOTALL)
"""What Arrow says of the first text that does not fit. It is only a hint."""


def cast_texts(texts: pa.Array, kind: pa.DataType, fitting: str, other: str | None) -> pa.Array:
    """Return the values that texts say, with that of `other` for those that say none.

    A few that do not fit are found by what Arrow says of each, in a fraction of the time of `fitting`, a regular
    expression that holds for texts that Arrow reads; with more of them, only its texts keep their values.
    """
    for _ in range(_TRIES):
        try:
            return texts.cast(kind)
        except pa.ArrowInvalid as error:
            refused = _REFUSED.search(str(error))
            at = -1 if refused is None else pc.index(texts, pa.scalar(refused[1], texts.type)).as_py()
            if at < 0:
                break
            texts = replaced(texts, [at], other)
    return pc.if_else(pc.match_substring_regex(texts, fitting), texts, pa.scalar(other, texts.type)).cast(kind)


def replaced(texts: pa.Array, places: Sequence[int], other: str | None) -> pa.Array:
    """Return texts with another one at some places, in order. For few, this is several times as fast as `if_else`."""
    spare = pa.array([other], texts.type)
    found, start = [], 0
    for place in places:
        found += [texts.slice(start, place - start), spare]
        start = place + 1
    return pa.concat_arrays([*found, texts.slice(start)])
