"""A condition on one table's rows, as text: what `Table.scan(where=…)` takes. Of pairs of rows, `pairs.py` makes such.

Arrow computes the simplest ones, DuckDB all others; it is not loaded before it is needed. Arrow does the filtering, so
that types do not change. The condition is parsed once, and `now()` is the same for pruning and for every batch.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa

from alluvia.delta.arguments import check_text
from alluvia.delta.schema.names import fold
from alluvia.delta.skipping.predicate import Predicate
from alluvia.engine.conditions.columnar import Mask, computed_condition
from alluvia.engine.conditions.constants import Constants, Run
from alluvia.engine.conditions.fast_parser import plain_condition
from alluvia.engine.conditions.operands import ColumnFinder
from alluvia.engine.conditions.predicates import column_predicate, complement
from alluvia.engine.duck.literals import free_name
from alluvia.engine.queries.bytes_as_text import check_casts
from alluvia.engine.queries.parse import Node, integer_literal, is_constant, text_literal, walk
from alluvia.engine.queries.references import At, Reference, names_in_use
from alluvia.engine.queries.scopes import Scope, table_item
from alluvia.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from alluvia.engine.conditions.sql_condition import Evaluation
    from alluvia.engine.queries.parse import Analyse


_COMPARING = frozenset({"BETWEEN", "COLUMN_REF", "COMPARISON", "CONJUNCTION", "CONSTANT", "OPERATOR"})
ROWS_AT_ONCE = 1 << 13
"""Enough for Arrow, and few enough that memory stays small."""
ROWS_AT_ONCE_BY_DUCKDB = 1 << 17
"""Each run takes DuckDB a millisecond before it begins."""


@dataclass(frozen=True, slots=True)
class Condition:
    """`predicate` is what pruning understands of it, `columns` the columns that `mask` and `filter` need in a batch.

    `complement` holds for every row that the condition does not hold for, and may hold for more. For `rows_at_once`
    rows the mask is computed in one go. `expression` is its syntax tree.
    """

    predicate: Predicate
    complement: Predicate
    columns: tuple[str, ...]
    rows_at_once: int
    _text: str
    expression: Node
    _computed: Mask | None
    _evaluation: Callable[[], Evaluation]

    def never_fails(self, schema: pa.Schema) -> bool:
        """Whether it is sure to fail on no row: it compares texts with texts alone, or whole numbers with such."""
        nodes = [node for node in walk(self.expression) if "class" in node]
        if self._computed is None or any(node["class"] not in _COMPARING for node in nodes):
            return False
        kinds = {schema.field(name).type for name in self.columns}
        constants = [node for node in nodes if is_constant(node) and not node["value"]["is_null"]]
        if all(map(pa.types.is_string, kinds)):
            return all(text_literal(node) is not None for node in constants)
        return all(map(pa.types.is_integer, kinds)) and all(integer_literal(node) is not None for node in constants)

    def predicate_at(self, schema: pa.Schema, now_us: int) -> Predicate:
        """Return what pruning understands of it where it is evaluated at a time, in µs since the Unix epoch."""
        if self._computed is not None:
            return self.predicate
        return _predicate(self.expression, _columns(schema), _constants(self.expression, schema, now_us))

    def filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows for which the condition holds. Raises `Invalid` where it fails on a value."""
        return batch.filter(self.mask(batch))

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return for each row whether the condition holds; null where it is null. Raises `Invalid`, as `filter`."""
        return self._mask(self._text, batch)

    def lenient_mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Return what `mask` does, and null for a row on whose values the condition fails."""
        return self._mask(f"TRY({self._text}\n)", batch)

    def _mask(self, text: str, batch: pa.RecordBatch) -> pa.BooleanArray:
        if self._computed is not None:
            with suppress(pa.ArrowInvalid):  # a number overflows; DuckDB knows which, and whether it matters
                return self._computed(batch)
        shown = batch.select(list(self.columns) or batch.schema.names[:1])
        return self._evaluation().mask(text, pa.Table.from_batches([shown]))


def condition(text: str, schema: pa.Schema) -> Condition:
    """Read a condition on the columns of `schema`.

    Raises `Invalid`, with DuckDB's message, unless it is one expression over them, without subqueries.
    """
    check_text("where", text, "id = 1")
    expression = plain_condition(text)
    computed = None if expression is None else computed_condition(expression, schema)
    if expression is None or computed is None:
        return _condition_of_sql(text, schema)
    return _condition(text, expression, schema, Constants(0), computed, _evaluation)


