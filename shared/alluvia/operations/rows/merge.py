"""MERGE INTO by keys: rows that match a row of the source are updated or deleted, by the first clause that applies.

Unlike an upsert, every clause has conditions and values of its own, over both rows, and rows of the table without a row
of the source can be changed as well. What has no keys, or too large a source, a query pairs (`sql/merge_by_query.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.commit.changes import Changes
from alluvia.commit.handle import TableHandle
from alluvia.delta.deletion_vectors.storage import mask_of, positions_of
from alluvia.delta.log.actions import AddFile
from alluvia.delta.schema.names import fold
from alluvia.delta.schema.rows import conform
from alluvia.delta.schema.types import type_name
from alluvia.delta.skipping.predicate import Predicate, Unknown
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.conditions.pairs import Pairs, PairTest, PairValues, Side
from alluvia.engine.conditions.sql_condition import read_expression
from alluvia.engine.duck.literals import quote_name
from alluvia.engine.queries.parse import Node
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.merge_query.folding import check_edit
from alluvia.operations.reading.datafile import DataFile
from alluvia.operations.rows.edits import Edit, Hits, Inserts, RowChanges, merge_metrics
from alluvia.operations.rows.row_changes import change_rows
from alluvia.operations.rows.update import moves_rows, with_columns
from alluvia.operations.rows.upsert_source import UpsertSource

MATCHED, UNMATCHED, BY_SOURCE = "matched", "unmatched", "unmatched by source"
_UNDECIDED = -1


@dataclass(frozen=True, slots=True)
class MergeClause:
    """A WHEN clause: `action` is `update`, `delete`, `insert` or `nothing`; `values` None for those of the source."""

    when: str
    action: str
    condition: str | None = None
    values: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class MergeRules:
    """What a merge does: the names of the table and the source in its expressions, ON, and its clauses, in order."""

    alias: str
    source_alias: str
    on: str
    clauses: Sequence[MergeClause]


def merge(handle: TableHandle, source: pa.Table, rules: MergeRules) -> RowChanges:
    """Change a table's rows by those of a source, in one commit. The source is held in memory.

    ON must equate a column of each: see `keys_of`. Raises `RepeatedKey` for a key that two rows of the source have, and
    `Invalid` for expressions that do not fit.
    """
    return change_rows(handle, "MERGE", lambda snapshot: MergeEdit(snapshot, source, rules))


class ReadClause:
    """A clause, read for the columns of a table and a source."""

    def __init__(self, clause: MergeClause, pairs: Pairs, schema: pa.Schema, source: Side) -> None:
        self.when = clause.when
        self.action = clause.action
        self.test = None if clause.condition is None else PairTest(clause.condition, pairs)
        self.values: PairValues | None = None
        if clause.action in ("update", "insert"):
            given = clause.values if clause.values is not None else _of_source(schema, source)
            self.values = PairValues(given, pairs, schema)

    def check(self) -> None:
        """Raise `Invalid` where the condition does not fit the columns."""
        if self.test is not None:
            self.test.check()

    def used(self, alias: str) -> set[str]:
        """Return the columns of a side that it looks at."""
        parts = [part.used for part in (self.test, self.values) if part is not None]
        return {name for used in parts for name in used.get(alias, ())}


def read_clauses(rules: MergeRules, schema: pa.Schema, source: pa.Schema) -> list[ReadClause]:
    """Read the clauses of a merge, in order. Raises `Invalid`."""
    target, given = Side(rules.alias, schema), Side(rules.source_alias, source)
    pairs = {MATCHED: Pairs([target, given]), BY_SOURCE: Pairs([target]), UNMATCHED: Pairs([given])}
    return [ReadClause(each, pairs[each.when], schema, given) for each in rules.clauses]


def _of_source(schema: pa.Schema, source: Side) -> dict[str, str]:
    """Return what `*` means: each column of the source for that of its name."""
    known = {fold(name): name for name in schema.names}
    found = {}
    for name in source.schema.names:
        if fold(name) not in known:
            raise Invalid(f"column {name} of the source is not in the table: name the columns, or add it to the table")
        found[known[fold(name)]] = f"{quote_name(source.alias)}.{quote_name(name)}"
    return found


class MergeEdit(Edit):
    """Rows of the table get what the first clause says that applies."""

    operation = "MERGE"

    def __init__(self, snapshot: Snapshot, source: pa.Table, rules: MergeRules) -> None:
        check_edit(snapshot, "MERGE", None)
        schema = self._schema = snapshot.schema
        self._rows = source
        target, given = Side(rules.alias, schema), Side(rules.source_alias, source.schema)
        self._target, self._given = target, given
        keys = keys_of(rules, schema, source.schema)
        self._on = None if keys.alone else PairTest(rules.on, Pairs([target, given]))
        self.source = UpsertSource(_key_rows(source, keys.columns, schema), list(keys.columns))
        clauses = read_clauses(rules, schema, source.schema)
        self._clauses = {
            when: [each for each in clauses if each.when == when] for when in (MATCHED, BY_SOURCE, UNMATCHED)
        }
        self._whole = bool(self._clauses[BY_SOURCE])
        self.predicate = Unknown() if self._whole else self.source.predicate
        changing = [*self._clauses[MATCHED], *self._clauses[BY_SOURCE]]
        updated = {name for each in changing if each.values is not None for name in each.values.names}
        self.columns_set = [name for name in schema.names if name in updated]
        self.in_place = not moves_rows(snapshot, self.columns_set)
        self.parameters = {"on": ", ".join(keys.columns)}
        needed = {*keys.columns, *(() if self._on is None else self._on.used[target.alias])}
        for each in changing:
            needed |= each.used(target.alias)
        self._columns = [name for name in schema.names if name in needed]

    def candidates(self, snapshot: Snapshot) -> Sequence[AddFile]:
        return list(filter(self.matcher(snapshot), super().candidates(snapshot)))

    def matcher(self, snapshot: Snapshot) -> Callable[[AddFile], bool]:
        return (lambda _: True) if self._whole else self.source.matcher(snapshot)

    @property
    def reads(self) -> Predicate:
        return self.predicate if self._whole else self.source.reads

    def find(self, data: DataFile) -> Hits | None:
        found: list[Hits] = []
        start = 0
        for batch in data.batches(self._columns, rows=self.rows_at_once):
            found.append(self._match(pa.Table.from_batches([batch]), data.live.slice(start, len(batch))))
            start += len(batch)
        if not found:
            return None
        hits = Hits(
            pa.concat_arrays([each.mask for each in found]),
            pa.concat_arrays([each.updated for each in found if each.updated is not None]),
            pa.concat_arrays([each.sources for each in found if each.sources is not None]),
        )
        return hits if hits.changed else None

    def _match(self, rows: pa.Table, live: pa.BooleanArray) -> Hits:
        positions, sources = self.source.pairs(rows.select(self.source.on))
        kept = live.take(positions)
        if self._on is not None and len(positions):
            kept = pc.and_(kept, self._on.mask(self._sides(rows.take(positions), sources), len(positions)))
        positions, sources = positions.filter(kept), sources.filter(kept)
        if self._whole:
            others = positions_of(pc.and_not(live, mask_of(positions, len(rows))))
            positions = pa.concat_arrays([positions, others])
            sources = pa.concat_arrays([sources, pa.nulls(len(others), pa.int64())])
            order = pc.sort_indices(positions)
            positions, sources = positions.take(order), sources.take(order)
        deciding = self._deciding(rows.take(positions), sources)
        return Hits(mask_of(positions, len(rows)), self._verdicts(deciding, sources), sources)

    def _sides(self, rows: pa.Table, sources: pa.Int64Array) -> Mapping[str, pa.Table]:
        return {self._target.alias: rows, self._given.alias: self._rows.take(sources)}

    def _deciding(self, rows: pa.Table, sources: pa.Int64Array) -> pa.Array:
        """Return for each row of the table the number of the clause that says what becomes of it, or -1."""
        found: pa.Array = pa.repeat(pa.scalar(_UNDECIDED, pa.int64()), len(rows))
        for when, applies in ((MATCHED, pc.is_valid(sources)), (BY_SOURCE, pc.is_null(sources))):
            for number, clause in enumerate(self._clauses[when]):
                open_ = positions_of(pc.and_(applies, pc.equal(found, _UNDECIDED)))
                if clause.test is not None and len(open_):
                    sides = self._sides(rows.take(open_), sources.take(open_))
                    open_ = open_.filter(clause.test.mask(sides, len(open_)))
                found = pc.if_else(mask_of(open_, len(rows)), pa.scalar(number, pa.int64()), found)
        return found

    def _verdicts(self, deciding: pa.Array, sources: pa.Int64Array) -> pa.BooleanArray:
        """Return for each row whether it is updated, else deleted; null where it stays as it is."""
        verdicts = pa.nulls(len(deciding), pa.bool_())
        for mask, clause in self._decided(deciding, sources):
            if clause.action in ("update", "delete"):
                verdicts = pc.if_else(mask, pa.scalar(clause.action == "update", pa.bool_()), verdicts)
        return verdicts

    def _decided(self, deciding: pa.Array, sources: pa.Int64Array) -> Sequence[tuple[pa.BooleanArray, ReadClause]]:
        return [
            (pc.and_(applies, pc.equal(deciding, number)), clause)
            for when, applies in ((MATCHED, pc.is_valid(sources)), (BY_SOURCE, pc.is_null(sources)))
            for number, clause in enumerate(self._clauses[when])
        ]

    def renew(self, rows: pa.Table, sources: pa.Int64Array) -> pa.Table:
        new = rows
        for mask, clause in self._decided(self._deciding(rows, sources), sources):
            at = positions_of(mask)
            if clause.values is None or not len(at):
                continue
            values = clause.values.compute(self._sides(rows.take(at), sources.take(at)), len(at))
            changed = {}
            for name in values.column_names:
                # By number, since not all types can be replaced with a mask.
                both = pa.concat_arrays([new[name].combine_chunks(), values[name].combine_chunks()])
                numbers = pc.cumulative_sum(mask.cast(pa.int64()))
                taken = pc.if_else(mask, pc.add(numbers, len(rows) - 1), pa.array(range(len(rows)), pa.int64()))
                changed[name] = both.take(taken)
            new = with_columns(new, pa.table(changed))
        return new

    def inserts(self, matched: pa.Int64Array) -> Inserts:
        left = positions_of(pc.invert(mask_of(matched.drop_null().unique(), len(self._rows))))
        parts: list[tuple[ReadClause, pa.Int64Array]] = []
        for clause in self._clauses[UNMATCHED]:
            chosen = left
            if clause.test is not None and len(left):
                kept = clause.test.mask({self._given.alias: self._rows.take(left)}, len(left))
                chosen, left = left.filter(kept), left.filter(pc.invert(kept))
            else:
                left = left.slice(0, 0)
            if clause.values is not None and len(chosen):
                parts.append((clause, chosen))
        if not parts:
            return Inserts()
        return Inserts(pa.concat_arrays([chosen for _, chosen in parts]), lambda: self._inserted(parts))

    def _inserted(self, parts: Sequence[tuple[ReadClause, pa.Int64Array]]) -> Iterator[pa.Table]:
        for clause, chosen in parts:
            assert clause.values is not None  # noqa: S101 - others insert nothing
            values = clause.values.compute({self._given.alias: self._rows.take(chosen)}, len(chosen))
            yield conform(values, self._schema)

    def metrics(self, done: RowChanges, changes: Changes) -> dict[str, int]:
        return merge_metrics(len(self._rows), done, changes)


@dataclass(frozen=True, slots=True)
class MergeKeys:
    """The columns of the table that ON equates, with those of the source; `alone` if ON says nothing else."""

    columns: Mapping[str, str]
    alone: bool


def keys_of(rules: MergeRules, schema: pa.Schema, source: pa.Schema) -> MergeKeys:
    """Return the keys of a merge, none if ON equates no columns. Raises `Invalid` for columns that cannot be equal."""
    target, given = Side(rules.alias, schema), Side(rules.source_alias, source)
    found = _keys(rules.on, Pairs([target, given]), target, given)
    _key_rows(source.empty_table(), found.columns, schema)
    return found


def _keys(text: str, pairs: Pairs, target: Side, source: Side) -> MergeKeys:
    try:
        expression = read_expression(text)
    except Invalid as error:
        raise Invalid(f"ON: {error}") from error
    parts: list[Node] = expression["children"] if expression["type"] == "CONJUNCTION_AND" else [expression]
    found: dict[str, str] = {}
    others = 0
    for part in parts:
        sides = [part[side] for side in ("left", "right")] if part["type"] == "COMPARE_EQUAL" else []
        names = [pairs.resolve(side["column_names"]) for side in sides if side["class"] == "COLUMN_REF"]
        columns = {name[0].alias: name[1] for name in names if name is not None}
        if len(columns) < 2 or columns[target.alias] in found:
            others += 1
            continue
        found[columns[target.alias]] = columns[source.alias]
    return MergeKeys(found, alone=not others)


def _key_rows(source: pa.Table, keys: Mapping[str, str], schema: pa.Schema) -> pa.Table:
    for name in keys:
        if pa.types.is_nested(schema.field(name).type):
            raise Invalid(f"ON: {name} is {type_name(schema.field(name).type)}, which cannot be compared")
    given = pa.Table.from_arrays([source[theirs] for theirs in keys.values()], names=list(keys))
    return conform(given, pa.schema([schema.field(name).with_nullable(True) for name in keys]))
