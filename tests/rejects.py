"""Tables of rejected events with columns of a test's own. Only ingestion creates such tables otherwise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from alluvia.api.lake import Lake, Table
from alluvia.delta.arguments import schema_of
from alluvia.operations.catalog.catalog import NewTable


def create_rejects(
    lake: Lake,
    table: str,
    columns: pa.Schema | Mapping[str, str],
    partition_by: Sequence[str] = (),
    sort_by: Sequence[str] = (),
) -> Table:
    """Create the table of a table's rejected events."""
    name = f"{table}/_rejects"
    lake.catalog.create(name, NewTable(schema_of(columns), partition_by, sort_by), exist_ok=False)
    return lake[name]
