"""New values of columns as SQL expressions over a table's rows, as text: what `Table.update` takes.

DuckDB computes them on a confined database without other data, like conditions. A value must fit its column exactly, or
widen to it: text never becomes a number implicitly, and a number never loses digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import duckdb
import pyarrow as pa

from alluvia.duck.connection import evaluator
from alluvia.duck.failures import Context, details_of, translate
from alluvia.duck.relation import duckdb_type
from alluvia.errors import Invalid
from alluvia.expressions.condition import columns_used, known_as, looks_beyond_its_row
from alluvia.expressions.parse import parse
from alluvia.expressions.references import find_references
from alluvia.expressions.tree import Node, is_constant, without_locations
from alluvia.table.schema.names import fold
from alluvia.table.schema.rows import conform
from alluvia.table.schema.type_names import type_name

_START = "SELECT (\n"
_END = "\n) FROM rows"


@dataclass(frozen=True, slots=True)
class Assignments:
    """`names` are the columns that get new values, `columns` those that the expressions look at."""

    names: tuple[str, ...]
    columns: tuple[str, ...]
    _schema: pa.Schema
    _texts: Mapping[str, str]
    _connection: duckdb.DuckDBPyConnection

    def apply(self, rows: pa.Table) -> pa.Table:
        """Return the new values for some rows, which need `columns`: a table of `names`, in the schema's types.

        Raises `Invalid`, naming the column, where an expression fails, gives null for a column that must not be null,
        or a value that does not fit its column.
        """
        found = [_values(self._connection, name, text, rows) for name, text in self._texts.items()]
        fields = [self._schema.field(name) for name in self.names]
        given = pa.Table.from_arrays(found, names=list(self.names))
        return conform(given, pa.schema(fields))


def assignments(given: Mapping[str, str], schema: pa.Schema) -> Assignments:
    """Read new values for columns of `schema`: SQL expressions over its columns, by column.

    Raises `Invalid`, naming the column, for an unknown one, for what is not a single expression, or for one whose type
    does not fit. All expressions see the rows as they were.
    """
    if not isinstance(given, Mapping) or not given:
        raise Invalid("update: give the columns to set, with an SQL expression for each, such as {'status': '0'}")
    connection = evaluator()
    connection.execute("BEGIN")
    texts: dict[str, str] = {}
    used: set[str] = set()
    for asked, text in given.items():
        name = _column(asked, schema)
        if name in texts:
            raise Invalid(f"column {name} is set twice")
        expression = _expression(name, text)
        used.update(columns_used(expression, schema))
        texts[name] = _checked(connection, schema, name, _typed(text, expression, schema.field(name).type))
        if _is_null(expression) and not schema.field(name).nullable:
            raise Invalid(f"column {name} must not be null, so it cannot be set to NULL")
    columns = tuple(name for name in schema.names if name in used)
    return Assignments(tuple(texts), columns, schema, texts, connection)


def _column(asked: object, schema: pa.Schema) -> str:
    if asked in schema.names:
        return str(asked)
    found = [name for name in schema.names if fold(name) == fold(str(asked))]
    if not found:
        raise Invalid(f"column {asked} is not in the table: add it with evolve(add=…) first")
    return str(found[0])


def _expression(name: str, text: object) -> Node:
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
    if looks_beyond_its_row(expression):
        raise Invalid(f"column {name}: an expression cannot use subqueries, window functions, unnest or *")
    return expression


@cache
def _rest() -> Node:
    """Return the tree of a query without its expression, and without positions."""
    rest: Node = without_locations({**parse(_START + "1" + _END).root, "select_list": None})
    return rest


def _is_null(expression: Node) -> bool:
    return is_constant(expression) and bool(expression["value"]["is_null"])


def _typed(text: str, expression: Node, kind: pa.DataType) -> str:
    """Return the text with a cast around a literal, which takes the type of its column as it does in an INSERT."""
    literal = is_constant(expression) and (_is_null(expression) or expression["value"]["type"]["id"] == "VARCHAR")
    return f"CAST((\n{text}\n) AS {duckdb_type(kind)})" if literal else text


def _checked(connection: duckdb.DuckDBPyConnection, schema: pa.Schema, name: str, text: str) -> str:
    """Find out what can be found out without the table's rows: names, types, and one value a row.

    A decimal for a floating-point column, such as 1.5, is made one.
    """
    field = schema.field(name)
    rows = pa.table([pa.nulls(2, other.type) for other in schema], schema.names)
    kind = _values(connection, name, text, rows).type
    if pa.types.is_decimal(kind) and pa.types.is_floating(field.type):
        return f"CAST((\n{text}\n) AS {duckdb_type(field.type)})"
    try:
        conform(pa.Table.from_arrays([pa.array([], kind)], names=[name]), pa.schema([field]))
    except (Invalid, pa.ArrowException) as error:
        wanted = f"CAST(… AS {duckdb_type(field.type)})"
        msg = f"column {name} is {type_name(field.type)}, but the expression gives {type_name(kind)}: write {wanted}"
        raise Invalid(msg) from error
    return text


def _values(connection: duckdb.DuckDBPyConnection, name: str, text: str, rows: pa.Table) -> pa.ChunkedArray:
    connection.register("rows", rows.to_reader())
    try:
        query = _START + text + _END + known_as(rows.column_names)
        values = connection.execute(query).to_arrow_table().column(0)
    except duckdb.Error as error:
        found = translate(details_of(error), Context(text, lambda position: position - len(_START)))
        raise type(found)(f"column {name}: {found}") from None
    finally:
        connection.unregister("rows")
    if len(values) != len(rows):
        raise Invalid(f"column {name}: an expression cannot use aggregates or unnest")
    return values
