"""Values and names as SQL text that DuckDB reads. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from alluvia.errors import Invalid, Unsupported
from alluvia.table_names import sql_name


def quote_name(name: str) -> str:
    """Return an SQL identifier. Raises `Unsupported` for a name with a NUL, at which DuckDB's parser ends."""
    if "\0" in name:
        msg = f"the name {name!r} contains a NUL character, which SQL does not allow: read the other columns with scan"
        raise Unsupported(msg)
    return '"' + name.replace('"', '""') + '"'


def quote_table(name: str) -> str:
    """Return the name of a table in SQL, such as `"bronze"."events"."_rejects"`, by the library's name for it."""
    return ".".join(map(quote_name, sql_name(name).split(".")))


def quote_text(text: str) -> str:
    """Return an SQL expression for a text: a literal, or several where it has a NUL, at which the parser ends."""
    parts = ["'" + part.replace("'", "''") + "'" for part in text.split("\0")]
    return parts[0] if len(parts) == 1 else f"({' || chr(0) || '.join(parts)})"


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """Return a name that is not taken, whatever its case: the one wanted, or that with a number."""
    known = {name.lower() for name in taken}
    names = (wanted, *(f"{wanted}_{number}" for number in range(len(known))))
    return next(name for name in names if name not in known)


def literal(value: Any) -> str:
    """Return an expression that DuckDB computes a Python value from, with the type that DuckDB binds it with.

    Times with a zone become moments. Raises `Invalid` for a value of a type that SQL has no literals of.
    """
    for kind, write in _WRITERS:
        if isinstance(value, kind):
            return write(value)
    raise Invalid(f"a value of type {type(value).__name__} cannot be written in SQL")


def _whole(value: int) -> str:
    return str(value) if value >= 0 else f"({value})"


def _moment(value: datetime) -> str:
    return f"CAST('{value.isoformat(sep=' ')}' AS {'TIMESTAMP' if value.tzinfo is None else 'TIMESTAMPTZ'})"


def _list(value: Sequence[Any]) -> str:
    return f"[{', '.join(map(literal, value))}]"


def _struct(value: Mapping[str, Any]) -> str:
    return f"struct_pack({', '.join(f'{_field(name)} := {literal(part)}' for name, part in value.items())})"


def _decimal(value: Decimal) -> str:
    if not value.is_finite():
        raise Invalid(f"the decimal {value} cannot be written in SQL: it is not a number")
    digits = format(value, "f")
    whole, _, fraction = digits.lstrip("-").partition(".")
    width = max(len(whole.lstrip("0")) + len(fraction), 1)
    if width > 38:
        raise Invalid("a decimal of more than 38 digits does not fit SQL's type: round it")
    return f"CAST('{digits}' AS DECIMAL({width}, {len(fraction)}))"


def _field(name: str) -> str:
    if not name or "\0" in name:
        raise Invalid(f"{json.dumps(name)} cannot be the name of a field in SQL")
    return '"' + name.replace('"', '""') + '"'


_WRITERS: Sequence[tuple[type, Callable[[Any], str]]] = (
    (type(None), lambda _: "NULL"),
    (bool, lambda value: "TRUE" if value else "FALSE"),
    (str, quote_text),
    (int, _whole),
    (float, lambda value: f"CAST('{value!r}' AS DOUBLE)"),
    (Decimal, _decimal),
    (bytes, lambda value: f"from_hex('{value.hex()}')"),
    (datetime, _moment),
    (date, lambda value: f"CAST('{value.isoformat()}' AS DATE)"),
    (list, _list),
    (tuple, _list),
    (Mapping, _struct),
)
"""Writers of values by type. The first that fits counts: a bool is an int, and a datetime a date."""
