"""Tables that are kept as rollups are: groups that only gained rows are folded, without a look at the source. Pure."""

from __future__ import annotations

import pyarrow as pa

from alluvia.delta.schema.names import fold
from alluvia.errors import Invalid
from alluvia.pipelines.steps import Step
from alluvia.rollups.computing import Computing
from alluvia.rollups.definition import Definition, keys_of, read_query


def folding(step: Step, schema: pa.Schema, source: pa.Schema) -> Computing | None:
    """Return the rollup that a step is the same as; None where it is not. `schema` has the table's columns.

    A row that fails an expectation is not in the table, so that nothing can be folded into it.
    """
    declaration = step.declaration
    if declaration.expectations or declaration.sequencing is not None:
        return None
    try:
        query = read_query(declaration.query)
        keys = keys_of(query, source, schema.names)
    except Invalid:
        return None
    columns = step.columns[query.source]
    own = {fold(name) for name in declaration.key}
    if columns is None or not keys or (own and not own >= set(map(fold, keys))):
        return None
    return Computing(Definition(query.source, declaration.query, keys, columns), query, schema, "pipeline_")
