"""The relations that make a rollup's rows: of all rows of its source, or of a change and the rows that it has. Pure.

Where rows were only appended, and each column of the old and the new rows gives that of both, groups are *folded*; else
the groups that are touched are *recomputed* from the source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import pyarrow as pa

from alluvia.duck.connection import planner
from alluvia.duck.relation import duckdb_type, quote_name, quote_text
from alluvia.log.actions import AddFile
from alluvia.operations.relations import Files, LocalRows, Relation
from alluvia.rollups.change import SourceChange
from alluvia.rollups.definition import Definition, RollupQuery, definition_of, named, read_query
from alluvia.rollups.groups import Groups, range_sql, scan_of
from alluvia.table.snapshot import Snapshot

FOLDED, RECOMPUTED = "folded", "recomputed"
_HELD_TOO = {"BIGINT": ("HUGEINT",), "VARCHAR": ("JSON", "UUID")}
"""Types of DuckDB's that a column of another type holds too: a sum of integers is 128 bits wide, and must fit."""


@dataclass(frozen=True, slots=True)
class Computing:
    """Makes the relations of one rollup. The names of their inputs and views begin with `prefix`."""

    definition: Definition
    query: RollupQuery
    schema: pa.Schema
    prefix: str = ""

    @property
    def folds(self) -> Mapping[str, str] | None:
        """Return for each column that is not a key the SQL that folds it; None unless all can be folded."""
        found = {
            field.name: self.query.fold_of(at, field.type)
            for at, field in enumerate(self.schema)
            if field.name not in self.definition.keys
        }
        known = {name: text for name, text in found.items() if text is not None}
        return known if len(known) == len(found) else None

    def changed_groups(self, change: SourceChange, rows: LocalRows | None) -> Relation:
        """Return what the query gives over changed rows alone; `rows` are those of the change's commits."""
        inputs: dict[str, Files | LocalRows] = {}
        if rows is not None:
            inputs[self._name("changed")] = rows
        if change.files or rows is None:
            inputs[self._name("appended")] = Files(change.source, change.files)
        union = " UNION ALL ".join(self._seen(name, change.source) for name in inputs)
        return Relation(inputs, {self._name("rows"): union, self._name("found"): self._over("rows")})

    def whole(self, source: Snapshot) -> Relation:
        """Return what the query gives over all rows of the source."""
        read, scan = self._name("source"), scan_of(self.query, source, self.definition.columns_of(source))
        views = {self._name("seen"): self._seen(read, source), self._name("result"): self._over("seen")}
        return Relation({read: Files(source, scan.files)}, views)

    def unchanged(self, rollup: Snapshot) -> Relation:
        """Return the rows that the rollup has."""
        old = self._name("old")
        return Relation({old: Files(rollup, list(rollup.files))}, {self._name("result"): f"FROM {named(old)}"})

    def updated(
        self, rollup: Snapshot, files: Sequence[AddFile], groups: Groups, change: SourceChange
    ) -> tuple[str, Relation]:
        """Return how the rows of some of the rollup's files are brought up to date, and the relation that does it."""
        if change.only_appends and self.folds is not None:
            return FOLDED, self._folded(rollup, files, groups)
        return RECOMPUTED, self._recomputed(rollup, files, groups, change.source)

    def _folded(self, rollup: Snapshot, files: Sequence[AddFile], groups: Groups) -> Relation:
        """Return the rows of some of the rollup's files, with appended rows folded into their groups."""
        folds, keys = self.folds or {}, self.definition.keys
        names = {field.name: quote_name(field.name) for field in self.schema}
        columns = [
            f"coalesce(o.{name}, g.{name}) AS {name}"
            if key in keys
            else f"CAST({folds[key].format(old=f'o.{name}', new=f'g.{name}')} AS {duckdb_type(field.type)}) AS {name}"
            for (key, name), field in zip(names.items(), self.schema, strict=True)
        ]
        join = "FULL JOIN" if keys else "RIGHT JOIN"
        old, new = self._name("old"), self._name("groups")
        select = f"SELECT {', '.join(columns)} FROM {named(old)} o {join} {named(new)} g ON {self._same('o', 'g')}"  # noqa: S608
        return Relation({old: Files(rollup, files), new: groups.rows}, {self._name("result"): select})

    def _recomputed(self, rollup: Snapshot, files: Sequence[AddFile], groups: Groups, source: Snapshot) -> Relation:
        """Return the rows of some of the rollup's files, those of the groups as the source has them now."""
        old, new, read, seen, fresh = map(self._name, ("old", "groups", "source", "seen", "fresh"))
        scan = groups.in_source(self.query, source, self.definition.columns_of(source), self.schema.names)
        quoted = {key: f"f.{quote_name(key)}" for key in self.definition.keys}
        where = "".join(f" WHERE {' AND '.join(found)}" for found in [range_sql(groups.ranges, quoted)] if found)
        columns = ", ".join(quote_name(field.name) for field in self.schema)
        kept = f"SELECT {columns} FROM {named(old)} o ANTI JOIN {named(new)} g ON {self._same('o', 'g')}"  # noqa: S608
        made = f"SELECT {columns} FROM {named(fresh)} f SEMI JOIN {named(new)} g ON {self._same('f', 'g')}{where}"  # noqa: S608
        # Materialized, since DuckDB 1.5.5 never ends a UNION ALL of two such joins where both are long.
        both = f"WITH made AS MATERIALIZED ({made}) {kept} UNION ALL FROM made"
        return Relation(
            {old: Files(rollup, files), new: groups.rows, read: Files(source, scan.files)},
            {seen: self._seen(read, source), fresh: self._over("seen"), self._name("result"): both},
        )

    def _name(self, name: str) -> str:
        return self.prefix + name

    def _same(self, one: str, other: str) -> str:
        keys = map(quote_name, self.definition.keys)
        return " AND ".join(f"{one}.{key} IS NOT DISTINCT FROM {other}.{key}" for key in keys) or "true"

    def _seen(self, name: str, source: Snapshot) -> str:
        """Return a SELECT of what the query sees of rows of its source."""
        return f"SELECT {', '.join(map(quote_name, self.definition.columns_of(source)))} FROM {named(name)}"  # noqa: S608

    def _over(self, view: str) -> str:
        """Return the query over a view, with columns of the rollup's names and types."""
        names = [quote_name(field.name) for field in self.schema]
        casts = [_stored(name, field) for name, field in zip(names, self.schema, strict=True)]
        text = self.query.over(self._name(view))
        return f"SELECT {', '.join(casts)} FROM ({text}\n) AS r({', '.join(names)})"  # noqa: S608


