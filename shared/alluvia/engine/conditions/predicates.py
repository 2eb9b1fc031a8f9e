"""Translate a query's conditions to predicates for pruning, for one table at a time.

The result is a necessary condition: it holds for every row for which the original holds. Anything not understood
becomes `Unknown`. A NOT is pushed down to the comparisons, where it is exact, before anything is widened.

The predicate of a `complement` holds for every row that the condition leaves out. If no row of a file can match it,
every row of the file matches the condition, by partition values and statistics alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import cast

import pyarrow as pa

from alluvia.delta.schema.names import fold
from alluvia.delta.skipping.predicate import (
    And,
    Comparison,
    In,
    IsNotNull,
    IsNull,
    Operator,
    Or,
    Predicate,
    Unknown,
    columns_of,
)
from alluvia.engine.conditions.comparisons import FLIPPED, NEGATED, compare, family
from alluvia.engine.conditions.constants import Constant, Constants
from alluvia.engine.conditions.operands import ColumnFinder, Operand
from alluvia.engine.queries.parse import Node, text_literal
from alluvia.engine.queries.references import Reference
from alluvia.engine.queries.scopes import Filter
from alluvia.lazy_dataclasses import dataclass

NEVER = Or(())
_NULL_TESTS = ("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL")


def complement(condition: Node, columns: ColumnFinder, constants: Constants) -> Predicate:
    """Return a predicate that holds at least for the rows that a condition on one table leaves out."""
    return constants.together(lambda: _Complement(columns, constants).not_true(condition))


@dataclass(frozen=True, slots=True)
class _Complement:
    columns: ColumnFinder
    constants: Constants

    def not_true(self, node: Node) -> Predicate:
        """Where an expression is false or null."""
        kind = node["type"]
        if kind == "CONJUNCTION_AND":
            return any_of([self.not_true(child) for child in node["children"]])
        if kind == "CONJUNCTION_OR":
            return all_of([self.not_true(child) for child in node["children"]])
        if kind == "OPERATOR_NOT":
            return self._not_false(node["children"][0])
        return NEVER if self._is_constant(node, value=True) else self._leaf(node, negated=True)

    def _not_false(self, node: Node) -> Predicate:
        """Where an expression is true or null."""
        kind = node["type"]
        if kind == "CONJUNCTION_AND":
            return all_of([self._not_false(child) for child in node["children"]])
        if kind == "CONJUNCTION_OR":
            return any_of([self._not_false(child) for child in node["children"]])
        if kind == "OPERATOR_NOT":
            return self.not_true(node["children"][0])
        return NEVER if self._is_constant(node, value=False) else self._leaf(node, negated=False)

    def _leaf(self, node: Node, *, negated: bool) -> Predicate:
        """Return what a comparison, or its negation, needs, or a null that makes it null."""
        predicate = column_predicate(node, self.columns, self.constants, negated=negated)
        if node["type"] in _NULL_TESTS:
            return predicate
        compared = columns_of(predicate)
        if not compared or any(len(column) > 1 for column in compared):
            return Unknown()
        return any_of([predicate, *(IsNull(column) for column in sorted(compared))])

    def _is_constant(self, node: Node, *, value: bool) -> bool:
        if node["class"] not in ("CONSTANT", "CAST"):
            return False
        computed = self.constants.compute([node])
        scalar = None if computed is None else computed[0].value
        return scalar is not None and scalar.as_py() is value


_COMPARISONS: dict[str, Operator] = {
    "COMPARE_EQUAL": "=",
    "COMPARE_NOTEQUAL": "!=",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
    "COMPARE_NOT_DISTINCT_FROM": "=",
}
_PREFIX_FUNCTIONS = ("^@", "prefix", "starts_with")
_CODE_POINT_MAX = 0x10FFFF


def table_predicate(table: Reference, filters: Iterable[Filter], schema: pa.Schema, constants: Constants) -> Predicate:
    """Return what all conditions that restrict a table need of its rows."""

    def translated() -> Predicate:
        predicates: list[Predicate] = []
        for one in given:
            predicate = column_predicate(one.condition, ColumnFinder(table, one.scope, schema), constants)
            predicates.append(_null_rejecting(predicate) if one.null_rejecting else predicate)
        return all_of(predicates)

    given = list(filters)
    return constants.together(translated)


def column_predicate(
    condition: Node, columns: ColumnFinder, constants: Constants, *, negated: bool = False
) -> Predicate:
    """Return what a condition, or its negation, needs of a table's rows."""
    return _Translator(columns, constants).condition(condition, negated=negated)


def all_of(predicates: Iterable[Predicate]) -> Predicate:
    """Return the conjunction, without what says nothing."""
    children: list[Predicate] = []
    for one in predicates:
        children.extend(one.children if isinstance(one, And) else () if isinstance(one, Unknown) else (one,))
    return Unknown() if not children else children[0] if len(children) == 1 else And(tuple(children))


def any_of(predicates: Iterable[Predicate]) -> Predicate:
    """Return the disjunction; it says nothing if one part says nothing."""
    children: list[Predicate] = []
    for one in predicates:
        if isinstance(one, Unknown):
            return one
        children.extend(one.children if isinstance(one, Or) else (one,))
    return children[0] if len(children) == 1 else Or(tuple(children))


def _null_rejecting(predicate: Predicate) -> Predicate:
    """Weaken a predicate until a row of nulls fails it: only IS NULL lets one pass."""
    if isinstance(predicate, And):
        return all_of(_null_rejecting(child) for child in predicate.children)
    if isinstance(predicate, Or):
        return any_of(_null_rejecting(child) for child in predicate.children)
    return Unknown() if isinstance(predicate, IsNull) else predicate


