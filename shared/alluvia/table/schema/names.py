"""Names as SQL compares them. Pure.

DuckDB folds the letters A to Z and nothing else: to it `K` (the Kelvin sign) and `k` are two names. Python's `lower()`
takes them for one, and a check that compares names with it looks at another query than the one that runs.
"""

from __future__ import annotations

from string import ascii_lowercase, ascii_uppercase

_FOLD = str.maketrans(ascii_uppercase, ascii_lowercase)


def fold(name: str) -> str:
    """Return the text that two names share if DuckDB takes them for one."""
    return name.translate(_FOLD)
