"""Upsert rows by key: matching rows are updated or deleted, the others are inserted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.commit.changes import Changes
from alluvia.commit.handle import TableHandle
from alluvia.delta.arguments import check_names, check_text
from alluvia.delta.deletion_vectors.storage import definite, mask_of, positions_of
from alluvia.delta.log.actions import AddFile
from alluvia.delta.schema.rows import conform
from alluvia.delta.skipping.predicate import Predicate
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.conditions.columnar import masked
from alluvia.engine.conditions.condition import PairCondition, pair_condition
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.merge_query.folding import check_edit
from alluvia.operations.reading.datafile import DataFile
from alluvia.operations.rows.edits import Edit, Hits, Inserts, RowChanges, merge_metrics
from alluvia.operations.rows.row_changes import change_rows
from alluvia.operations.rows.update import moves_rows, with_columns
from alluvia.operations.rows.upsert_source import UpsertSource, read_rows

MATCHED = ("update", "delete", "ignore")
UNMATCHED = ("insert", "ignore")
KEYS_AT_ONCE = 1 << 18


@dataclass(frozen=True, slots=True)
class Rules:
    """What an upsert does. `matched` is what becomes of a row that a new one has the key of, where `when` holds.

    `delete_when` comes first: where it holds, the row is deleted. `columns` are those that an update sets, by default
    all that the new rows have. `unmatched` is what becomes of a new row whose key no row has, where `insert_when`
    holds.
    """

    matched: str = "update"
    columns: Sequence[str] | None = None
    when: str | None = None
    delete_when: str | None = None
    unmatched: str | None = None
    insert_when: str | None = None

    @property
    def inserts(self) -> bool:
        """Whether new rows are inserted: by default they are, except where matching rows are to be deleted."""
        return (self.unmatched or ("ignore" if self.matched == "delete" else "insert")) == "insert"

    @property
    def conditions(self) -> tuple[str, ...]:
        """Return the conditions' texts."""
        return tuple(text for text in (self.when, self.delete_when, self.insert_when) if text is not None)


def check_rules(rules: Rules) -> None:
    """Raise `Invalid`, naming the option, for a combination that makes no sense."""
    for name, value, allowed in (
        ("matched", rules.matched, MATCHED),
        ("unmatched", rules.unmatched or "insert", UNMATCHED),
    ):
        if value not in allowed:
            raise Invalid(f"{name}: {value!r} is not valid; use one of {', '.join(map(repr, allowed))}")
    for name in ("when", "delete_when", "insert_when"):
        if getattr(rules, name) is not None:
            check_text(name, getattr(rules, name), "new.id > 0")
    if rules.columns is not None:
        check_names("columns", rules.columns)
    if rules.columns is not None and rules.matched != "update":
        raise Invalid("columns: valid only with matched='update'")
    if rules.when is not None and rules.matched == "ignore":
        raise Invalid("when: valid only with matched='update' or matched='delete'")
    if rules.insert_when is not None and not rules.inserts:
        raise Invalid("insert_when: valid only with unmatched='insert'")


def upsert(handle: TableHandle, rows: Any, on: Sequence[str], rules: Rules) -> RowChanges:
    """Update, delete and insert rows by key in one commit, so that concurrent upserts leave one row for each key.

    Only files that can hold one of the keys are read, and one at a time; of the rows, all are held in memory. A row
    with a null in its key matches none. Raises `Invalid`, naming the field, for a key that occurs in two rows, for rows
    that do not fit the table, and for an append-only table.
    """
    check_rules(rules)
    given = rows.read_all() if isinstance(rows, pa.RecordBatchReader) else rows
    return change_rows(handle, "upsert", lambda snapshot: UpsertEdit(snapshot, given, on, rules))


