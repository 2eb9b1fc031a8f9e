"""Values as SQL literals, for expressions that are given as text. Pure."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from alluvia.engine.duck.quoting import quote_text
from alluvia.errors import Invalid


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
"""What writes a value, by the first type that it is of: a bool is an int, and a datetime a date."""
