"""A predicate that holds for every row for which a condition is false or null.

If no row of a file can match it, then every row of the file matches the condition, by partition values and statistics
alone. Anything not understood is `Unknown`, which every file can match, so nothing is wrongly proven.
"""

from __future__ import annotations

from alluvia.delta.skipping.predicate import IsNull, Or, Predicate, Unknown, columns_of
from alluvia.engine.conditions.constants import Constants
from alluvia.engine.conditions.operands import ColumnFinder
from alluvia.engine.conditions.predicates import all_of, any_of, column_predicate
from alluvia.engine.queries.tree import Node
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
        found = column_predicate(node, self.columns, self.constants, negated=negated)
        if node["type"] in _NULL_TESTS:
            return found
        compared = columns_of(found)
        if not compared or any(len(column) > 1 for column in compared):
            return Unknown()
        return any_of([found, *(IsNull(column) for column in sorted(compared))])

    def _is_constant(self, node: Node, *, value: bool) -> bool:
        if node["class"] not in ("CONSTANT", "CAST"):
            return False
        found = self.constants.compute([node])
        scalar = None if found is None else found[0].value
        return scalar is not None and scalar.as_py() is value
