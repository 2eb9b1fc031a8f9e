"""The files that optimize may have to rewrite, found by whole columns of the log. Pure.

A table with nothing to do has none of them, however many files it has, and so costs no object.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.clustering import CLUSTER_TAG, cell_of, tag_start
from alluvia.delta.deletion_vectors.storage import mask_of, positions_of, whole
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.files.action_rows import LogRows
from alluvia.delta.log.files.file_set import FEW_ACTIONS, ActionSet
from alluvia.delta.log.files.parquet import joined
from alluvia.delta.log.files.sidecars import open_rows
from alluvia.delta.partitioning.partition import partition_text
from alluvia.delta.partitioning.spec import PartitionSpec
from alluvia.delta.partitioning.transforms import PARTITION_TAG, Span, given_part, part
from alluvia.delta.skipping.pruning import span_of
from alluvia.delta.skipping.verdicts import FileStatistics
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass

DELETED_SHARE = 0.05
"""A file of which a deletion vector deletes more than this share is worth rewriting for that alone."""
BIG_SHARE = 0.25
"""From this share of the target on, files show how many bytes a row takes once it is merged."""
CLUSTER_FILES_MIN = 4
"""So many full files of one cell are worth being cut along one curve."""
_SEPARATOR = "\x1f"
_NULL = "\x00"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file, the span of its rows, and the `weight`: about how many bytes its live rows take once rewritten.

    In a clustered table also its cell, and its bounds of each of the columns; None where they are not known.
    """

    file: AddFile
    span: Span
    weight: int
    thinned: bool = False
    cell: str = ""
    bounds: tuple[tuple[Any, Any] | None, ...] = ()

    @property
    def single(self) -> bool:
        """Whether all rows have the same values of all transforms."""
        return self.span.single


def candidates(
    files: ActionSet[AddFile],
    spec: PartitionSpec,
    small: int,
    *,
    full: bool = False,
    only: Mapping[str, object] | None = None,
    row_bytes: float | None = None,
    clustered: pa.Schema | None = None,
) -> list[Candidate]:
    """Return the files of less than `small` bytes, except single ones, and those with deleted rows or wide spans.

    In a clustered table, also the bigger files of each cell that has enough of them; `clustered` has the columns under
    their names in files.

    `only` are partition values, by the texts of the specification's fields. `full` takes every deleted row seriously.
    `row_bytes` is what a row takes in a merged file, None if that is not known.
    """
    wanted = _Wanted(spec, only or {})
    open_rows(files.parts)
    sections = [section for section in files.sections if len(section)]
    masks = [_mask(section, spec, small, wanted, full=full) for section in sections]
    kept = _without_lone(sections, masks, spec)
    bounded = pa.schema([]) if clustered is None else clustered
    names = bounded.names
    if names:
        big = [wanted.mask(section, pc.invert(mask)) for section, mask in zip(sections, masks, strict=True)]
        crowded = _crowded(sections, big, spec, names, least=2 if full else CLUSTER_FILES_MIN)
        kept = [pc.or_(mask, more) for mask, more in zip(kept, crowded, strict=True)]
    chosen = []
    for section, mask in zip(sections, kept, strict=True):
        for file in files.pick(section, mask):
            span = span_of(file, spec) or anywhere(spec)
            if wanted.has(span):
                thinned, cell, bounds = is_thinned(file, full=full), cell_of(file, names), _bounds(file, bounded)
                chosen.append(Candidate(file, span, weight(file, row_bytes), thinned, cell, bounds))
    return chosen


def _bounds(file: AddFile, columns: pa.Schema) -> tuple[tuple[Any, Any] | None, ...]:
    if not columns.names:
        return ()
    known = FileStatistics(file, columns, (), exact=False)
    return tuple(known.bounds((name,)) for name in columns.names)


def weight(file: AddFile, row_bytes: float | None) -> int:
    """Return about how many bytes a file's live rows take once rewritten."""
    live, rows = file.live_records, file.num_records
    if live is None or not rows:
        return file.size
    share = file.size * live / rows
    return max(1, int(share if row_bytes is None else min(share, live * row_bytes)))


def is_thinned(file: AddFile, *, full: bool = False) -> bool:
    """Whether enough rows of a file are deleted to rewrite it, even if it is big or alone; `full`: any at all."""
    live, rows = file.live_records, file.num_records
    if live is None or not rows:
        return False
    return rows - live > rows * (0 if full else DELETED_SHARE)


