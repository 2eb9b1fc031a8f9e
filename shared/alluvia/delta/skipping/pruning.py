"""Data skipping: which files can contain matching rows, by partition values and statistics. Pure.

A file is kept unless its statistics prove that no row of it matches; where they are absent or unreadable it is kept.
Files of a checkpoint are judged by whole columns, and a sidecar that its own statistics rule out is not opened.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import pyarrow as pa

from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.files.file_set import ActionSet
from alluvia.delta.log.files.rows import LogRows
from alluvia.delta.log.files.sidecars import open_rows
from alluvia.delta.skipping.column_verdicts import matching
from alluvia.delta.skipping.predicate import Predicate, Unknown
from alluvia.delta.skipping.verdicts import FileStatistics as FileStatistics  # noqa: PLC0414
from alluvia.delta.skipping.verdicts import can_match, needs_exact

FEW_FILES = 32
"""So many are judged one by one: columns cost more."""


def prune(
    files: Iterable[AddFile], predicate: Predicate, schema: pa.Schema, partition_columns: Sequence[str]
) -> list[AddFile]:
    """Return the files that can hold rows for which a predicate holds, in their order.

    Where the table maps its columns, all names are those that columns have in files (`column_mapping`).
    """
    if isinstance(predicate, Unknown):
        return list(files)
    if not isinstance(files, ActionSet):
        return _one_by_one(files, predicate, schema, partition_columns)
    sections = [each for each in files.sections if len(each) and _section_can_match(each, predicate, schema)]
    open_rows(sections)
    kept: list[AddFile] = []
    for section in sections:
        if len(section) <= FEW_FILES:
            kept += _one_by_one(files.pick(section), predicate, schema, partition_columns)
        else:
            kept += files.pick(section, matching(predicate, section, schema, partition_columns))
    return kept


def _one_by_one(
    files: Iterable[AddFile], predicate: Predicate, schema: pa.Schema, partition_columns: Sequence[str]
) -> list[AddFile]:
    exact = needs_exact(predicate, schema)
    return [
        file for file in files if can_match(predicate, FileStatistics(file, schema, partition_columns, exact=exact))
    ]


def _section_can_match(section: LogRows[AddFile], predicate: Predicate, schema: pa.Schema) -> bool:
    """Whether a file of a section can match, by the statistics of all of them together, partition columns included."""
    if section.facts is None:
        return True
    together = AddFile("", {}, 0, 0, data_change=False, stats=section.facts)
    return can_match(predicate, FileStatistics(together, schema, (), exact=needs_exact(predicate, schema)))
