"""Rewriting the groups of a plan: in this process, one after the other, or elsewhere, many at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, TypeAlias

from alluvia.commit.handle import TableHandle
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import ObjectNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.compaction.optimize_plan import FileGroup
from alluvia.operations.compaction.optimize_write import NewFiles, rewrite

if TYPE_CHECKING:
    from alluvia.operations.compaction.optimize_fold import Evaluation

Rewritten: TypeAlias = NewFiles | ObjectNotFound
"""The files that a group became; an error if one of its own files is gone."""


@dataclass(frozen=True, slots=True)
class RewriteOrder:
    """The common part of a plan's groups: the version that they are of, and the size of new files in bytes.

    With `folds`, their rows are folded with the table's merge query.
    """

    snapshot: Snapshot
    target: int
    folds: bool


Rewriter: TypeAlias = Callable[[RewriteOrder, Sequence[FileGroup]], Iterator[tuple[FileGroup, Rewritten]]]
"""Rewrites groups, and yields each as soon as it is done, in any order. It may stop before all are done."""


def rewrite_group(
    handle: TableHandle, order: RewriteOrder, group: FileGroup, memory_mb: int | None, evaluation: Evaluation | None
) -> Rewritten:
    """Rewrite one group within a limit of memory in MB."""
    evaluate = evaluation(memory_mb) if order.folds and evaluation is not None else None
    try:
        return rewrite(handle, order.snapshot, group, order.target, memory_mb, evaluate)
    except ObjectNotFound as error:
        return error


def one_by_one(
    handle: TableHandle,
    memory_mb: int | None,
    evaluation: Evaluation | None,
    go_on: Callable[[], bool],
    turn: AbstractContextManager[object],
) -> Rewriter:
    """Return a rewriter in this process. It asks `go_on` before each group, and holds `turn` for as long as one takes.

    The next group is begun once the caller is done with the last one.
    """

    def rewritten(order: RewriteOrder, groups: Sequence[FileGroup]) -> Iterator[tuple[FileGroup, Rewritten]]:
        for group in groups:
            if not go_on():
                return
            with turn:
                done = rewrite_group(handle, order, group, memory_mb, evaluation)
            yield group, done

    return rewritten