def merged_row_bytes(files: ActionSet[AddFile], target: int) -> float | None:
    """Return how many bytes a row takes in the table's bigger files; None where there are none, or no row counts."""
    size = rows = 0
    for section in files.sections:
        sizes = section.column(("size",))
        if sizes is None:
            continue
        big = pc.fill_null(pc.greater_equal(sizes, whole(int(target * BIG_SHARE))), fill_value=False)
        numbers = _row_counts(section, big)
        if numbers is not None:
            counted = pc.and_(big, pc.is_valid(numbers))
            size += pc.sum(sizes.filter(counted)).as_py() or 0
            rows += pc.sum(numbers.filter(counted)).as_py() or 0
    return size / rows if rows else None


def _row_counts(section: LogRows[AddFile], wanted: pa.BooleanArray) -> pa.Array | None:
    numbers = section.column(("stats_parsed", "numRecords"))
    if numbers is not None and pa.types.is_integer(numbers.type):
        return numbers
    at = pc.indices_nonzero(wanted)
    if not 0 < len(at) <= _COUNTED_MAX:
        return None
    counts = [file.num_records for file in section.actions(at.to_pylist())]
    return pc.replace_with_mask(pa.nulls(len(section), pa.int64()), wanted, pa.array(counts, pa.int64()))


_COUNTED_MAX = 1000
"""Row counts that only JSON has are parsed for no more files than this."""


def anywhere(spec: PartitionSpec) -> Span:
    """Return the span of a file of which nothing is known: from before every key to the last, which is all nulls."""
    return Span((), tuple(part(None) for _ in spec.transforms))


def _mask(
    section: LogRows[AddFile], spec: PartitionSpec, small: int, wanted: _Wanted, *, full: bool
) -> pa.BooleanArray:
    sizes = section.column(("size",))
    if sizes is None:
        return pa.repeat(pa.scalar(value=True), len(section))
    mask = pc.or_(pc.fill_null(pc.less(sizes, whole(small)), fill_value=True), _maybe_thinned(section, full=full))
    if spec.transforms:
        mask = pc.or_(mask, _maybe_wide(section))
    return wanted.mask(section, mask)


def _maybe_thinned(section: LogRows[AddFile], *, full: bool) -> pa.BooleanArray:
    having = section.with_vector()
    if not pc.any(having).as_py():
        return having
    rows, deleted = section.column(("stats_parsed", "numRecords")), section.column(("deletionVector", "cardinality"))
    if rows is None or deleted is None or not (pa.types.is_integer(rows.type) and pa.types.is_integer(deleted.type)):
        return having
    share = pa.scalar(0.0 if full else DELETED_SHARE, pa.float64())
    enough = pc.greater(deleted, pc.multiply(rows.cast(pa.float64()), share))
    return pc.and_(having, pc.fill_null(enough, fill_value=True))


def _maybe_wide(section: LogRows[AddFile]) -> pa.BooleanArray:
    """Return which rows have no tag, or one with a list, as that of a span of several keys has."""
    tags = section.map_batches("tags", PARTITION_TAG)
    return joined([pc.fill_null(pc.match_substring(each, "["), fill_value=True) for each in tags])


def _crowded(
    sections: list[LogRows[AddFile]], masks: list[pa.BooleanArray], spec: PartitionSpec, names: list[str], *, least: int
) -> list[pa.BooleanArray]:
    """Return which of some files are in a cell of a partition that has at least `least` of them."""
    columns = [
        pc.binary_join_element_wise(
            _partitions(section, mask, spec), _cells(section, mask, names), pa.scalar(_SEPARATOR, pa.string())
        )
        for section, mask in zip(sections, masks, strict=True)
    ]
    often = _frequent(columns, least)
    crowds = [pc.is_in(column, value_set=often, skip_nulls=True) for column in columns]
    return [mask_of(positions_of(mask).filter(crowded), len(mask)) for mask, crowded in zip(masks, crowds, strict=True)]


def _cells(section: LogRows[AddFile], mask: pa.BooleanArray, names: list[str]) -> pa.Array:
    """Return a text for the cell of each row of a mask."""
    tags = pc.fill_null(section.map_texts("tags", CLUSTER_TAG).filter(mask), "")
    return pc.if_else(pc.starts_with(tags, tag_start(names)), tags, "")


def _frequent(columns: list[pa.Array], least: int) -> pa.Array:
    """Return the texts that columns have at least so often."""
    counts = pc.value_counts(pa.concat_arrays(columns or [pa.array([], pa.string())]))
    return counts.field("values").filter(pc.greater_equal(counts.field("counts"), whole(least)))


