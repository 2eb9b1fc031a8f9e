"""What pruning understands of a condition: a necessary one, over columns and constants. Pure.

A predicate here holds for every row that the caller's real condition holds for; it may hold for more. `Unknown` holds
for every row. Constants are Python values in the column's own terms: int, float, Decimal, str, bool, bytes, date, an
aware datetime for `timestamp`, a naive one for `timestamp_ntz`; never None.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Column = tuple[str, ...]
Operator = Literal["=", "!=", "<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class Comparison:
    """`column op value`, false or null for a row whose column is null."""

    column: Column
    op: Operator
    value: object


@dataclass(frozen=True, slots=True)
class In:
    """`column IN (values)`."""

    column: Column
    values: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """`column IS NULL`."""

    column: Column


@dataclass(frozen=True, slots=True)
class IsNotNull:
    """`column IS NOT NULL`."""

    column: Column


@dataclass(frozen=True, slots=True)
class And:
    """All of them hold."""

    children: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Or:
    """One of them holds."""

    children: tuple[Predicate, ...]


@dataclass(frozen=True, slots=True)
class Unknown:
    """Nothing is known: every file can match."""


Predicate = Comparison | In | IsNull | IsNotNull | And | Or | Unknown


def columns_of(predicate: Predicate) -> set[Column]:
    """Return the columns that a predicate looks at."""
    if isinstance(predicate, (And, Or)):
        return set().union(*(columns_of(child) for child in predicate.children))
    return set() if isinstance(predicate, Unknown) else {predicate.column}
