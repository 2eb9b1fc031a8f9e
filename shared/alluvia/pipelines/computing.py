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
from alluvia.pipelines.query import source_name
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
        columns = [self._column(each.column) for each in self.step.kind.unit]
        return pa.schema([pa.field(name, field.type) for name, field in zip(names, columns, strict=True)])

    def whole(self) -> Relation:
        """Return the rows that all rows of the sources make."""
        return self._of_sources({})

    def appended(self, changes: Mapping[str, SourceChange], rows: Mapping[str, LocalRows]) -> Relation:
        """Return the rows that appended rows make. `rows` are those that are not in files of the source as a whole."""
        return self._relation(*self._changed(changes, rows))

    def units(self, changes: Mapping[str, SourceChange], rows: Mapping[str, LocalRows]) -> Relation:
        """Return the units of the rows that a change inserted and deleted, each once.

        A row that was deleted and inserted again has not changed.
        """
        inputs, seen = self._changed({name: each for name, each in changes.items() if not each.is_empty}, rows)
        parts = [
            f"SELECT DISTINCT {', '.join(self._unit_values(name))} FROM {_view(seen_as)}"  # noqa: S608
            for name, (seen_as, _) in seen.items()
        ]
        views = dict(seen.values())
        return Relation(inputs, {**views, "pipeline_found": f"SELECT DISTINCT * FROM ({' UNION ALL '.join(parts)})"})  # noqa: S608

    def updated(self, target: Snapshot, files: Sequence[AddFile], units: Groups) -> Relation:
        """Return how the rows of some of the table's files are brought up to date, given the units that changed."""
        made = self._of_sources(dict.fromkeys(self.sources, units), units)
        names, flags = self._names(self.step.schema.names), ", NULL" * len(self.step.declaration.expectations)
        kept = f"SELECT {names}, false{flags} FROM {_view('pipeline_kept')}"  # noqa: S608
        inputs = {**made.inputs, "pipeline_old": Files(target, files)}
        return Relation(
            inputs,
            {
                **made.views,
                "pipeline_kept": self.kept("pipeline_old"),
                # Materialized, since DuckDB 1.5.5 never ends a UNION ALL of two such joins where both are long.
                "pipeline_updated": f"WITH made AS MATERIALIZED (FROM {_view(made.name)}) ({kept}) UNION ALL FROM made",
            },
        )

    def in_units(self, table: Snapshot, units: Groups) -> Sequence[AddFile]:
        """Return the files of a table with the step's columns that can hold rows of some units."""
        pairs = zip(self.step.kind.unit, self.unit_schema.names, strict=True)
        named = {self._column(each.column).name: units.ranges[name] for each, name in pairs}
        return Scan(table, replace(units, ranges=named).in_rollup).files

    def kept(self, old: str) -> str:
        """Return SQL of the rows of an input with the table's columns that are of no changed unit."""
        pairs = zip(self.step.kind.unit, self.unit_schema.names, strict=True)
        same = " AND ".join(
            f"o.{quote_name(each.column)} IS NOT DISTINCT FROM u.{quote_name(name)}" for each, name in pairs
        )
        return f"SELECT o.* FROM {_view(old)} o ANTI JOIN {_view('pipeline_units')} u ON {same}"  # noqa: S608

    def _of_sources(self, limits: Mapping[str, Groups], units: Groups | None = None) -> Relation:
        """Return the rows that the sources make, of some units alone if those are given."""
        inputs: dict[str, Files | LocalRows] = {} if units is None else {"pipeline_units": units.rows}
        seen: dict[str, tuple[str, str]] = {}
        for number, name in enumerate(self.step.query.sources):
            read = f"pipeline_source{number}"
            inputs[read] = Files(self.sources[name], self._files(name, limits.get(name)))
            of_units = "" if units is None else f" SEMI JOIN {_view('pipeline_units')} u ON {self._in_unit(name)}"
            text = f"SELECT {self._listed(name)} FROM {_view(read)} s{of_units}"  # noqa: S608
            seen[name] = (f"pipeline_seen{number}", text)
        return self._relation(inputs, seen)

    def _changed(
        self, changes: Mapping[str, SourceChange], rows: Mapping[str, LocalRows]
    ) -> tuple[dict[str, Files | LocalRows], dict[str, tuple[str, str]]]:
        """Return the changed rows of each source: the inputs, and by source the name and the SQL of a view."""
        inputs: dict[str, Files | LocalRows] = {}
        seen: dict[str, tuple[str, str]] = {}
        for number, (name, change) in enumerate(changes.items()):
            columns, parts = self._listed(name), list[str]()
            if change.files or name not in rows:
                inputs[f"pipeline_appended{number}"] = Files(change.source, change.files)
                parts.append(f"SELECT {columns} FROM {_view(f'pipeline_appended{number}')}")  # noqa: S608
            if name in rows:
                inputs[f"pipeline_changed{number}"] = rows[name]
                sign, changed = quote_name(rows[name].schema.names[-1]), _view(f"pipeline_changed{number}")
                net = f"SELECT {columns}, CAST(sum({sign}) AS BIGINT) AS {sign} FROM {changed} GROUP BY {columns}"  # noqa: S608
                several = f"range(abs(n.{sign})) r WHERE n.{sign} <> 0"
                parts.append(f"SELECT {self._listed(name, 'n')} FROM ({net}) n, {several}")  # noqa: S608
            seen[name] = (f"pipeline_rows{number}", " UNION ALL ".join(parts))
        return inputs, seen

    def _relation(self, inputs: Mapping[str, Files | LocalRows], seen: Mapping[str, tuple[str, str]]) -> Relation:
        views = dict(seen.values())
        text = self._rows(self.step.query.over({name: view for name, (view, _) in seen.items()}))
        return Relation(inputs, {**views, "pipeline_made": text})

    def _rows(self, query: str) -> str:
        """Return SQL of a table's rows, with the further columns, for the SQL of the query's rows."""
        declaration, schema = self.step.declaration, self.step.schema
        history = declaration.sequencing is not None and declaration.sequencing.scd == 2
        fields = [field for field in schema if not (history and field.name in HISTORY)]
        names = self._names(field.name for field in fields)
        casts = ", ".join(stored_value(quote_name(field.name), field, "the table", _THEN) for field in fields)
        text = f"SELECT {casts} FROM ({query}\n) AS r({names})"  # noqa: S608
        if declaration.sequencing is not None:
            text = sequenced(text, declaration, declaration.sequencing, [field.name for field in fields])
        elif declaration.key:
            text = self._of_one_key(text)
        met = "".join(f", (\n{each.condition}\n) IS TRUE" for each in declaration.expectations)
        return f"SELECT *, true{met} FROM ({text})"  # noqa: S608

    def _of_one_key(self, text: str) -> str:
        """Return SQL that fails, naming the key, where two rows have the same one."""
        key = self._names(self._column(name).name for name in self.step.declaration.key)
        says = quote_text(f"two rows of table {self.step.declaration.target} have the same KEY ({key}): ")
        values = f"CAST(row({key}) AS VARCHAR)"
        once = f"CASE WHEN count(*) OVER (PARTITION BY {key}) > 1 THEN error({says} || {values}) END"
        first, *others = map(quote_name, self.step.schema.names)
        checked = f"coalesce({once}, {first}) AS {first}"
        return f"SELECT {', '.join((checked, *others))} FROM ({text})"  # noqa: S608

    def _unit_values(self, source: str) -> Iterable[str]:
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

    def _column(self, name: str) -> pa.Field:
        return next(field for field in self.step.schema if field.name.lower() == name.lower())

    def _names(self, names: Iterable[str]) -> str:
        return ", ".join(map(quote_name, names))


def _view(name: str) -> str:
    return f"{VIEW_SCHEMA}.{name}"
