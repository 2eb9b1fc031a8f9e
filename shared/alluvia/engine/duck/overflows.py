"""What DuckDB says of arithmetic whose result its type cannot hold, in other words. Pure."""

from __future__ import annotations

import re

_COMPUTED = re.compile(
    r"Overflow in (?P<done>addition|subtraction|multiplication|division|negation)"
    r"(?: of (?P<kind>[A-Z]+)(?P<size>[0-9]+|\([0-9]+\)))?(?: of)? ?\(?(?P<terms>-?[0-9]+ (?:\+|-|\*|/) -?[0-9]+)?"
)
_SUMMED = re.compile(r"Overflow in HUGEINT \w+")
_ABSOLUTE = re.compile(r"Overflow on (abs\(-[0-9]+\))")
_NAMES = {"8": "TINYINT", "16": "SMALLINT", "32": "INTEGER", "64": "BIGINT", "128": "HUGEINT"}
_WIDER = {"8": "SMALLINT", "16": "INTEGER", "32": "BIGINT", "64": "HUGEINT"}
_DIGITS_MAX = 38
_TO_ANY = "cast what it is computed from to a wider type"
_TO_DOUBLE = "no wider type is exact: cast what it is computed from to DOUBLE"


def overflow_reason(message: str) -> str | None:
    """Return what overflowed and the remedy, from the message of an Out of Range error; None if it says another thing.

    It shows the numbers, except those of decimals, which DuckDB has without their points.
    """
    if _SUMMED.match(message):
        return f"a sum or product does not fit HUGEINT or DECIMAL(38): {_TO_DOUBLE}"
    absolute = _ABSOLUTE.match(message)
    if absolute is not None:
        return f"{absolute[1]} does not fit its type: {_TO_ANY}"
    found = _COMPUTED.match(message)
    if found is None:
        return None
    size, terms = (found["size"] or "").strip("()"), found["terms"]
    computed = f"the result of the {found['done']}"
    if found["kind"] == "DECIMAL":
        wider = "DECIMAL(38, …)" if int(size) < _DIGITS_MAX else None
        return f"{computed} does not fit DECIMAL({size}): {_cast_to(wider)}"
    if size not in _NAMES:
        return f"{terms or computed} does not fit its type: {_TO_ANY}"
    unsigned = "U" if found["kind"] == "UINT" else ""
    wider = "BIGINT" if unsigned and found["done"] == "subtraction" else _WIDER.get(size)
    return f"{terms or computed} does not fit {unsigned}{_NAMES[size]}: {_cast_to(wider)}"


def _cast_to(wider: str | None) -> str:
    return _TO_DOUBLE if wider is None else f"cast what it is computed from to a wider type, such as {wider}"
