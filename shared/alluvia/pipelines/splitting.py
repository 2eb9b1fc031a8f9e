"""How the rows of a step's relations can be shared out, so that each share is computed by itself. Pure.

Rows of the result with some values of the columns of `TableKind.parts` depend on nothing but the rows of the inputs
with these values, which `lineage.py` finds. So the rows of all inputs are shared out by them.
"""

from __future__ import annotations

import re

from alluvia.engine.duck.literals import quote_name
from alluvia.engine.duck.relation import duckdb_type
from alluvia.operations.reading.relations import Files, InputSplit, LocalRows, Relation, Split
from alluvia.pipelines.computing import StepComputing

_OF_SOURCE = re.compile(r"pipeline_(?:source|appended|changed)(\d*)")


def split_of(computing: StepComputing, relation: Relation) -> Split:
    """Return by which values of its inputs a relation of a step can be computed in parts; None where it cannot."""
    kind = computing.step.kind
    if not kind.row_wise and not kind.parts:
        return None
    return {name: _split(computing, name, read) for name, read in relation.inputs.items()}


def rows_alone(computing: StepComputing, relation: Relation) -> Split:
    """Return how a relation that can be computed for each row by itself is shared out."""
    return {name: InputSplit((), _columns(computing, name, read)) for name, read in relation.inputs.items()}


def _split(computing: StepComputing, name: str, read: Files | LocalRows) -> InputSplit:
    """Return the values of the parts for rows of an input, in the types of the table's columns."""
    step, source = computing.step, _source(computing, name)
    schema = read.snapshot.schema if isinstance(read, Files) else read.schema
    units = dict(zip((each.column for each in step.kind.unit), computing.unit_schema.names, strict=True))
    values: list[str] = []
    for each in step.kind.parts:
        column = computing.column(each.column)
        unit = units.get(each.column, "")
        own = quote_name(unit if unit in schema.names else column.name)
        text = own if source is None else f"TRY({each.texts[source]})"
        values.append(f"CAST({text} AS {duckdb_type(column.type)})")
    return InputSplit(tuple(values), _columns(computing, name, read))


def _source(computing: StepComputing, name: str) -> str | None:
    of_source = _OF_SOURCE.fullmatch(name)
    return None if of_source is None else computing.step.query.sources[int(of_source[1] or 0)]


def _columns(computing: StepComputing, name: str, read: Files | LocalRows) -> tuple[str, ...]:
    """Return the columns of an input that the step needs."""
    source = _source(computing, name)
    if isinstance(read, Files) and source is not None:
        return tuple(computing.step.seen(source, read.snapshot.schema))
    return tuple((read.snapshot.schema if isinstance(read, Files) else read.schema).names)
