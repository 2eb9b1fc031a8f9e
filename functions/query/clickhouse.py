"""What ClickHouse's clients send besides the query: formats, in a header, a parameter or a FORMAT clause. Pure.

Tinybird takes the same clause. Loaded for requests that have one of these.
"""

from __future__ import annotations

import re

from alluvia.errors import Invalid, cut

NAMES = {
    "JSONEachRow": "ndjson",
    "CSVWithNames": "csv",
    "TabSeparatedWithNames": "tsv",
    "TSVWithNames": "tsv",
    "Parquet": "parquet",
    "ArrowStream": "arrow",
}
"""ClickHouse's names of forms that answers come in here, too. Its JSON, CSV and TSV are others than ours."""
_CLAUSE = re.compile(r"\bFORMAT\s+(?P<name>[A-Za-z]\w*)[\s;]*\Z", re.IGNORECASE)
_LAST_WORD = re.compile(r"\w+\Z")
_NAMES_FOLLOW = frozenset(("FROM", "JOIN", "SELECT", "DISTINCT", "ALL", "ZONE", "COLLATE", "TABLE", "AS", "BY"))
"""Words after which FORMAT is a name, and not a clause."""


def format_of(name: str) -> str:
    """Return our name of a format. Raises `Invalid` for one that answers do not come in."""
    found = next((ours for theirs, ours in NAMES.items() if theirs.lower() == name.lower()), None)
    if found is None:
        offered = ", ".join(NAMES)
        raise Invalid(
            f"FORMAT {cut(name, 50)}: of ClickHouse's formats, answers come in {offered}. For others, leave it out and "
            "send format=json (an array), csv or tsv (with a header row)"
        )
    return found


def without_clause(text: str) -> tuple[str, str | None]:
    """Return a query without the FORMAT clause at its end, and our name of the format; None if it has no clause.

    DuckDB has no such clause: a text with one is never a query of its own. Raises `Invalid` for other formats.
    """
    match = _CLAUSE.search(text)
    if match is None or "--" in text.rstrip().rpartition("\n")[2]:
        return text, None
    before = text[: match.start()].rstrip()
    word = _LAST_WORD.search(before[-100:])
    ends = before[-1:] in tuple(")]}'\"") if word is None else word[0].upper() not in _NAMES_FOLLOW
    return (before, format_of(match["name"])) if ends else (text, None)
