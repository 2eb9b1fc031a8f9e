"""The names that DuckDB gives to columns without an alias, with the tables that the query names. Pure.

DuckDB makes such a name from the expression that it runs, which has views in place of the tables of subqueries.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

VIEW_SCHEMA = "alluvia"
"""The schema of the views that replace tables."""
Shown = Mapping[str, Sequence[Any]]
"""By the name of a view, the table as the query names it, and whether the query gives it an alias; by the name of a
column that stands for a field, how the query reads the field."""
FIELDS = "alluvia_field_"
"""The start of the names of columns that stand for fields of `properties`."""
_FIELD = re.compile(rf"(?P<table>(?:\"(?:[^\"]|\"\")*\"|\w+)\.)?\b(?P<column>{FIELDS}\d+)\b")
_VIEW = re.compile(rf'\b{VIEW_SCHEMA}\.(?P<view>\w+)(?P<alias> AS (?:"(?:[^"]|"")*"|\w+))?')


def column_name(name: str, shown: Shown) -> str:
    """Return a column's name with tables in the place of views."""

    def table(match: re.Match[str]) -> str:
        known = shown.get(match["view"])
        if known is None:
            return match[0]
        name, has_alias = known
        return f"{name}{match['alias'] or ''}" if has_alias else str(name)

    def field(match: re.Match[str]) -> str:
        known = shown.get(match["column"])
        return match[0] if known is None else f"({match['table'] or ''}{known[0]})"

    name = _VIEW.sub(table, name) if shown and f"{VIEW_SCHEMA}." in name else name
    return _FIELD.sub(field, name) if shown and FIELDS in name else name
