"""Which rows are to be erased, as one version of the table has them. Pure."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

import pyarrow as pa

from alluvia.expressions.condition import Condition, condition
from alluvia.lazy_dataclasses import dataclass
from alluvia.log.actions import AddFile
from alluvia.table.masks import definite
from alluvia.table.scan import Scan
from alluvia.table.skipping.predicate import Predicate, Unknown
from alluvia.table.snapshot import Snapshot

Mask = Callable[[pa.RecordBatch], pa.BooleanArray]


@dataclass(frozen=True)
class Matching:
    """Rows to erase of a snapshot's table.

    `mask` says for each row of a batch with `columns` whether it is one, and raises `Invalid` where the condition fails
    on a value; `lenient` is null where that cannot be told. `predicate` holds for every such row, `complement` for
    every other one. `words` are the texts and numbers in the condition.
    """

    snapshot: Snapshot
    columns: tuple[str, ...]
    mask: Mask
    lenient: Mask
    words: frozenset[str]
    predicate: Predicate
    complement: Predicate

    def can_match(self, file: AddFile) -> bool:
        """Whether a file of the table, also one of another version, can hold such rows."""
        return self._scan.can_match(file)

    @cached_property
    def _scan(self) -> Scan:
        return Scan(self.snapshot, self.predicate)


Find = Callable[[Snapshot], Matching]


def matching_rows(where: str) -> Find:
    """Return what an SQL condition says of a table's rows; it raises `Invalid` if the text is not a condition.

    The condition is parsed once for each schema.
    """
    known: list[tuple[pa.Schema, Condition]] = []

    def find(snapshot: Snapshot) -> Matching:
        if not known or not known[-1][0].equals(snapshot.schema, check_metadata=True):
            known.append((snapshot.schema, condition(where, snapshot.schema)))
        return _matching(snapshot, known[-1][1])

    return find


def _matching(snapshot: Snapshot, parsed: Condition) -> Matching:
    return Matching(
        snapshot,
        parsed.columns or tuple(snapshot.schema.names[:1]),
        lambda batch: definite(parsed.mask(batch)),
        parsed.lenient_mask,
        parsed.words,
        parsed.predicate,
        parsed.complement,
    )


def matching_texts(snapshot: Snapshot, columns: tuple[str, ...], mask: Mask, words: frozenset[str]) -> Matching:
    """Return a matching that nothing is known of but which rows it is about."""
    return Matching(snapshot, columns, mask, mask, words, Unknown(), Unknown())
