"""Names as SQL compares them. Pure.

DuckDB folds only the letters A to Z: it treats `K` (the Kelvin sign) and `k` as two names. Python's `lower()` treats
them as one, so a check that used it would not see the query that runs.
"""

from __future__ import annotations

from string import ascii_lowercase, ascii_uppercase

_FOLD = str.maketrans(ascii_uppercase, ascii_lowercase)


def fold(name: str) -> str:
    """Return the text that two names share if DuckDB treats them as equal."""
    return name.translate(_FOLD)
