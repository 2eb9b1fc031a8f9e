"""What a text begins with, before anything is loaded that reads statements. Pure."""

from __future__ import annotations

import re

QUERIES = frozenset({"select", "with", "from", "values", "table", "summarize", "explain", "pivot", "unpivot", "("})
_FIRST = re.compile(r"(?:[\s;]++|--[^\r\n]*+|/\*.*?\*/)*+(?P<word>\w++|\(|\Z|.)", re.DOTALL)


def first_word(text: str) -> str:
    """Return the first word of a text in lower case, or its first sign; empty if it has none."""
    match = _FIRST.match(text)
    return match["word"].lower() if match else ""


def is_query(text: str) -> bool:
    """Whether a text can only be one query, or nothing that DuckDB runs: it begins like one, and holds no `;`."""
    word = first_word(text)
    return (word in QUERIES or not word) and ";" not in text.rstrip("; \t\r\n")
