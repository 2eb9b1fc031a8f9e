"""An update's expressions as DuckDB reads and computes them, on a confined database without other data."""

from __future__ import annotations

from functools import cache

import pyarrow as pa

from alluvia.delta.schema.caller_rows import conform
from alluvia.delta.schema.types import type_name
from alluvia.engine.conditions.sql_condition import known_as, looks_beyond_its_row
from alluvia.engine.duck.evaluators import Evaluator, current_evaluator
from alluvia.engine.duck.failures import Context, EngineError, translate
from alluvia.engine.duck.relation import duckdb_type
from alluvia.engine.duck.text_values import text_values
from alluvia.engine.queries.parse import Node, is_constant, parse, without_locations
from alluvia.engine.queries.references import find_references
from alluvia.engine.queries.tokens import CLOSING, OPENING, tokens_of
from alluvia.errors import Invalid

_START = "SELECT (\n"
VALUE_AT = len(_START)
"""Where an expression begins, for the positions in its tree."""
_END = "\n) FROM rows"


class SqlValues:
    """Computes values over the columns of `schema`, for columns of it or of `wanted`. It is always the same time."""

    def __init__(self, schema: pa.Schema, wanted: pa.Schema | None = None) -> None:
        self._schema = schema
        self._wanted = schema if wanted is None else wanted
        self._evaluator = current_evaluator()
        self._texts: dict[str, str] = {}

    def read(self, name: str, text: object) -> Node:
        """Return the tree of a column's expression. Raises `Invalid`, naming the column, where it does not fit."""
        expression = read_value(name, text)
        field = self._wanted.field(name)
        typed = _typed(str(text), expression, field)
        self._texts[name] = _checked(self._evaluator, self._schema, field, typed)
        if _is_null(expression) and not field.nullable:
            raise Invalid(f"column {name} must not be null, so it cannot be set to NULL")
        return expression

    def typed(self, name: str) -> str:
        """Return what was read for a column, with a cast where a literal or a decimal takes the column's type."""
        return self._texts[name]

    def compute(self, name: str, rows: pa.Table) -> pa.ChunkedArray:
        """Return a column's values for some rows. Raises `Invalid`, naming the column, where the expression fails."""
        return _values(self._evaluator, name, self._texts[name], rows)


def read_value(name: str, text: object, *, subqueries: bool = False) -> Node:
    """Return the tree of an expression for a column, which may have `subqueries` where a query is to compute it."""
    if not isinstance(text, str):
        raise Invalid(f"column {name}: expected an SQL expression as text, got {type(text).__name__}")
    try:
        root = parse(_START + text + _END).root
        find_references(root)
    except Invalid as error:
        raise Invalid(f"column {name}: {error}") from error
    same_rest = without_locations({**root, "select_list": None}) == _rest()
    items = root.get("select_list") or []
    if not same_rest or len(items) != 1 or items[0].get("alias"):
        raise Invalid(f"column {name}: give one SQL expression, without an alias, FROM or other clauses")
    expression: Node = items[0]
    if expression.get("function_name") == "row" and _has_comma(text):
        raise Invalid(f"column {name}: a comma makes two expressions of {text!r:.60}: decimals come after a point")
    if looks_beyond_its_row(expression, subqueries=subqueries):
        what, instead = ("", "MERGE INTO") if subqueries else ("subqueries, ", "UPDATE or MERGE INTO")
        raise Invalid(
            f"column {name}: an expression cannot use {what}window functions, unnest or *: use {instead} in lake.sql"
        )
    return expression


def _has_comma(text: str) -> bool:
    """Whether a comma stands outside all brackets and quotes."""
    depth = 0
    for token in tokens_of(text):
        depth += (token.word in OPENING) - (token.word in CLOSING)
        if token.word == "," and not depth:
            return True
    return False


@cache
def _rest() -> Node:
    """Return the tree of a query without its expression, and without positions."""
    rest: Node = without_locations({**parse(_START + "1" + _END).root, "select_list": None})
    return rest


def _is_null(expression: Node) -> bool:
    return is_constant(expression) and bool(expression["value"]["is_null"])


def _typed(text: str, expression: Node, field: pa.Field) -> str:
    """Return the text with a cast around a literal, which takes the type of its column as it does in an INSERT.

    Raises `Invalid`, naming the column, for a literal that the column could only hold rounded or cut, or not at all.
    """
    if not is_constant(expression):
        return text
    if not _is_null(expression):
        if expression["value"]["type"]["id"] != "VARCHAR":
            return text
        text_values(pa.array([expression["value"]["value"]], pa.string()), field)
    return f"CAST((\n{text}\n) AS {duckdb_type(field.type)})"


def _checked(evaluator: Evaluator, schema: pa.Schema, field: pa.Field, text: str) -> str:
    """Find out what can be found out without the table's rows: names, types, and one value a row."""
    name = field.name
    rows = pa.table([pa.nulls(2, other.type) for other in schema], schema.names)
    kind = _values(evaluator, name, text, rows).type
    try:
        conform(pa.Table.from_arrays([pa.array([], kind)], names=[name]), pa.schema([field]))
    except (Invalid, pa.ArrowException) as error:
        wanted = f"CAST(… AS {duckdb_type(field.type)})"
        msg = f"column {name} is {type_name(field.type)}, but the expression gives {type_name(kind)}: write {wanted}"
        raise Invalid(msg) from error
    return text


def _values(evaluator: Evaluator, name: str, text: str, rows: pa.Table) -> pa.ChunkedArray:
    try:
        values = evaluator.compute(_START + text + _END + known_as(rows.column_names), rows).column(0)
    except EngineError as error:
        translated = translate(error.details, Context(text, lambda position: position - len(_START)))
        raise type(translated)(f"column {name}: {translated}") from None
    except Invalid as error:
        if type(error) is not Invalid:  # a limit, not a fault of the expression
            raise
        raise Invalid(f"column {name}: {error}") from None
    if len(values) != len(rows):
        raise Invalid(f"column {name}: an expression cannot use aggregates or unnest")
    return values
