"""The columns that a query gives, as those of a table that keeps its rows."""

from __future__ import annotations

import re
from collections.abc import Collection
from functools import cache

import pyarrow as pa

from alluvia.delta.schema.names import fold
from alluvia.delta.schema.serialization import arrow_schema, schema_string
from alluvia.engine.duck.database import planner
from alluvia.engine.duck.literals import quote_text
from alluvia.engine.duck.relation import duckdb_type
from alluvia.errors import Invalid
from alluvia.operations.reading.relations import Evaluate, Inputs, Relation

_SUM_TYPE, _LONG = "HUGEINT", pa.int64()
_UNTYPED = ('"NULL"', "")
"""DuckDB's type of NULL alone, and of the elements of an empty list. A space follows a field of that name."""
_QUOTED = re.compile(r"""'(?:[^']|'')*'|("(?:[^"]|"")*")( ?)""")
_HELD_TOO = {"BIGINT": ("HUGEINT",), "VARCHAR": ("JSON", "UUID")}
"""Types of DuckDB's that a column of another type holds too: a sum of integers is 128 bits wide, and must fit."""


def result_columns(
    inputs: Inputs, text: str, aliases: Collection[str], evaluate: Evaluate, what: str
) -> tuple[pa.Schema, int]:
    """Return the columns of a query over inputs, nullable, and how many rows it gives.

    Sums of integers, which DuckDB makes 128 bits wide, are longs. `aliases` are the names, folded, that the query gives
    itself, and `what` is what the table is called. Raises `Invalid`, naming the column, for a type or a name that a
    table cannot have.
    """
    types = evaluate(
        Relation(inputs, {"types": f"SELECT column_name, column_type FROM (DESCRIBE {text}\n)"}),  # noqa: S608
        lambda columns, batches: pa.Table.from_batches(batches, columns).to_pydict(),
    )
    own = f"SELECT typeof(COLUMNS(q.*)) FROM (SELECT 1) LEFT JOIN ({text}\n) q ON true LIMIT 1"  # noqa: S608
    given = evaluate(  # DESCRIBE shows NULL as INTEGER
        Relation(inputs, {"given": own}),
        lambda _, batches: [column[0].as_py() for batch in batches for column in batch.columns],
    )
    rows, schema = evaluate(
        Relation(inputs, {"result": text}), lambda columns, batches: (sum(len(batch) for batch in batches), columns)
    )
    fields: list[pa.Field] = []
    for shown, kind, known, field in zip(types["column_name"], types["column_type"], given, schema, strict=True):
        if fold(shown) in {fold(each.name) for each in fields}:
            raise Invalid(f"{what} would have two columns called {shown!r}: give one another name with AS")
        if "(" in shown and fold(shown) not in aliases:
            raise Invalid(f"column {shown!r} of {what} has only its expression as a name: name it with AS")
        if _UNTYPED in _QUOTED.findall(known):
            raise Invalid(
                f"column {shown!r} of {what} has values without a type, such as NULL: "
                "cast them to one, as in CAST(NULL AS VARCHAR)"
            )
        named_well = field.with_name(shown).with_nullable(True)
        wanted = named_well.with_type(_LONG) if kind == _SUM_TYPE else named_well
        try:
            (stored,) = arrow_schema(schema_string(pa.schema([wanted])))
        except Invalid as error:
            raise Invalid(f"column {shown!r} of {what}: {error}. Name it with AS, or cast it") from error
        if not is_held(stored.type, kind):
            raise Invalid(
                f"column {shown!r} of {what}: a table cannot hold values of the type {kind} as they are. "
                f"Cast it to a type that it has, as in CAST(… AS {duckdb_type(stored.type)})"
            )
        fields.append(wanted)
    return pa.schema(fields), rows


def is_held(kind: pa.DataType, given: str) -> bool:
    """Whether a column of a type holds every value of a type of DuckDB's as it is, or a refresh fails."""
    return given in _holds(kind)


@cache
def _holds(kind: pa.DataType) -> tuple[str, ...]:
    own = planner().execute(f"SELECT typeof(CAST(NULL AS {duckdb_type(kind)}))").fetchall()[0][0]
    return own, *_HELD_TOO.get(own, ())


def stored_value(name: str, field: pa.Field, what: str, then: str) -> str:
    """Return SQL for a column in its table's type, which fails if the query has come to give another type.

    `name` is the column in SQL, `what` is what the table is called, and `then` is what to do.
    """
    kind, given = duckdb_type(field.type), f"typeof({name})"
    says = quote_text(f"{what}'s column {field.name} is {kind}, but the source has changed, and the query gives ")
    # The types are known before the query runs, so that DuckDB leaves out the comparison.
    known = f"WHEN {given} IN ({', '.join(map(quote_text, _holds(field.type)))}) THEN CAST({name} AS {kind})"
    return f"CASE {known} ELSE error({says} || {given} || {quote_text(': ' + then)}) END AS {name}"
