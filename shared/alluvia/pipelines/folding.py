"""Tables that are kept as rollups are: groups that only gained rows are folded, without a look at the source. Pure.

A row that an expectation leaves out is not in the table, so that nothing can be folded into it. Runs record that such
rows are missing, until all rows are computed again without such an expectation.
"""

from __future__ import annotations

import pyarrow as pa

from alluvia.delta.log.actions import Txn
from alluvia.delta.schema.names import fold
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid
from alluvia.pipelines.declarations.declaration import DROP, QUARANTINE, Declaration
from alluvia.pipelines.planning import REBUILT
from alluvia.pipelines.steps import Step
from alluvia.rollups.change import PROGRESS
from alluvia.rollups.computing import Computing
from alluvia.rollups.definition import Definition, keys_of, read_query

LACKS_ROWS = f"{PROGRESS}.lacks_rows"
"""The application id under which runs record whether rows are missing, as 1 or 0."""


def folding(step: Step, schema: pa.Schema, source: pa.Schema) -> Computing | None:
    """Return the rollup that a step is the same as; None where it is not. `schema` has the table's columns."""
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


def leaves_rows_out(declaration: Declaration) -> bool:
    """Whether an expectation drops rows or sets them aside."""
    return any(each.action in (DROP, QUARANTINE) for each in declaration.expectations)


def lacks_rows(table: Snapshot) -> bool:
    """Whether expectations, which the declaration may not have any more, have left rows of a table out."""
    txn = table.state.txns.get(LACKS_ROWS)
    return txn is not None and txn.version > 0


def lacking_txns(declaration: Declaration, table: Snapshot, mode: str, now_ms: int) -> list[Txn]:
    """Return what a run records of that, given the table before it."""
    leaves, lacks = leaves_rows_out(declaration), lacks_rows(table)
    if leaves and not lacks:
        return [Txn(LACKS_ROWS, 1, now_ms)]
    return [Txn(LACKS_ROWS, 0, now_ms)] if lacks and not leaves and mode == REBUILT else []
