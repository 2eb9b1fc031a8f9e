"""How to write fields of events that have no column. Pure."""

from __future__ import annotations

import re

from alluvia.engine.duck.quoting import quote_text

PROPERTIES = "properties"
_NO_COLUMN = re.compile(r'Referenced column "([^"\']+)" not found|does not have a column named "([^"\']+)"')
_NO_STRUCT = re.compile(rf"Cannot extract field '([^\"']+)' from expression \"{PROPERTIES}\"")
_NO_TABLE = re.compile(r'Referenced table "([^"\']+)" not found')
_SUBSCRIPT = re.compile(rf"\b{PROPERTIES}\s*\[\s*'([^\"']+)'\s*\]", re.IGNORECASE)


def field_sql(name: str) -> str:
    """Return the SQL of a field of `properties`, as text."""
    place = f"$.{name}" if name.isidentifier() else "/" + name.replace("~", "~0").replace("/", "~1")
    return f"{PROPERTIES}->>{quote_text(place)}"


def field_hint(message: str, text: str) -> str | None:
    """Return how to write the field that a query asks for as if it were a column; None where it asks for none.

    message: what DuckDB says of the query. text: the query.
    """
    found = _NO_COLUMN.search(message) or _NO_STRUCT.search(message)
    if found is None and message.startswith("Could not convert string"):
        found = _SUBSCRIPT.search(text)
    if found is not None:
        return f"A field without a column is in {PROPERTIES}: {field_sql(next(filter(None, found.groups())))}"
    if (found := _NO_TABLE.search(message)) is not None and found[1].isidentifier():
        return f"An object without a column is in {PROPERTIES}: {PROPERTIES}->>'$.{found[1]}.…'"
    return None
