"""Columns of lists of one size, such as embeddings: `FLOAT[384]`. Pure.

Delta has no such type. The column is an array, which each reader reads, and a CHECK constraint holds its size.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from alluvia.errors import Invalid

SIZE_MAX = 100_000
"""DuckDB's limit."""
SIZE_FUNCTION = "array_size"
"""Spark's name, since constraints are Spark's SQL."""
_SIZED = re.compile(rf"(`(?:[^`]|``)+`) IS NULL OR {SIZE_FUNCTION}\(\1\) = (\d{{1,6}})")


def size_constraint(column: str, size: int) -> tuple[str, str]:
    """Return the name and the text of the constraint that a column's lists have a size. Raises `Invalid`."""
    if not 0 < size <= SIZE_MAX:
        raise Invalid(f"column {column}: a list of a fixed size has 1 to {SIZE_MAX} elements, not {size}")
    if "`" in column or "\\" in column:
        raise Invalid(f"column {column}: give a column of a fixed size a name without ` and \\")
    return f"{column}_size", f"`{column}` IS NULL OR {SIZE_FUNCTION}(`{column}`) = {size}"


def list_sizes(constraints: Mapping[str, str], columns: Iterable[str]) -> dict[str, int]:
    """Return the sizes of a table's columns of lists, by name, as such constraints say."""
    found = (_SIZED.fullmatch(text) for text in constraints.values())
    sizes = {match[1][1:-1]: int(match[2]) for match in found if match is not None}
    return {name: sizes[name] for name in columns if name in sizes}
