"""A merge whose source is in memory: rows pair where their keys are equal, and where ON holds if it says more.

Files are worked on one at a time. Without keys, or with a larger source, a query pairs the rows (`located_merge.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.commit.changes import Changes
from alluvia.commit.handle import TableHandle
from alluvia.delta.deletion_vectors.storage import mask_of, positions_of
from alluvia.delta.log.actions import AddFile
from alluvia.delta.schema.caller_rows import conform
from alluvia.delta.skipping.predicate import Predicate, Unknown
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.conditions.pairs import Pairs, PairTest, PairValues, Rows
from alluvia.engine.queries.tokens import masked
from alluvia.errors import Invalid
from alluvia.operations.merge_query.folding import check_edit
from alluvia.operations.reading.datafile import DataFile
from alluvia.operations.rows.edits import Inserts, RowChanges, merge_metrics
from alluvia.operations.rows.merge import (
    BY_SOURCE,
    CLAUSE,
    MATCHED,
    UNMATCHED,
    CopiedValues,
    FilePairs,
    MergeEdit,
    MergeRules,
    key_rows,
    keys_of,
    read_clauses,
)
from alluvia.operations.rows.row_changes import change_rows
from alluvia.operations.rows.source_keys import SourceKeys, UnfitKeys

ROWS_AT_ONCE = 1 << 18
"""The keys of this number of rows of a file are looked up at once."""


def merge(handle: TableHandle, source: pa.Table, rules: MergeRules) -> RowChanges:
    """Change a table's rows by those of a source, in one commit. The source is held in memory.

    ON must equate a column of each: see `keys_of`. Raises `UnfitKeys` where a query has to pair the rows: two rows of
    the source have the same key, or one has a key that the table's column cannot hold. Raises `Invalid` for expressions
    that do not fit.
    """

    def edit(snapshot: Snapshot) -> KeyedMerge:
        check_edit(snapshot, "MERGE", None)
        keyed = keys_of(rules, snapshot.schema, source.schema)
        keys = _source_keys(source, keyed.columns, snapshot.schema)
        on = None if keyed.alone else rules.on
        return KeyedMerge(snapshot, source, keys, rules, {"on": masked(rules.on)}, on=on)

    return change_rows(handle, "MERGE", edit)


class KeyedMerge(MergeEdit):
    """Changes rows by those of a source in memory, which have the `keys`.

    `on` is a condition on pairs besides that their keys are equal. `source_rows` says how many rows the source has
    where not all are here.
    """

    def __init__(
        self,
        snapshot: Snapshot,
        source: pa.Table,
        keys: SourceKeys,
        rules: MergeRules,
        parameters: Mapping[str, str],
        *,
        on: str | None = None,
        source_rows: int | None = None,
    ) -> None:
        self._table, self._given = rules.sides(snapshot.schema, source.schema)
        self._on = None if on is None else PairTest(on, Pairs([self._table, self._given]))
        self._read = read_clauses(rules, snapshot.schema, source.schema)
        super().__init__(snapshot, self._read)
        self.parameters = parameters
        self._source = source
        self._keys = keys
        self._source_rows = len(source) if source_rows is None else source_rows
        self._whole = any(clause.when == BY_SOURCE for clause in self._read)
        self.predicate = Unknown() if self._whole else keys.predicate
        tests = [test for test in (self._on, *(clause.test for clause in self._read)) if test is not None]
        needed = {*keys.on, *(name for test in tests for name in test.used.get(self._table.alias, ()))}
        self._columns = [name for name in snapshot.schema.names if name in needed]

    def candidates(self, snapshot: Snapshot) -> Sequence[AddFile]:
        return list(filter(self.matcher(snapshot), super().candidates(snapshot)))

    def matcher(self, snapshot: Snapshot) -> Callable[[AddFile], bool]:
        return (lambda _: True) if self._whole else self._keys.matcher(snapshot)

    @property
    def reads(self) -> Predicate:
        return self.predicate if self._whole else self._keys.reads

    def pairs(self, data: DataFile) -> FilePairs:
        parts: list[FilePairs] = []
        start = 0
        for batch in data.batches(self._columns, rows=ROWS_AT_ONCE):
            parts.append(self._paired(pa.Table.from_batches([batch]), data.live.slice(start, len(batch))))
            start += len(batch)
        return FilePairs(
            pa.concat_arrays([pa.array([], pa.bool_()), *(each.mask for each in parts)]),
            pa.concat_arrays([pa.array([], CLAUSE), *(each.clauses for each in parts)]),
            pa.concat_arrays([pa.array([], pa.int64()), *(each.sources for each in parts)]),
        )

    def _paired(self, rows: pa.Table, live: pa.BooleanArray) -> FilePairs:
        positions, sources = self._keys.pairs(rows.select(self._keys.on))
        kept = live.take(positions)
        if self._on is not None and len(positions):
            kept = pc.and_(kept, self._holds(self._on, rows.take(positions), sources))
        positions, sources = positions.filter(kept), sources.filter(kept)
        if self._whole:
            others = positions_of(pc.and_not(live, mask_of(positions, len(rows))))
            positions = pa.concat_arrays([positions, others])
            sources = pa.concat_arrays([sources, pa.nulls(len(others), pa.int64())])
            order = pc.sort_indices(positions)
            positions, sources = positions.take(order), sources.take(order)
        return FilePairs(mask_of(positions, len(rows)), self._deciding(rows.take(positions), sources), sources)

    def _deciding(self, rows: pa.Table, sources: pa.Int64Array) -> pa.Array:
        """Return for each row the number of the first clause that applies; null where none does."""
        clauses = pa.nulls(len(rows), CLAUSE)
        for number, clause in enumerate(self._read):
            if clause.when == UNMATCHED:
                continue
            paired = pc.is_valid(sources) if clause.when == MATCHED else pc.is_null(sources)
            here = pc.and_(paired, pc.is_null(clauses))
            if clause.test is not None:
                at = positions_of(here)
                if len(at):
                    at = at.filter(self._holds(clause.test, rows.take(at), sources.take(at)))
                here = mask_of(at, len(rows))
            clauses = pc.if_else(here, pa.scalar(number, CLAUSE), clauses)
        return clauses

    def _holds(self, test: PairTest, rows: pa.Table, sources: pa.Int64Array) -> pa.BooleanArray:
        return test.mask(self._sides(test, rows, sources), len(sources))

    def _sides(self, part: PairTest | PairValues | CopiedValues, rows: pa.Table, sources: pa.Int64Array) -> Rows:
        """Return the columns that a part of a clause looks at, of pairs."""
        used = part.used.get(self._given.alias, ())
        return {self._table.alias: rows, self._given.alias: self._source.select(used).take(sources)}

    def values(self, clause: int, rows: pa.Table, sources: pa.Int64Array) -> pa.Table:
        values = self._read[clause].values
        assert values is not None  # noqa: S101 - only clauses that update are asked
        return values.compute(self._sides(values, rows, sources), len(sources))

    def inserts(self, matched: pa.Int64Array) -> Inserts:
        left = positions_of(pc.invert(mask_of(matched.drop_null().unique(), len(self._source))))
        parts: list[tuple[PairValues | CopiedValues, pa.Int64Array]] = []
        for clause in self._read:
            if clause.when != UNMATCHED:
                continue
            chosen, left = left, left.slice(0, 0) if clause.test is None else left
            if clause.test is not None and len(chosen):
                kept = self._holds(clause.test, _NO_ROWS, chosen)
                chosen, left = chosen.filter(kept), chosen.filter(pc.invert(kept))
            if clause.values is not None and len(chosen):
                parts.append((clause.values, chosen))
        if not parts:
            return Inserts()
        return Inserts(pa.concat_arrays([chosen for _, chosen in parts]), lambda: self._inserted(parts))

    def _inserted(self, parts: Sequence[tuple[PairValues | CopiedValues, pa.Int64Array]]) -> Iterator[pa.Table]:
        for values, chosen in parts:
            yield conform(values.compute(self._sides(values, _NO_ROWS, chosen), len(chosen)), self._schema)

    def metrics(self, done: RowChanges, changes: Changes) -> dict[str, int]:
        return merge_metrics(self._source_rows, done, changes)


_NO_ROWS = pa.table({})


def _source_keys(source: pa.Table, keys: Mapping[str, str], schema: pa.Schema) -> SourceKeys:
    for mine, theirs in keys.items():
        if pa.types.is_float32(schema.field(mine).type) and pa.types.is_float64(source.schema.field(theirs).type):
            raise UnfitKeys(f"column {mine} is float in the table, but double in the source")
    try:
        given = key_rows(source, keys, schema)
    except Invalid as error:
        raise UnfitKeys(str(error)) from error
    return SourceKeys(given)
