"""Names and texts as SQL has them. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from alluvia.errors import Unsupported


def quote_name(name: str) -> str:
    """Return an SQL identifier. Raises `Unsupported` for a name with a NUL, at which DuckDB's parser ends."""
    if "\0" in name:
        msg = f"the name {name!r} contains a NUL character, which SQL does not allow: read the other columns with scan"
        raise Unsupported(msg)
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Return an SQL expression for a text: a literal, or several where it has a NUL, at which the parser ends."""
    parts = ["'" + part.replace("'", "''") + "'" for part in text.split("\0")]
    return parts[0] if len(parts) == 1 else f"({' || chr(0) || '.join(parts)})"


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """Return a name that is none of those taken, whatever the case: the one wanted, or that with a number."""
    known = {name.lower() for name in taken}
    names = (wanted, *(f"{wanted}_{number}" for number in range(len(known))))
    return next(name for name in names if name not in known)
