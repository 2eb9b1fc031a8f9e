"""Which files are rewritten to move promoted fields to their columns. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from alluvia.delta.clustering import cell_of
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.files.sidecars import open_rows
from alluvia.delta.promoted_fields import TAG, moved_number
from alluvia.delta.skipping.predicate import Unknown
from alluvia.delta.skipping.pruning import Doubt, span_of
from alluvia.delta.snapshot import Snapshot
from alluvia.operations.compaction.optimize_files import Candidate, anywhere, weight
from alluvia.operations.compaction.optimize_plan import CUT_TARGETS_MAX, FileGroup, filled


def unmoved_files(snapshot: Snapshot) -> list[AddFile]:
    """Return the files in which values of promoted fields may still be in `properties` alone."""
    if not snapshot.promoted:
        return []
    number = max(field.number for field in snapshot.promoted)
    doubt = Doubt(Unknown(), TAG, number)
    open_rows(snapshot.files.parts)
    return [
        file
        for section in snapshot.files.sections
        if len(section)
        for file in snapshot.files.pick(section, doubt.mask(section))
        if moved_number(file.tags) < number
    ]


def plan_moves(snapshot: Snapshot, target: int) -> list[FileGroup]:
    """Return groups of such files, of about `target` bytes each: of one partition, and of the same values of it."""
    spec, clustered = snapshot.partition_spec, snapshot.file_form.file_settings.cluster_by
    chosen = [
        Candidate(file, span_of(file, spec) or anywhere(spec), weight(file, None), cell=cell_of(file, clustered))
        for file in unmoved_files(snapshot)
    ]
    return list(_groups(sorted(chosen, key=_place), target))


def _place(each: Candidate) -> tuple[object, ...]:
    values = tuple((name, text is None, text or "") for name, text in sorted(each.file.partition_values.items()))
    return (values, each.span.low, each.span.high, each.cell)


def _groups(files: list[Candidate], target: int) -> Iterator[FileGroup]:
    for _, alike in groupby(files, key=_place):
        for chain in filled(list(alike), lambda size, more: size + more > target, CUT_TARGETS_MAX * target):
            yield FileGroup(tuple(chain), joined=not chain[0].span.single)