class UpsertEdit(Edit):
    """Rows that the source has the key of are updated or deleted."""

    operation = "MERGE"

    def __init__(self, snapshot: Snapshot, rows: Any, on: Sequence[str], rules: Rules) -> None:
        check_edit(snapshot, "upsert", None)
        schema = snapshot.schema
        self._rules = rules
        extra = bool(rules.conditions)
        given = read_rows(rows, schema, on, lambda _: extra)
        self._when = _read(rules.when, schema, given.schema)
        self._delete_when = _read(rules.delete_when, schema, given.schema)
        self._insert_when = _read(rules.insert_when, pa.schema([]), given.schema)
        self._conditions = [one for one in (self._when, self._delete_when, self._insert_when) if one is not None]
        self._check_extra(given, schema)
        self.source = UpsertSource(given, on)
        self.predicate = self.source.predicate
        there = set(given.column_names)
        self.known = given.select([name for name in schema.names if name in there])
        self.columns_set = self._columns_to_set(schema)
        self._schema = schema
        self.in_place = not moves_rows(snapshot, self.columns_set)
        self.parameters = _parameters(rules, on)
        needed = self._needed()
        self._columns = [name for name in schema.names if name in needed]

    def _needed(self) -> set[str]:
        return {*self.source.on, *(name for one in self._conditions for name in one.columns)}

    def _check_extra(self, given: pa.Table, schema: pa.Schema) -> None:
        used = {name for one in self._conditions for name in one.new_columns} | set(schema.names)
        for name in given.column_names:
            if name not in used:
                msg = f"column {name} is not in the table, and no condition uses it: leave it out, or evolve(add=…)"
                raise Invalid(msg)

    def _columns_to_set(self, schema: pa.Schema) -> list[str]:
        if self._rules.matched != "update":
            return []
        wanted = self.known.column_names if self._rules.columns is None else list(self._rules.columns)
        known = set(self.known.column_names)
        for name in wanted:
            if name not in known:
                msg = f"columns: {name!r} is not a column of {'the rows' if name in schema.names else 'the table'}"
                raise Invalid(msg)
        return [name for name in wanted if name not in self.source.on]

    def candidates(self, snapshot: Snapshot) -> Sequence[AddFile]:
        return list(filter(self.matcher(snapshot), super().candidates(snapshot)))

    def matcher(self, snapshot: Snapshot) -> Callable[[AddFile], bool]:
        return self.source.matcher(snapshot)

    @property
    def reads(self) -> Predicate:
        return self.source.reads

    def find(self, data: DataFile) -> Hits | None:
        """Return the rows with a key of the source, and what becomes of each."""
        found: list[Hits] = []
        waiting: list[pa.RecordBatch] = []
        for batch in data.batches(self._columns):
            waiting.append(batch)
            if sum(map(len, waiting)) >= KEYS_AT_ONCE:
                found.append(self._match(data, waiting, sum(len(each.mask) for each in found)))
                waiting = []
        if waiting or not found:
            found.append(self._match(data, waiting, sum(len(each.mask) for each in found)))
        hits = Hits(
            pa.concat_arrays([each.mask for each in found]),
            pa.concat_arrays([each.updated for each in found if each.updated is not None]),
            pa.concat_arrays([each.sources for each in found if each.sources is not None]),
        )
        return hits if hits.changed else None

    def _match(self, data: DataFile, batches: Sequence[pa.RecordBatch], start: int) -> Hits:
        schema = pa.schema([self._schema.field(name) for name in self._columns])
        rows = pa.Table.from_batches(list(batches), schema)
        positions, sources = self.source.pairs(rows.select(self.source.on))
        alive = data.live.slice(start, len(rows)).take(positions)
        positions, sources = positions.filter(alive), sources.filter(alive)
        return Hits(mask_of(positions, len(rows)), self._verdicts(rows.take(positions), sources), sources)

    def _verdicts(self, rows: pa.Table, sources: pa.Int64Array) -> pa.BooleanArray:
        """Return for each matching row whether it is updated, else deleted; null where it stays as it is."""
        new = self.source.rows
        applies = _holds(self._when, rows, new, sources)
        stays = pa.nulls(len(rows), pa.bool_())
        acts = {"update": True if self.columns_set else None, "delete": False}.get(self._rules.matched)
        verdicts = stays if acts is None else pc.if_else(applies, pa.scalar(acts, pa.bool_()), stays)
        if self._delete_when is None:
            return verdicts
        deleted = _holds(self._delete_when, rows, new, sources)
        return pc.if_else(deleted, pa.scalar(value=False, type=pa.bool_()), verdicts)

    def renew(self, rows: pa.Table, sources: pa.Int64Array) -> pa.Table:
        return with_columns(rows, self.known.select(self.columns_set).take(sources))

    def inserts(self, matched: pa.Int64Array) -> Inserts:
        if not self._rules.inserts:
            return Inserts()
        left = positions_of(pc.invert(mask_of(matched, len(self.known))))
        if self._insert_when is not None:
            nothing = pa.table({"none": pa.nulls(len(left))}).select([])
            left = left.filter(_holds(self._insert_when, nothing, self.source.rows, left))
        return Inserts(left, lambda: [conform(self.known.take(left), self._schema)])

    def metrics(self, done: RowChanges, changes: Changes) -> dict[str, int]:
        return merge_metrics(len(self.source.rows), done, changes)


def _read(text: str | None, schema: pa.Schema, new: pa.Schema) -> PairCondition | None:
    return None if text is None else pair_condition(text, schema, new)


def _holds(condition: PairCondition | None, rows: pa.Table, new: pa.Table, sources: pa.Int64Array) -> pa.BooleanArray:
    if condition is None or not len(sources):
        return pa.repeat(pa.scalar(value=True, type=pa.bool_()), len(sources))
    return definite(condition.mask(rows, new.take(sources)))


def _parameters(rules: Rules, on: Sequence[str]) -> Mapping[str, str]:
    found = {
        "on": ", ".join(on),
        "matched": rules.matched,
        "unmatched": "insert" if rules.inserts else "ignore",
    }
    conditions = {"when": rules.when, "deleteWhen": rules.delete_when, "insertWhen": rules.insert_when}
    return found | {name: masked(text) for name, text in conditions.items() if text is not None}
