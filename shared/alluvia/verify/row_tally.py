"""Tally the rows of a data file batch by batch: their number, nulls, minimum and maximum. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.schema.column_path import ColumnPath
from alluvia.delta.statistics.typed import has_bounds
from alluvia.lazy_dataclasses import dataclass
from alluvia.verify.leaves import Leaf, comparable


@dataclass(slots=True)
class ColumnTally:
    """Of one leaf column: nulls of all rows and of live ones; least and greatest live value, NaN left out."""

    nulls: int = 0
    live_nulls: int = 0
    least: Any = None
    greatest: Any = None


@dataclass(slots=True)
class Tally:
    """Of a file's rows so far; `deleted` are those of them that a deletion vector deletes.

    A column that a batch lacks, because its values cannot be read, is dropped.
    """

    leaves: Sequence[Leaf]
    rows: int = 0
    deleted: int = 0
    columns: dict[ColumnPath, ColumnTally] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.columns = {leaf.path: ColumnTally() for leaf in self.leaves}

    def take(self, batch: pa.RecordBatch, live: pa.RecordBatch) -> None:
        """Count a batch of which `live` are the rows that are not deleted."""
        self.rows += len(batch)
        self.deleted += len(batch) - len(live)
        for leaf in self.leaves:
            seen = self.columns.get(leaf.path)
            if seen is None or leaf.path[0] not in live.schema.names:
                self.columns.pop(leaf.path, None)
                continue
            shown = _leaf(live, leaf.path)
            seen.live_nulls += shown.null_count
            seen.nulls += shown.null_count if live is batch else _leaf(batch, leaf.path).null_count
            if has_bounds(leaf.kind):
                _widen(seen, shown)


def _leaf(batch: pa.RecordBatch, path: ColumnPath) -> pa.Array:
    found = batch.column(path[0])
    for name in path[1:]:
        found = pc.struct_field(found, name)
    return found


def _widen(seen: ColumnTally, values: pa.Array) -> None:
    if pa.types.is_floating(values.type):
        values = values.filter(pc.invert(pc.fill_null(pc.is_nan(values), fill_value=False)))
    if values.null_count == len(values):
        return
    both = pc.min_max(values)
    least, greatest = comparable(both["min"]), comparable(both["max"])
    seen.least = least if seen.least is None else min(seen.least, least)
    seen.greatest = greatest if seen.greatest is None else max(seen.greatest, greatest)
