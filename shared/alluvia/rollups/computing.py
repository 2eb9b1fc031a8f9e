"""The relations that make a rollup's rows: of all rows of its source, or of a change and the rows that it has. Pure.

Groups that only gained rows are *folded* where each column of the old and the new rows gives that of both; other groups
that a change touches are *recomputed* from the source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from alluvia.delta.log.actions import AddFile
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.duck.literals import quote_name
from alluvia.engine.duck.relation import duckdb_type
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.reading.relations import Files, InputSplit, LocalRows, Relation, Split
from alluvia.rollups.change import SourceChange
from alluvia.rollups.definition import Definition, RollupQuery, definition_of, named, read_query
from alluvia.rollups.groups import Groups, Touched, range_sql, scan_of
from alluvia.rollups.result_columns import stored_value

_THEN = "drop the rollup, and create it again"


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
        folds = {
            field.name: self.query.fold_of(at, field.type)
            for at, field in enumerate(self.schema)
            if field.name not in self.definition.keys
        }
        known = {name: text for name, text in folds.items() if text is not None}
        return known if len(known) == len(folds) else None

    def split(self, relation: Relation) -> Split:
        """Return by which values of its inputs one of these relations can be computed in parts.

        They are those of the keys that have simple SQL: the rows of a group have the same values of any keys. None
        where no key has it.
        """
        texts = self.query.texts_of(self.definition.keys, self.schema.names)
        if not texts:
            return None
        of_source = {self._name(name) for name in ("source", "appended", "changed")}
        return {
            name: InputSplit(
                tuple(
                    f"TRY(CAST({text if name in of_source else quote_name(key)} AS {self._type(key)}))"
                    for key, text in texts.items()
                ),
                self._columns(name, read),
            )
            for name, read in relation.inputs.items()
        }

    def _type(self, key: str) -> str:
        return duckdb_type(self.schema.field(key).type)

    def _columns(self, name: str, read: Files | LocalRows) -> tuple[str, ...]:
        """Return the columns of an input that its relations need."""
        if isinstance(read, LocalRows):
            return tuple(read.schema.names)
        if name == self._name("old"):
            return tuple(read.snapshot.schema.names)
        return self.definition.columns_of(read.snapshot)

    def changed_groups(self, change: SourceChange, rows: LocalRows | None) -> Relation:
        """Return what the query gives over changed rows alone, and last whether a group must be computed again.

        `rows` are those of the change's commits. What was deleted and inserted again has not changed. Groups that only
        gained rows are folded, if they can be.
        """
        columns = [quote_name(name) for name in self.definition.columns_of(change.source)]
        names = ", ".join(columns)
        inputs: dict[str, Files | LocalRows] = {}
        views: dict[str, str] = {}
        gained, lost = [], []
        if change.files or rows is None:
            inputs[self._name("appended")] = Files(change.source, change.files)
            gained.append(self._seen(self._name("appended"), change.source))
        if rows is not None:
            inputs[self._name("changed")] = rows
            sign, net = quote_name(rows.schema.names[-1]), self._named("net")
            summed = (
                f"SELECT {names}, CAST(sum({sign}) AS BIGINT) AS {sign} FROM {self._named('changed')} GROUP BY {names}"  # noqa: S608
            )
            views[self._name("net")] = f"FROM ({summed}) WHERE {sign} <> 0"
            several = ", ".join(f"n.{column}" for column in columns)
            gained.append(f"SELECT {several} FROM {net} n, range(n.{sign}) r WHERE n.{sign} > 0")  # noqa: S608
            lost.append(f"SELECT {names} FROM {net} WHERE {sign} < 0")  # noqa: S608
        if self.folds is None:
            gained, lost = [], [*gained, *lost]
        for name, parts in (("gained", gained), ("lost", lost)):
            if parts:
                views[self._name(name)] = " UNION ALL ".join(parts)
                # Without GROUP BY there is a row of no rows.
                some = f" WHERE EXISTS (FROM {self._named(name)})"
                views[self._name(f"{name}_groups")] = f"FROM ({self._over(name)}){some}"
        again, more = self._named("lost_groups"), self._named("gained_groups")
        views[self._name("found")] = (
            f"SELECT *, false FROM {more}"  # noqa: S608
            if not lost
            else f"SELECT *, true FROM {again}"  # noqa: S608
            if not gained
            else f"WITH lost AS MATERIALIZED (FROM {again}) SELECT *, true FROM lost UNION ALL "  # noqa: S608
            f"SELECT *, false FROM {more} g ANTI JOIN lost l ON {self._same('g', 'l')}"
        )
        return Relation(inputs, views)

    def whole(self, source: Snapshot) -> Relation:
        """Return what the query gives over all rows of the source."""
        read, scan = self._name("source"), scan_of(self.query, source, self.definition.columns_of(source))
        views = {self._name("seen"): self._seen(read, source), self._name("result"): self._over("seen")}
        return Relation({read: Files(source, scan.files)}, views)

    def unchanged(self, rollup: Snapshot) -> Relation:
        """Return the rows that the rollup has."""
        old = self._name("old")
        return Relation({old: Files(rollup, list(rollup.files))}, {self._name("result"): f"FROM {named(old)}"})

    def updated(self, rollup: Snapshot, files: Sequence[AddFile], touched: Touched, source: Snapshot) -> Relation:
        """Return how the rows of some of the rollup's files are brought up to date."""
        inputs: dict[str, Files | LocalRows] = {self._name("old"): Files(rollup, files)}
        views = {self._name("kept"): f"FROM {self._named('old')}"}
        if touched.recomputed.count:
            inputs[self._name("again")] = touched.recomputed.rows
            join = f"ANTI JOIN {self._named('again')} g ON {self._same('o', 'g')}"
            views[self._name("kept")] = f"FROM {self._named('old')} o {join}"
        result = f"FROM {self._named('kept')}"
        if touched.folded.count:
            inputs[self._name("more")] = touched.folded.rows
            result = self._folded()
        if touched.recomputed.count:
            columns = self.definition.columns_of(source)
            scan = touched.recomputed.in_source(self.query, source, columns, self.schema.names)
            inputs[self._name("source")] = Files(source, scan.files)
            views |= {
                self._name("seen"): self._seen(self._name("source"), source),
                self._name("fresh"): self._over("seen"),
            }
            # Materialized, since DuckDB 1.5.5 never ends a UNION ALL of two such joins where both are long.
            result = f"WITH made AS MATERIALIZED ({self._made(touched.recomputed)}) ({result}) UNION ALL FROM made"
        return Relation(inputs, {**views, self._name("result"): result})

    def _folded(self) -> str:
        """Return SQL of rows kept, with the rows of groups that gained some folded into them."""
        folds, keys = self.folds or {}, self.definition.keys
        names = {field.name: quote_name(field.name) for field in self.schema}
        columns = [
            f"coalesce(o.{name}, g.{name}) AS {name}"
            if key in keys
            else f"CAST({folds[key].format(old=f'o.{name}', new=f'g.{name}')} AS {duckdb_type(field.type)}) AS {name}"
            for (key, name), field in zip(names.items(), self.schema, strict=True)
        ]
        join = "FULL JOIN" if keys else "RIGHT JOIN"
        old, new = self._named("kept"), self._named("more")
        return f"SELECT {', '.join(columns)} FROM {old} o {join} {new} g ON {self._same('o', 'g')}"  # noqa: S608

    def _made(self, groups: Groups) -> str:
        """Return SQL of the rows of groups as the source has them now."""
        quoted = {key: f"f.{quote_name(key)}" for key in self.definition.keys}
        where = "".join(
            f" WHERE {' AND '.join(conditions)}" for conditions in [range_sql(groups.ranges, quoted)] if conditions
        )
        fresh, again = self._named("fresh"), self._named("again")
        return f"SELECT f.* FROM {fresh} f SEMI JOIN {again} g ON {self._same('f', 'g')}{where}"  # noqa: S608

    def _named(self, name: str) -> str:
        return named(self._name(name))

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
        casts = [stored_value(name, field, "the rollup", _THEN) for name, field in zip(names, self.schema, strict=True)]
        text = self.query.over(self._name(view))
        return f"SELECT {', '.join(casts)} FROM ({text}\n) AS r({', '.join(names)})"  # noqa: S608


def computing(rollup: Snapshot, prefix: str = "") -> Computing:
    """Return what makes a rollup's relations. Raises `Invalid` for a table that is not a rollup."""
    definition = definition_of(rollup)
    return Computing(definition, read_query(definition.query), rollup.schema, prefix)
