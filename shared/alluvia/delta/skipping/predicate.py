"""Predicates for pruning: necessary conditions over columns and constants. Pure.

A predicate here holds for every row that the caller's real condition holds for; it may hold for more. `Unknown` holds
for every row. Constants are Python values in the column's own terms: int, float, Decimal, str, bool, bytes, date, an
aware datetime for `timestamp`, a naive one for `timestamp_ntz`; never None.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Literal

import pyarrow as pa

from alluvia.delta.schema.column_mapping import physical_path
from alluvia.delta.schema.names import ColumnPath
from alluvia.lazy_dataclasses import dataclass

Operator = Literal["=", "!=", "<", "<=", ">", ">="]


@dataclass(frozen=True, slots=True)
class Comparison:
    """`column op value`, false or null for a row whose column is null."""

    column: ColumnPath
    op: Operator
    value: object


@dataclass(frozen=True, slots=True)
class In:
    """`column IN (values)`."""

    column: ColumnPath
    values: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """`column IS NULL`."""

    column: ColumnPath


@dataclass(frozen=True, slots=True)
class IsNotNull:
    """`column IS NOT NULL`."""

    column: ColumnPath


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


def columns_of(predicate: Predicate) -> set[ColumnPath]:
    """Return the columns that a predicate looks at."""
    if isinstance(predicate, (And, Or)):
        return set().union(*(columns_of(child) for child in predicate.children))
    return set() if isinstance(predicate, Unknown) else {predicate.column}


def only_about(predicate: Predicate, columns: Collection[str]) -> Predicate:
    """Return what a predicate says of some columns, by name: `Unknown` stands for the rest."""
    if isinstance(predicate, (And, Or)):
        return replace(predicate, children=tuple(only_about(child, columns) for child in predicate.children))
    return predicate if isinstance(predicate, Unknown) or predicate.column[0] in columns else Unknown()


def not_about(predicate: Predicate, columns: Collection[str]) -> Predicate:
    """Return what a predicate says of all but some columns, by name: `Unknown` stands for the rest."""
    if isinstance(predicate, (And, Or)):
        return replace(predicate, children=tuple(not_about(child, columns) for child in predicate.children))
    return Unknown() if isinstance(predicate, Unknown) or predicate.column[0] in columns else predicate


def physical_predicate(predicate: Predicate, logical: pa.Schema, physical: pa.Schema) -> Predicate:
    """Return a predicate with the names that columns have in statistics; `Unknown` for columns that are missing."""
    if isinstance(predicate, And):
        return And(tuple(physical_predicate(child, logical, physical) for child in predicate.children))
    if isinstance(predicate, Or):
        return Or(tuple(physical_predicate(child, logical, physical) for child in predicate.children))
    if isinstance(predicate, Unknown):
        return predicate
    path = physical_path(logical, physical, predicate.column)
    return Unknown() if path is None else replace(predicate, column=path)