def _without_lone(
    sections: list[LogRows[AddFile]], masks: list[pa.BooleanArray], spec: PartitionSpec
) -> list[pa.BooleanArray]:
    """Drop the small files with which no other can be merged, by Delta's partition values."""
    if sum(mask.true_count for mask in masks) <= FEW_ACTIONS:
        return masks
    columns = [_stored_values(section, mask, spec) for section, mask in zip(sections, masks, strict=True)]
    often = _frequent(columns, 2)
    kept = []
    for section, mask, column in zip(sections, masks, columns, strict=True):
        alone = pc.invert(pc.is_in(column, value_set=often, skip_nulls=True))
        if spec.transforms:
            alone = pc.and_not(alone, _maybe_wide(section).filter(mask))
        alone = pc.and_not(alone, section.with_vector().filter(mask))
        kept.append(pc.and_not(mask, mask_of(positions_of(mask).filter(alone), len(section))))
    return kept


def _partitions(section: LogRows[AddFile], mask: pa.BooleanArray, spec: PartitionSpec) -> pa.Array:
    """Return a text for the partition of each row of a mask; null for one that may be in several."""
    stored = _stored_values(section, mask, spec)
    if not spec.transforms:
        return stored
    tags = section.map_texts("tags", PARTITION_TAG).filter(mask)
    tag = pc.if_else(pc.match_substring(tags, "["), None, tags)
    return pc.binary_join_element_wise(stored, tag, pa.scalar(_SEPARATOR, pa.string()))


def _stored_values(section: LogRows[AddFile], mask: pa.BooleanArray, spec: PartitionSpec) -> pa.Array:
    """Return a text for the values of the partition columns of each row of a mask."""
    columns = [section.map_texts("partitionValues", name).filter(mask) for name in spec.stored_columns]
    parts = [pc.fill_null(column, _NULL) for column in columns]
    return pc.binary_join_element_wise(
        *(parts or [pa.repeat(pa.scalar(""), mask.true_count)]), pa.scalar(_SEPARATOR, pa.string())
    )


def files_like(files: ActionSet[AddFile], spec: PartitionSpec) -> Callable[[AddFile], int]:
    """Return what says of a file how many there are with its values of the partition columns, itself included."""
    if not spec.stored_columns:
        return lambda _: files.expected_len

    @cache
    def counts() -> Counter[str]:
        total: Counter[str] = Counter()
        for section in files.sections:
            every = pa.repeat(pa.scalar(value=True), len(section))
            number = pc.value_counts(_stored_values(section, every, spec))
            total.update(dict(zip(number.field("values").to_pylist(), number.field("counts").to_pylist(), strict=True)))
        return total

    def like(file: AddFile) -> int:
        values = [file.partition_values.get(name) for name in spec.stored_columns]
        return counts()[_SEPARATOR.join(_NULL if value is None else value for value in values)]

    return like


class _Wanted:
    """Whether a file belongs to the partitions that a caller names. Raises `Invalid`, naming the field."""

    def __init__(self, spec: PartitionSpec, only: Mapping[str, object]) -> None:
        wanted = {text: spec.named(text) for text in only}
        unknown = next((text for text, field in wanted.items() if field is None), None)
        if unknown is not None:
            known = ", ".join(map(str, spec.fields)) or "nothing"
            raise Invalid(f"partition: {unknown!r} is not a field by which the table is partitioned, which is {known}")
        values = {field: only[text] for text, field in wanted.items() if field is not None}
        self._values = {
            field.stored or field.column: None if value is None else partition_text(value, field.column)
            for field, value in values.items()
            if field.transform is None
        }
        self._parts = [given_part(field, values[field]) if field in values else None for field in spec.transforms]

    def mask(self, section: LogRows[AddFile], mask: pa.BooleanArray) -> pa.BooleanArray:
        """Return which of some rows have the values of the identity columns."""
        for name, value in self._values.items():
            texts = section.map_texts("partitionValues", name)
            same = (
                pc.is_null(texts)
                if value is None
                else pc.fill_null(pc.equal(texts, pa.scalar(value, pa.string())), fill_value=False)
            )
            mask = pc.and_(mask, same)
        return mask

    def has(self, span: Span) -> bool:
        """Whether a span can hold the values of the transforms. Those after one that varies can be any."""
        for at, wanted in enumerate(self._parts):
            low, high = span.low[at : at + 1], span.high[at : at + 1]
            if wanted is not None and not low <= (wanted,) <= high:
                return False
            if low != high:
                return True
        return True
