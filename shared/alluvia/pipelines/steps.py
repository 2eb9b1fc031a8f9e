"""A declaration together with its kind, its units and its own columns, which follow from its sources."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from alluvia.arrow_parquet import pq
from alluvia.delta.properties import TTL
from alluvia.delta.schema.names import fold
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.duck.literals import quote_name
from alluvia.engine.queries.references import names_in_use
from alluvia.engine.queries.shown_names import VIEW_SCHEMA
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.reading.relations import Evaluate, Files, LocalRows, Relation
from alluvia.pipelines.declarations.declaration import APPEND, Declaration
from alluvia.pipelines.declarations.definition import TableDefinition, changed_parts
from alluvia.pipelines.kinds import TableKind, UnitColumn, derive_kind
from alluvia.pipelines.queries.query import PipelineQuery, read_query
from alluvia.pipelines.sequences import HISTORY
from alluvia.rollups.result_columns import is_held, result_columns

SourceColumns = Mapping[str, "Snapshot | pa.Schema"]
"""By name, each source as it is, or the columns that it is going to have."""


@dataclass(frozen=True, slots=True)
class Step:
    """A declared table that is ready to be planned. `schema` has its columns, and `kind` its units.

    `columns` are what the query sees of each source; None for all columns.
    """

    declaration: Declaration
    query: PipelineQuery
    kind: TableKind
    schema: pa.Schema
    columns: Mapping[str, tuple[str, ...] | None]

    @property
    def definition(self) -> TableDefinition:
        """Return what the table is to say of itself."""
        unit = tuple(each.column for each in self.kind.unit)
        return TableDefinition(self.declaration, self.kind.name, unit, self.columns)

    def seen(self, source: str, schema: pa.Schema) -> tuple[str, ...]:
        """Return the columns of a source that the query sees. Raises `Invalid`, naming it, for one that is gone."""
        columns = self.columns[source]
        if columns is None:
            return tuple(schema.names)
        for name in columns:
            if name not in schema.names:
                raise self.declaration.wrong(f"{source.replace('/', '.')} has no column {name} any more")
        return columns


def resolve(
    declaration: Declaration, sources: SourceColumns, evaluate: Evaluate, folder: Path, recorded: TableDefinition | None
) -> Step:
    """Return the step of a declaration. `recorded` is what its table was made of so far.

    Two empty relations are computed, with files of their own in a folder. Raises `Invalid`, with the place of the
    declaration and the reason.
    """
    try:
        query = read_query(declaration.query)
        schemas = {name: _schema(sources[name]) for name in query.sources}
        return _resolve(declaration, query, schemas, sources, evaluate, folder, recorded)
    except Invalid as error:
        if declaration.place and not str(error).startswith(declaration.place):
            raise declaration.wrong(str(error)) from error
        raise


def _resolve(
    declaration: Declaration,
    query: PipelineQuery,
    schemas: Mapping[str, pa.Schema],
    sources: SourceColumns,
    evaluate: Evaluate,
    folder: Path,
    recorded: TableDefinition | None,
) -> Step:
    kind = derive_kind(declaration, query, schemas)
    columns = query.columns_named(schemas)
    if recorded is not None and set(recorded.columns) == set(columns):
        unchanged = "the query" not in changed_parts(recorded, TableDefinition(declaration, kind.name, (), columns))
        columns = dict(recorded.columns) if unchanged else columns
    views = {name: f"seen{number}" for number, name in enumerate(query.sources)}
    inputs = {f"source{number}": _nothing(sources[name], folder / f"source{number}.parquet")
              for number, name in enumerate(query.sources)}  # fmt: skip
    seen = {
        views[name]: f"SELECT {_listed(columns[name] or schemas[name].names)} FROM {VIEW_SCHEMA}.source{number}"  # noqa: S608
        for number, name in enumerate(query.sources)
    }
    over = _Over(inputs, seen, evaluate)
    schema = over.columns(query.over(views), names_in_use(query.root), "the table")
    kind = kind.restricted([each for each in kind.parts if over.holds(each, views, schema)])
    _check(declaration, schema, kind)
    if declaration.sequencing is not None and declaration.sequencing.scd == 2:
        by = schema.field(_named(declaration.sequencing.by, schema)).type
        schema = pa.schema([*schema, *(pa.field(name, by) for name in HISTORY[:2]), pa.field(HISTORY[2], pa.bool_())])
    return Step(declaration, query, kind, schema, columns)


@dataclass(frozen=True, slots=True)
class _Over:
    """Finds the columns of queries over sources without rows."""

    inputs: Mapping[str, Files | LocalRows]
    seen: Mapping[str, str]
    evaluate: Evaluate

    def columns(self, text: str, aliases: frozenset[str], what: str) -> pa.Schema:
        def within(relation: Relation, take):  # type: ignore[no-untyped-def]
            return self.evaluate(Relation(relation.inputs, {**self.seen, **relation.views}), take)

        return result_columns(self.inputs, text, aliases, within, what)[0]

    def holds(self, unit: UnitColumn, views: Mapping[str, str], schema: pa.Schema) -> bool:
        """Whether a column of a unit has the type of the result's column in each source."""
        field = schema.field(_named(unit.column, schema))
        return not pa.types.is_nested(field.type) and all(
            is_held(field.type, self._type(text, views[source])) for source, text in unit.texts.items()
        )

    def _type(self, text: str, view: str) -> str:
        query = f"SELECT column_type FROM (DESCRIBE SELECT {text} AS value FROM {VIEW_SCHEMA}.{view})"  # noqa: S608
        relation = Relation(self.inputs, {**self.seen, "type": query})
        return self.evaluate(
            relation, lambda columns, batches: str(pa.Table.from_batches(batches, columns)["column_type"][0])
        )


def _check(declaration: Declaration, schema: pa.Schema, kind: TableKind) -> None:
    """Raise `Invalid`, naming it, for a column that the declaration names and the query does not give."""
    sequencing = declaration.sequencing
    for name in (*declaration.key, *(() if sequencing is None else (sequencing.by,))):
        _named(name, schema)
    for name in declaration.key:
        if pa.types.is_nested(schema.field(_named(name, schema)).type):
            raise Invalid(f"KEY: {name} is nested: use its fields")
    if sequencing is not None and sequencing.scd == 2:
        taken = [name for name in HISTORY if name in map(fold, schema.names)]
        if taken:
            raise Invalid(f"column {taken[0]} has a name that SCD TYPE 2 gives itself: give it another with AS")
    if TTL in declaration.properties and kind.name != APPEND:
        raise Invalid(f"property {TTL}: rows of the kind {kind.name} cannot expire: a change would bring them back")


def _named(name: str, schema: pa.Schema) -> str:
    """Return a column by its name in any case. Raises `Invalid`."""
    found = [each for each in schema.names if fold(each) == fold(name)]
    if len(found) != 1:
        raise Invalid(f"the query gives no column {name!r}: it gives {', '.join(schema.names)}")
    return str(found[0])


def _schema(source: Snapshot | pa.Schema) -> pa.Schema:
    return source.schema if isinstance(source, Snapshot) else source


def _nothing(source: Snapshot | pa.Schema, path: Path) -> Files | LocalRows:
    """Return no rows with the columns of a source."""
    if isinstance(source, Snapshot):
        return Files(source, [])
    pq.write_table(source.empty_table(), path, store_schema=False)
    return LocalRows(path, source)


def _listed(names: tuple[str, ...] | list[str]) -> str:
    return ", ".join(map(quote_name, names))