def words_in(expression: Node) -> frozenset[str]:
    """Return the texts and numbers in an expression, as text."""
    values = (node["value"] for node in walk(expression) if is_constant(node))
    known = (value["value"] for value in values if not value["is_null"])
    return frozenset(str(value) for value in known if isinstance(value, (str, int, float)) and str(value))


def expression_of(text: str, *, subqueries: bool = False) -> Node:
    """Return the tree of a condition, whatever its columns are, with `subqueries` if they are allowed.

    Raises `Invalid` unless it is one expression.
    """
    check_text("where", text, "id = 1")
    expression = plain_condition(text)
    if expression is None:
        from alluvia.engine.conditions.sql_condition import read_expression  # loads DuckDB

        expression = read_expression(text, subqueries=subqueries)
    return expression


def pruning_predicate(text: str, schema: pa.Schema, now_us: int, analyse: Analyse, run: Run) -> Predicate:
    """Return what pruning understands of a condition that a stranger sent, as of a time in µs since the Unix epoch.

    `analyse` has DuckDB read it, and `run` compute its constants, in a process that can be killed; where the condition
    is tried is for `evaluating` to say. Raises `Invalid`, as `condition` does.
    """
    check_text("where", text, "id = 1")
    expression = plain_condition(text)
    if expression is None or computed_condition(expression, schema) is None:
        from alluvia.engine.conditions.sql_condition import read_expression  # loads what reads SQL

        expression = read_expression(text, analyse=analyse)
        _try(text, schema, _evaluation())
    return _predicate(expression, _columns(schema), replace(_constants(expression, schema, now_us), run=run))


def _evaluation() -> Evaluation:
    from alluvia.engine.conditions.sql_condition import Evaluation  # loads DuckDB

    return Evaluation()


def _condition_of_sql(text: str, schema: pa.Schema) -> Condition:
    from alluvia.engine.conditions.sql_condition import read_expression  # loads DuckDB

    expression = read_expression(text)
    check_casts(expression, {fold(field.name) for field in schema if pa.types.is_binary(field.type)})
    evaluation = _evaluation()
    _try(text, schema, evaluation)
    constants = _constants(expression, schema, evaluation.now_us)
    return _condition(text, expression, schema, constants, None, lambda: evaluation)


def _try(text: str, schema: pa.Schema, evaluation: Evaluation) -> None:
    """Raise `Invalid` for what cannot be computed. Two rows show whether a condition gives one value a row."""
    evaluation.mask(text, pa.table([pa.nulls(2, field.type) for field in schema], schema.names))


def _condition(
    text: str,
    expression: Node,
    schema: pa.Schema,
    constants: Constants,
    computed: Mask | None,
    evaluation: Callable[[], Evaluation],
) -> Condition:
    known = _columns(schema)
    predicate = _predicate(expression, known, constants)
    excluded = complement(expression, known, constants)
    columns = columns_used(expression, schema)
    rows_at_once = ROWS_AT_ONCE_BY_DUCKDB if computed is None else ROWS_AT_ONCE
    return Condition(predicate, excluded, columns, rows_at_once, text, expression, computed, evaluation)


def columns_used(expression: Node, schema: pa.Schema) -> tuple[str, ...]:
    """Return the columns that an expression on the relation `rows` names, in the schema's order."""
    references = [node["column_names"] for node in walk(expression) if node.get("class") == "COLUMN_REF"]
    used = {fold(name) for names in references for name in names[:2]}
    return tuple(name for name in schema.names if fold(name) in used)


def _constants(expression: Node, schema: pa.Schema, now_us: int) -> Constants:
    return Constants(now_us, names_in_use(expression) | {fold(name) for name in schema.names})


def _predicate(expression: Node, known: ColumnFinder, constants: Constants) -> Predicate:
    return constants.together(lambda: column_predicate(expression, known, constants))


def _columns(schema: pa.Schema) -> ColumnFinder:
    rows = Reference({}, None, "rows", free_name("rows", schema.names), At(), is_function=False)
    return ColumnFinder(rows, Scope((table_item(rows, schema),), frozenset()), schema)
