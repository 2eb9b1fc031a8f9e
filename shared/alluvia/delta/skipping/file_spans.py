"""The span of a data file: by its tag, else by its statistics; and pruning by the buckets in it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from alluvia.delta.log.actions import AddFile
from alluvia.delta.partitioning.spans import KeyPart, Span, part, tagged_span
from alluvia.delta.partitioning.spec import BUCKET, PartitionField, PartitionSpec
from alluvia.delta.partitioning.transforms import key_part
from alluvia.delta.schema.column_path import ColumnPath
from alluvia.delta.skipping.predicate import And, Comparison, In, IsNull, Or, Predicate, columns_of
from alluvia.delta.skipping.verdicts import FileStatistics


def span_of(file: AddFile, spec: PartitionSpec) -> Span | None:
    """Return the range of transforms' values that a file's rows can have; None where nothing bounds them.

    The tag says it. Of a file without one (of another writer, or of an earlier version of this library), the span
    follows from the bounds of the columns, and may be wider than its rows.
    """
    fields = spec.transforms
    tagged = tagged_span(file, {str(field): field.values for field in fields})
    if tagged is not None or not fields:
        return tagged or Span((), ())
    statistics = FileStatistics(file, pa.schema({_stored(field): field.kind for field in fields}), (), exact=False)
    parts = [_bounds(statistics, field) for field in fields]
    known = [each for each in parts if each is not None]
    if len(known) < len(parts):
        return None
    return Span(tuple(low for low, _ in known), tuple(high for _, high in known))


def _bounds(statistics: FileStatistics, field: PartitionField) -> tuple[KeyPart, KeyPart] | None:
    nulls = statistics.nulls((_stored(field),))
    if nulls is not None and nulls == statistics.rows:
        return part(None), part(None)
    if field.transform == BUCKET:
        low, high = part(0), part(field.width - 1)
    else:
        bounds = statistics.bounds((_stored(field),))
        if bounds is None:
            return None
        low, high = (key_part(field, bound) for bound in bounds)
    return low, high if nulls == 0 else part(None)


def _stored(field: PartitionField) -> str:
    return field.stored or field.column


def prune_buckets(files: Iterable[AddFile], predicate: Predicate, spec: PartitionSpec) -> list[AddFile]:
    """Return the files whose buckets can hold rows for which a predicate holds: what statistics cannot tell."""
    columns = columns_of(predicate)
    if not any(field.transform == BUCKET and (field.column,) in columns for field in spec.transforms):
        return list(files)
    return [file for file in files if _can_match(predicate, _bucket_ranges(file, spec))]


Buckets = dict[ColumnPath, tuple[PartitionField, KeyPart, KeyPart]]


def _bucket_ranges(file: AddFile, spec: PartitionSpec) -> Buckets:
    """Return between which buckets a file's rows are; behind a transform with several values, they can be in any."""
    span = span_of(file, spec)
    found: Buckets = {}
    for field, low, high in zip(spec.transforms, span.low, span.high, strict=True) if span else ():
        if field.transform == BUCKET:
            found[(field.column,)] = field, low, high
        if low != high:
            break
    return found


def _can_match(predicate: Predicate, buckets: Buckets) -> bool:
    if isinstance(predicate, And):
        return all(_can_match(child, buckets) for child in predicate.children)
    if isinstance(predicate, Or):
        return any(_can_match(child, buckets) for child in predicate.children)
    if not isinstance(predicate, (Comparison, In, IsNull)) or predicate.column not in buckets:
        return True
    field, low, high = buckets[predicate.column]
    if isinstance(predicate, IsNull):
        return high == part(None)
    values = predicate.values if isinstance(predicate, In) else (predicate.value,)
    exact = str if pa.types.is_string(field.kind) else int
    if (isinstance(predicate, Comparison) and predicate.op != "=") or any(type(value) is not exact for value in values):
        return True
    return any(low <= key_part(field, value) <= high for value in values)
