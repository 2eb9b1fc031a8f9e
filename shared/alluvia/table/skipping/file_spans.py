"""The span of a data file: by its tag, else by its statistics. Pure."""

from __future__ import annotations

import pyarrow as pa

from alluvia.log.actions import AddFile
from alluvia.table.partitioning.spans import KeyPart, Span, part, tagged_span
from alluvia.table.partitioning.spec import BUCKET, PartitionField, PartitionSpec
from alluvia.table.partitioning.transforms import key_part
from alluvia.table.skipping.verdicts import FileStatistics


def span_of(file: AddFile, spec: PartitionSpec) -> Span | None:
    """Return the range of transforms' values that a file's rows can have; None where nothing bounds them.

    The tag says it. Of a file without one (of another writer, or of an earlier version of this library), the span
    follows from the bounds of the columns, and may be wider than its rows.
    """
    fields = spec.transforms
    tagged = tagged_span(file, {str(field): field.values for field in fields})
    if tagged is not None or not fields:
        return tagged or Span((), ())
    statistics = FileStatistics(file, pa.schema({field.column: field.kind for field in fields}), (), exact=False)
    parts = [_bounds(statistics, field) for field in fields]
    known = [each for each in parts if each is not None]
    if len(known) < len(parts):
        return None
    return Span(tuple(low for low, _ in known), tuple(high for _, high in known))


def _bounds(statistics: FileStatistics, field: PartitionField) -> tuple[KeyPart, KeyPart] | None:
    nulls = statistics.nulls((field.column,))
    if nulls is not None and nulls == statistics.rows:
        return part(None), part(None)
    if field.transform == BUCKET:
        low, high = part(0), part(field.width - 1)
    else:
        bounds = statistics.bounds((field.column,))
        if bounds is None:
            return None
        low, high = (key_part(field, bound) for bound in bounds)
    return low, high if nulls == 0 else part(None)
