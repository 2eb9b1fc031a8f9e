"""Data skipping: which files can contain matching rows, by partition values and statistics. Pure.

A file is kept unless its statistics prove that no row of it matches; where they are absent or unreadable it is kept.
Files of a checkpoint are judged by whole columns, and a sidecar that its own statistics rule out is not opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.files.action_rows import LogRows
from alluvia.delta.log.files.file_set import ActionSet
from alluvia.delta.log.files.sidecars import open_rows
from alluvia.delta.partitioning.spec import BUCKET, PartitionField, PartitionSpec
from alluvia.delta.partitioning.transforms import KeyPart, Span, key_part, part, tagged_span
from alluvia.delta.schema.names import ColumnPath
from alluvia.delta.skipping.column_verdicts import matching
from alluvia.delta.skipping.predicate import And, Comparison, In, IsNull, Or, Predicate, Unknown, columns_of
from alluvia.delta.skipping.verdicts import FileStatistics, can_match, needs_exact
from alluvia.lazy_dataclasses import dataclass


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
    ranges: Buckets = {}
    for field, low, high in zip(spec.transforms, span.low, span.high, strict=True) if span else ():
        if field.transform == BUCKET:
            ranges[(field.column,)] = field, low, high
        if low != high:
            break
    return ranges


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


FEW_FILES = 32
"""So many are judged one by one: columns cost more."""


@dataclass(frozen=True, slots=True)
class Doubt:
    """A rule for files whose statistics of some columns are not those of the values that readers see.

    `predicate` is the part of the whole that their statistics can decide; `tag` is the name of the tag of all other
    files, and `number` the least number that it has to have.
    """

    predicate: Predicate
    tag: str
    number: int

    def of(self, file: AddFile) -> bool:
        """Whether it applies to a file."""
        return tag_number(file.tags.get(self.tag)) < self.number

    def mask(self, section: LogRows[AddFile]) -> pa.BooleanArray:
        """Return which files of a section it applies to."""
        texts = section.map_texts("tags", self.tag)
        seen: pa.Array = pc.unique(texts)
        known = [text for text in seen.to_pylist() if tag_number(text) >= self.number]
        return pc.invert(pc.is_in(texts, value_set=pa.array(known, pa.string())))


def tag_number(text: str | None) -> int:
    """Return the number that a tag says; 0 for none."""
    return int(text) if text and text.isascii() and text.isdigit() else 0


def prune(
    files: Iterable[AddFile],
    predicate: Predicate,
    schema: pa.Schema,
    partition_columns: Sequence[str],
    doubt: Doubt | None = None,
) -> list[AddFile]:
    """Return the files that can hold rows for which a predicate holds, in their order.

    Where the table maps its columns, all names are those that columns have in files (`column_mapping`). The files of a
    `doubt` are judged by its part of the predicate.
    """
    if isinstance(predicate, Unknown):
        return list(files)
    if not isinstance(files, ActionSet):
        return _one_by_one(files, predicate, schema, partition_columns, doubt)
    least = predicate if doubt is None else doubt.predicate
    sections = [each for each in files.sections if len(each) and _section_can_match(each, least, schema)]
    open_rows(sections)
    kept: list[AddFile] = []
    for section in sections:
        if len(section) <= FEW_FILES:
            kept += _one_by_one(files.pick(section), predicate, schema, partition_columns, doubt)
            continue
        mask = matching(predicate, section, schema, partition_columns)
        if doubt is not None:
            doubted = matching(doubt.predicate, section, schema, partition_columns)
            mask = pc.if_else(doubt.mask(section), doubted, mask)
        kept += files.pick(section, mask)
    return kept


def _one_by_one(
    files: Iterable[AddFile],
    predicate: Predicate,
    schema: pa.Schema,
    partition_columns: Sequence[str],
    doubt: Doubt | None,
) -> list[AddFile]:
    exact = needs_exact(predicate, schema)
    kept = []
    for file in files:
        told = doubt.predicate if doubt is not None and doubt.of(file) else predicate
        if can_match(told, FileStatistics(file, schema, partition_columns, exact=exact)):
            kept.append(file)
    return kept


def _section_can_match(section: LogRows[AddFile], predicate: Predicate, schema: pa.Schema) -> bool:
    """Whether a file of a section can match, by the statistics of all of them together, partition columns included."""
    if section.facts is None:
        return True
    together = AddFile("", {}, 0, 0, data_change=False, stats=section.facts)
    return can_match(predicate, FileStatistics(together, schema, (), exact=needs_exact(predicate, schema)))
