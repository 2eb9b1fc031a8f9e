"""Whether decimals have no more digits than their type allows: Arrow's form of them has room for 39. Pure.

No other reader takes such a value: Spark refuses the file, or shows null.
"""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache
from typing import Any

import pyarrow as pa

from alluvia.arrow_compute import pc


def parts_of(values: Any) -> list[Any]:
    """Return the arrays that a nested array is made of, in the order of its type; values that a null hides may remain.

    None of an array that is not nested. Fields of a union are included.
    """
    kind = values.type
    if pa.types.is_struct(kind):
        return list(values.flatten())
    if pa.types.is_map(kind):
        return [values.keys, values.items]
    if pa.types.is_union(kind):
        return [values.field(at) for at in range(kind.num_fields)]
    if isinstance(kind, (pa.ListType, pa.LargeListType, pa.FixedSizeListType)):
        return [values.flatten()]
    return []


def too_long(values: pa.Array | pa.ChunkedArray) -> Decimal | None:
    """Return a decimal that has more digits than the type of its column, or of a part of it, allows; else None."""
    if not has_decimals(values.type):
        return None
    if isinstance(values, pa.ChunkedArray):
        return next((found for chunk in values.chunks if (found := too_long(chunk)) is not None), None)
    if not pa.types.is_decimal(values.type):
        return next((found for part in parts_of(values) if (found := too_long(part)) is not None), None)
    bounds = pc.min_max(values)
    ends = (bounds["min"].as_py(), bounds["max"].as_py())
    return next((each for each in ends if each is not None and not digits_fit(each, values.type)), None)


def digits_fit(value: Decimal, kind: Any) -> bool:
    """Whether a decimal has no more digits before the point than a type of decimals has room for."""
    return not value or value.adjusted() < kind.precision - kind.scale


@lru_cache(maxsize=1024)
def has_decimals(kind: pa.DataType) -> bool:
    """Whether a type is one of decimals, or has such a part."""
    if pa.types.is_decimal(kind):
        return True
    return any(has_decimals(kind.field(at).type) for at in range(kind.num_fields))
