"""The relations that make a table's rows: of all rows of its sources, of appended rows, or of changed units. Pure.

Rows of the query come with further columns, by position: whether the row was computed just now, and then for each
expectation whether the row meets it. The names of inputs and views begin with `pipeline_`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from alluvia.delta.data_files.scan import Scan
from alluvia.delta.log.actions import AddFile
from alluvia.delta.skipping.predicate import Predicate, Unknown
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.conditions.constants import Constants
from alluvia.engine.conditions.predicates import table_predicate
from alluvia.engine.duck.literals import free_name, quote_name, quote_text
from alluvia.engine.duck.relation import duckdb_type
from alluvia.engine.queries.references import Reference
from alluvia.engine.queries.scopes import Filter, Scope, filters_by_table, table_item
from alluvia.engine.queries.shown_names import VIEW_SCHEMA
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.reading.relations import Files, LocalRows, Relation
from alluvia.pipelines.queries.query import source_name
from alluvia.pipelines.sequences import HISTORY, sequenced
from alluvia.pipelines.steps import Step
from alluvia.rollups.change import SourceChange
from alluvia.rollups.groups import Groups, range_condition, replaced_column
from alluvia.rollups.result_columns import stored_value

Snapshots = Mapping[str, Snapshot]
_THEN = "run it with --full-refresh"


@dataclass(frozen=True, slots=True)
class StepComputing:
    """Makes the relations of one step over versions of its sources."""

    step: Step
    sources: Snapshots

    @property
    def unit_schema(self) -> pa.Schema:
        """Return the columns of units, which have names of their own, and the types of the table's columns."""
        taken = {name for snapshot in self.sources.values() for name in snapshot.schema.names}
        names = [free_name(f"pipeline_unit{number}", taken) for number in range(len(self.step.kind.unit))]
        columns = [self.column(each.column) for each in self.step.kind.unit]
        return pa.schema([pa.field(name, field.type) for name, field in zip(names, columns, strict=True)])

    def whole(self) -> Relation:
        """Return the rows that all rows of the sources make."""
        return self._of_sources({})

    def appended(self, changes: Mapping[str, SourceChange], rows: Mapping[str, LocalRows]) -> Relation:
        """Return the rows that appended rows make. `rows` are those that are not in files of the source as a whole."""
        return self._relation(*self.changed_rows(changes, rows, "> 0", "pipeline_rows"))

    def units(self, changes: Mapping[str, SourceChange], rows: Mapping[str, LocalRows]) -> Relation:
        """Return the units of the rows that a change inserted and deleted, each once.

        A row that was deleted and inserted again has not changed.
        """
        some = {name: each for name, each in changes.items() if not each.is_empty}
        inputs, seen = self.changed_rows(some, rows, "<> 0", "pipeline_rows")
        parts = [
            f"SELECT DISTINCT {', '.join(self.unit_values(name))} FROM {view(seen_as)}"  # noqa: S608
            for name, (seen_as, _) in seen.items()
        ]
        views = dict(seen.values())
        return Relation(inputs, {**views, "pipeline_found": f"SELECT DISTINCT * FROM ({' UNION ALL '.join(parts)})"})  # noqa: S608

    def updated(self, target: Snapshot, files: Sequence[AddFile], units: Groups) -> Relation:
        """Return how the rows of some of the table's files are brought up to date, given the units that changed."""
        made = self.of_units(units)
        views = {**made.views, "pipeline_kept": self.kept("pipeline_old", "pipeline_units")}
        text = self.with_kept(f"FROM {view(made.name)}")
        return Relation({**made.inputs, "pipeline_old": Files(target, files)}, {**views, "pipeline_updated": text})

    def with_kept(self, made: str) -> str:
        """Return SQL of the rows of the view `pipeline_kept`, which are as they were, and of rows that are made."""
        names, flags = self._names(self.step.schema.names), ", NULL" * len(self.step.declaration.expectations)
        kept = f"SELECT {names}, false{flags} FROM {view('pipeline_kept')}"  # noqa: S608
        # Materialized, since DuckDB 1.5.5 never ends a UNION ALL of two such joins where both are long.
        return f"WITH made AS MATERIALIZED ({made}) ({kept}) UNION ALL FROM made"

    def in_units(self, table: Snapshot, units: Groups) -> Sequence[AddFile]:
        """Return the files of a table with the step's columns that can hold rows of some units."""
        pairs = zip(self.step.kind.unit, self.unit_schema.names, strict=True)
        named = {self.column(each.column).name: units.ranges[name] for each, name in pairs}
        return Scan(table, replace(units, ranges=named).in_rollup).files

    def kept(self, old: str, units: str) -> str:
        """Return SQL of the rows of one relation with the table's columns that are of no unit of another."""
        pairs = zip(self.step.kind.unit, self.unit_schema.names, strict=True)
        same = " AND ".join(
            f"o.{quote_name(each.column)} IS NOT DISTINCT FROM u.{quote_name(name)}" for each, name in pairs
        )
        return f"SELECT o.* FROM {view(old)} o ANTI JOIN {view(units)} u ON {same}"  # noqa: S608

    def of_units(self, units: Groups) -> Relation:
        """Return the rows of some units that the sources make."""
        return self._of_sources(dict.fromkeys(self.sources, units), units)

    def _of_sources(self, limits: Mapping[str, Groups], units: Groups | None = None) -> Relation:
        """Return the rows that the sources make, of some units alone if those are given."""
        inputs: dict[str, Files | LocalRows] = {} if units is None else {"pipeline_units": units.rows}
        seen: dict[str, tuple[str, str]] = {}
        for number, name in enumerate(self.step.query.sources):
            read = f"pipeline_source{number}"
            inputs[read] = Files(self.sources[name], self._files(name, limits.get(name)))
            of_units = "" if units is None else f" SEMI JOIN {view('pipeline_units')} u ON {self._in_unit(name)}"
            text = f"SELECT {self._listed(name)} FROM {view(read)} s{of_units}"  # noqa: S608
            seen[name] = (f"pipeline_seen{number}", text)
        return self._relation(inputs, seen)

    def changed_rows(
        self, changes: Mapping[str, SourceChange], rows: Mapping[str, LocalRows], sign: str, name: str
    ) -> tuple[dict[str, Files | LocalRows], dict[str, tuple[str, str]]]:
        """Return the changed rows of each source: the inputs, and by source the name and the SQL of a view.

        `sign` says which of the net changes: `> 0` for those that came, `< 0` for those that went, `<> 0` for all. The
        names of the views begin with `name`.
        """
        inputs: dict[str, Files | LocalRows] = {}
        seen: dict[str, tuple[str, str]] = {}
        for source, change in changes.items():
            number = self.step.query.sources.index(source)
            columns, parts = self._listed(source), list[str]()
            if sign != "< 0" and (change.files or source not in rows):
                inputs[f"pipeline_appended{number}"] = Files(change.source, change.files)
                parts.append(f"SELECT {columns} FROM {view(f'pipeline_appended{number}')}")  # noqa: S608
            if source in rows:
                inputs[f"pipeline_changed{number}"] = rows[source]
                signed, changed = quote_name(rows[source].schema.names[-1]), view(f"pipeline_changed{number}")
                net = f"SELECT {columns}, CAST(sum({signed}) AS BIGINT) AS {signed} FROM {changed} GROUP BY {columns}"  # noqa: S608
                several = f"range(abs(n.{signed})) r WHERE n.{signed} {sign}"
                parts.append(f"SELECT {self._listed(source, 'n')} FROM ({net}) n, {several}")  # noqa: S608
            if parts:
                seen[source] = (f"{name}{number}", " UNION ALL ".join(parts))
        return inputs, seen

    def _relation(self, inputs: Mapping[str, Files | LocalRows], seen: Mapping[str, tuple[str, str]]) -> Relation:
        declaration, text = self.step.declaration, self.typed({name: seen_as for name, (seen_as, _) in seen.items()})
        if declaration.sequencing is not None:
            text = sequenced(text, declaration, declaration.sequencing, [field.name for field in self._given])
        elif declaration.key:
            text = self._of_one_key(text)
        return Relation(inputs, {**dict(seen.values()), "pipeline_made": self.judged(text)})

    def typed(self, seen: Mapping[str, str]) -> str:
        """Return SQL of the rows that the query gives over views of its sources, in the table's types."""
        names = self._names(field.name for field in self._given)
        casts = ", ".join(stored_value(quote_name(field.name), field, "the table", _THEN) for field in self._given)
        return f"SELECT {casts} FROM ({self.step.query.over(seen)}\n) AS r({names})"  # noqa: S608

    def judged(self, text: str) -> str:
        """Return SQL of rows that are made, with the further columns."""
        met = "".join(f", (\n{each.condition}\n) IS TRUE" for each in self.step.declaration.expectations)
        return f"SELECT *, true{met} FROM ({text})"  # noqa: S608

    @property
    def _given(self) -> list[pa.Field]:
        """Return the columns that the query gives: all of the table's but those that a history adds."""
        sequencing = self.step.declaration.sequencing
        history = sequencing is not None and sequencing.scd == 2
        return [field for field in self.step.schema if not (history and field.name in HISTORY)]

    def _of_one_key(self, text: str) -> str:
        """Return SQL that fails, naming the key, where two rows have the same one."""
        key = self._names(self.column(name).name for name in self.step.declaration.key)
        says = quote_text(f"two rows of table {self.step.declaration.target} have the same KEY ({key}): ")
        values = f"CAST(row({key}) AS VARCHAR)"
        once = f"CASE WHEN count(*) OVER (PARTITION BY {key}) > 1 THEN error({says} || {values}) END"
        first, *others = map(quote_name, self.step.schema.names)
        checked = f"coalesce({once}, {first}) AS {first}"
        return f"SELECT {', '.join((checked, *others))} FROM ({text})"  # noqa: S608

    def unit_values(self, source: str) -> Iterable[str]:
        """Yield SQL of the unit of a row of a source, a column each."""
        for each, field in zip(self.step.kind.unit, self.unit_schema, strict=True):
            yield f"CAST(TRY({each.texts[source]}) AS {duckdb_type(field.type)}) AS {quote_name(field.name)}"

    def _in_unit(self, source: str) -> str:
        pairs = zip(self.step.kind.unit, self.unit_schema.names, strict=True)
        return " AND ".join(
            f"TRY({each.texts[source]}) IS NOT DISTINCT FROM u.{quote_name(name)}" for each, name in pairs
        )

    def _files(self, name: str, units: Groups | None) -> Sequence[AddFile]:
        """Return the files of a source that can hold rows that the query needs, of some units."""
        predicates = [
            self._predicate(one, units) for one in self.step.query.references.tables if source_name(one) == name
        ]
        snapshot = self.sources[name]
        return Scan(snapshot, predicates[0] if len(predicates) == 1 else Unknown()).files

    def _predicate(self, reference: Reference, units: Groups | None) -> Predicate:
        references = self.step.query.references
        schemas = {one: self._schema(source_name(one)) for one in references.tables}
        filters = list(filters_by_table(references, schemas).get(reference, ()))
        if units is not None:
            scope = Scope((table_item(reference, schemas[reference]),), frozenset())
            for each, unit in zip(self.step.kind.unit, self.unit_schema.names, strict=True):
                condition = range_condition(units.ranges[unit])
                if condition is not None:
                    filters.append(Filter(replaced_column(condition, each.expressions[source_name(reference)]), scope))
        return table_predicate(reference, filters, schemas[reference], Constants(0))

    def _schema(self, source: str) -> pa.Schema:
        schema = self.sources[source].schema
        return pa.schema([schema.field(name) for name in self.step.seen(source, schema)])

    def _listed(self, source: str, of: str = "") -> str:
        columns = self.step.seen(source, self.sources[source].schema)
        return ", ".join(f"{of}{'.' if of else ''}{quote_name(name)}" for name in columns)

    def column(self, name: str) -> pa.Field:
        """Return a column of the table by its name in any case."""
        return next(field for field in self.step.schema if field.name.lower() == name.lower())

    def _names(self, names: Iterable[str]) -> str:
        return ", ".join(map(quote_name, names))


def view(name: str) -> str:
    """Return how SQL names an input or a view of a relation."""
    return f"{VIEW_SCHEMA}.{name}"