def computing(rollup: Snapshot, prefix: str = "") -> Computing:
    """Return what makes a rollup's relations. Raises `Invalid` for a table that is not a rollup."""
    definition = definition_of(rollup)
    return Computing(definition, read_query(definition.query), rollup.schema, prefix)


def is_held(kind: pa.DataType, given: str) -> bool:
    """Whether a column of a type holds every value of a type of DuckDB's as it is, or a refresh fails."""
    return given in _holds(kind)


@cache
def _holds(kind: pa.DataType) -> tuple[str, ...]:
    own = planner().execute(f"SELECT typeof(CAST(NULL AS {duckdb_type(kind)}))").fetchall()[0][0]
    return own, *_HELD_TOO.get(own, ())


def _stored(name: str, field: pa.Field) -> str:
    """Return SQL for a column in the rollup's type, which fails if the query has come to give another type."""
    kind, given = duckdb_type(field.type), f"typeof({name})"
    says = quote_text(f"the rollup's column {field.name} is {kind}, but the source has changed, and the query gives ")
    then = quote_text(": drop the rollup, and create it again")
    # The types are known before the query runs, so that DuckDB leaves out the comparison.
    known = f"WHEN {given} IN ({', '.join(map(quote_text, _holds(field.type)))}) THEN CAST({name} AS {kind})"
    return f"CASE {known} ELSE error({says} || {given} || {then}) END AS {name}"