@dataclass(frozen=True, slots=True)
class _Translator:
    columns: ColumnFinder
    constants: Constants

    def condition(self, node: Node, *, negated: bool) -> Predicate:
        kind = node["type"]
        if kind in ("CONJUNCTION_AND", "CONJUNCTION_OR"):
            # A list, so that one that says nothing does not hide the constants of the others (`Constants.together`).
            parts = [self.condition(child, negated=negated) for child in node["children"]]
            return all_of(parts) if (kind == "CONJUNCTION_AND") is not negated else any_of(parts)
        if kind == "OPERATOR_NOT":
            return self.condition(node["children"][0], negated=not negated)
        if kind in _COMPARISONS:
            return self._comparison(node, negated=negated)
        if kind in ("COMPARE_BETWEEN", "COMPARE_NOT_BETWEEN"):
            return self._between(node, negated=negated is not (kind == "COMPARE_NOT_BETWEEN"))
        if kind in ("COMPARE_IN", "COMPARE_NOT_IN"):
            return self._in(node["children"], negated=negated is not (kind == "COMPARE_NOT_IN"))
        if kind in ("OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL"):
            return self._null_test(node["children"][0], null=(kind == "OPERATOR_IS_NULL") is not negated)
        if node["class"] == "FUNCTION" and not negated:
            return self._function(fold(node["function_name"]), node["children"])
        return self._boolean(node, negated=negated)

    def _comparison(self, node: Node, *, negated: bool) -> Predicate:
        op = _COMPARISONS[node["type"]]
        if negated and node["type"] == "COMPARE_NOT_DISTINCT_FROM":
            return Unknown()  # it also holds for nulls
        operand, other = self.columns.operand(node["left"]), node["right"]
        if operand is None:
            operand, other, op = self.columns.operand(node["right"]), node["left"], FLIPPED[op]
        if operand is None:
            return Unknown()
        values = self._constants([other])
        return Unknown() if values is None else self._compare(operand, NEGATED[op] if negated else op, values[0])

    def _between(self, node: Node, *, negated: bool) -> Predicate:
        operand = self.columns.operand(node["input"])
        bounds = None if operand is None else self._constants([node["lower"], node["upper"]])
        if operand is None or bounds is None:
            return Unknown()
        low, high = bounds
        if negated:
            return any_of([self._compare(operand, "<", low), self._compare(operand, ">", high)])
        return all_of([self._compare(operand, ">=", low), self._compare(operand, "<=", high)])

    def _in(self, children: Sequence[Node], *, negated: bool) -> Predicate:
        operand = self.columns.operand(children[0])
        values = None if operand is None else self._constants(children[1:])
        if operand is None or values is None:
            return Unknown()
        if negated:
            return all_of(self._compare(operand, "!=", one) for one in values)
        parts = [self._compare(operand, "=", one) for one in values]
        equalities = [one for one in parts if isinstance(one, Comparison)]
        if len(parts) > 1 and len(equalities) == len(parts) and operand.unit is None:
            return In(operand.column, tuple(one.value for one in equalities))
        return any_of(parts)

    def _null_test(self, node: Node, *, null: bool) -> Predicate:
        operand = self.columns.operand(node)
        if operand is None or len(operand.column) > 1:
            return Unknown()  # writers differ in whether a field of a null struct counts as null
        return IsNull(operand.column) if null else IsNotNull(operand.column)

    def _function(self, name: str, children: Sequence[Node]) -> Predicate:
        if len(children) != 2 or (name != "~~" and name not in _PREFIX_FUNCTIONS):
            return Unknown()
        operand, pattern = self.columns.operand(children[0]), text_literal(children[1])
        if operand is None or pattern is None or not pa.types.is_string(operand.kind):
            return Unknown()
        if name != "~~":
            return _has_prefix(operand, pattern)
        wild = [at for at, character in enumerate(pattern) if character in "%_"]
        return _has_prefix(operand, pattern[: wild[0]]) if wild else Comparison(operand.column, "=", pattern)

    def _boolean(self, node: Node, *, negated: bool) -> Predicate:
        operand = self.columns.operand(node)
        if operand is None or not pa.types.is_boolean(operand.kind):
            return Unknown()
        return Comparison(operand.column, "=", not negated)

    def _compare(self, operand: Operand, op: Operator, constant: Constant) -> Predicate:
        return compare(operand, op, constant, self.constants)

    def _constants(self, nodes: Sequence[Node]) -> list[Constant] | None:
        """Return the constants' values if each is compared as it would be alone: DuckDB gives all of them one type."""
        values = self.constants.compute(nodes)
        return values if values and len({family(one) for one in values}) == 1 else None


def _has_prefix(operand: Operand, prefix: str) -> Predicate:
    if not prefix:
        return IsNotNull(operand.column)
    lower = Comparison(operand.column, ">=", prefix)
    upper = _after(prefix)
    return lower if upper is None else And((lower, Comparison(operand.column, "<", upper)))


def _after(prefix: str) -> str | None:
    """Return the first text, in code point order, above all that start with a prefix; None if there is none."""
    while prefix:
        code = ord(prefix[-1]) + 1
        if code <= _CODE_POINT_MAX:
            return prefix[:-1] + chr(0xE000 if 0xD800 <= code < 0xE000 else code)
        prefix = prefix[:-1]
    return cast("str | None", None)
