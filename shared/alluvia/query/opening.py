"""Give a session what a query names: its tables' versions, the files left after pruning, and what stands in for tables.

The session then has one view per table reference, over exactly these files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, TypeVar

import pyarrow as pa

from alluvia.delta.data_files.scan import Scan
from alluvia.delta.promoted_fields import PROPERTIES
from alluvia.delta.schema.names import fold
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.conditions.constants import Constants
from alluvia.engine.duck.literals import quote_name
from alluvia.engine.duck.relation import RowPlaces
from alluvia.engine.duck.variant_sql import plain_key
from alluvia.engine.queries.engine_faults import rules_left_out
from alluvia.engine.queries.field_reads import FieldRead, find_field_reads, shown_fields
from alluvia.engine.queries.named_columns import named_columns, result_columns
from alluvia.engine.queries.parse import Node, Statement, walk
from alluvia.engine.queries.references import Reference, References, names_in_use
from alluvia.engine.queries.rewrite import Rewritten
from alluvia.engine.queries.shown_names import Shown
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import Catalog
from alluvia.operations.merge_query.folding import FINAL
from alluvia.operations.reading.relations import Files, Inputs, LocalRows, Relation, rows_alone
from alluvia.query.derived import StreamReading, find_derived
from alluvia.query.known_texts import references_of
from alluvia.query.known_texts import rewritten as rewritten_text
from alluvia.query.limits import PlannedReads, QueryLimits
from alluvia.query.parameter_times import with_times
from alluvia.query.parameters import check_given
from alluvia.query.process.evaluator import evaluation
from alluvia.query.process.fetching import EARLY_FILES, may_end_early
from alluvia.query.process.session import Session
from alluvia.query.resolving import newest_snapshots, resolve
from alluvia.query.scans import ScanPlan, TableScan, plan_scans, report
from alluvia.query.views import expand

if TYPE_CHECKING:
    from alluvia.query.inspecting import Inspection

A = TypeVar("A")


@dataclass(frozen=True, slots=True)
class Opened:
    """What a session was given: the query without views, the scans of tables, what namings cost, the text to run.

    `named` has the version of each naming of a table; None where the query names relations that are made of others.
    `read` has every version that is read.
    """

    statement: Statement
    scans: dict[Reference, Scan]
    reports: tuple[TableScan, ...]
    rewritten: Rewritten
    named: Mapping[Reference, Snapshot] | None
    read: tuple[Snapshot, ...]


def open_session(
    catalog: Catalog,
    statement: Statement,
    session: Session,
    limits: QueryLimits,
    values: pa.Table | None,
    places: RowPlaces | None,
    *,
    dry_run: bool,
    without_rows: bool,
) -> Opened:
    """Give a session what a query names, but not in a dry run; tables without a file where no row is asked for."""
    if values is not None:
        check_given(statement.root, dict.fromkeys(values.column_names))
    references = references_of(statement, parameters=values is not None)
    references, newest = resolve(catalog, references)  # while the database opens
    expanded = expand(catalog, statement, references, newest, session.analyse, parameters=values is not None)
    if expanded.views:  # which name other tables: all are read at one moment
        statement, references = expanded.statement, expanded.references
        newest = newest_snapshots(catalog, references)
    given = {} if values is None else _bound(session, statement.root, newest, values)
    constants = Constants(session.begin(), names_in_use(statement.root), given, session.plan)
    reads = PlannedReads(limits, catalog.rights)
    with_rows = not (dry_run or without_rows or statement.explain)
    derived = _derived(
        catalog, statement, references, constants, newest, session, limits, reads, dry_run=dry_run, with_rows=with_rows
    )
    schemas = {one: schema for one, (schema, _) in derived.items()}
    plan = plan_scans(catalog, references, constants, newest, schemas)
    columns = named_columns(statement.root, {one: scan.snapshot.schema for one, scan in plan.scans.items()} | schemas)
    results = result_columns(statement.root)
    found = _session_inputs(catalog, references, plan, derived, places, columns, results, without_rows=without_rows)
    inputs, names = found.inputs, found.names
    if catalog.rights is not None and (dry_run or statement.explain):
        what = "a dry run" if dry_run else "EXPLAIN"
        read = [each.snapshot.name for each in inputs.values() if isinstance(each, Files)]
        catalog.rights.check_sees_all(what, read)
    if not dry_run:
        reads.add(inputs)
    fields = _field_reads(statement, references, plan, schemas)
    for reference in references.tables if fields else ():
        files = inputs[names[reference]]
        if isinstance(files, Files) and files.snapshot.has_properties:
            inputs[names[reference]] = replace(files, fields={each.column: each.path for each in fields})
    rewritten = replace(rewritten_text(statement, names, session.analyse, fields), outer=expanded.position)
    if not dry_run:
        session.open(
            inputs,
            found.views,
            _fetched_max(statement),
            rules_left_out(statement.root, of_views=bool(found.views)),
            {**shown_tables(statement.root, names), **shown_fields(fields)},
        )
    named = _tables_named(references, plan.scans, {reference: relation for reference, (_, relation) in derived.items()})
    return Opened(statement, plan.scans, tuple(found.reports), rewritten, named, tuple(reads.snapshots))


@dataclass(slots=True)
class _SessionInputs:
    """Inputs of a session for the tables that a query names, views over them, the name of each, and their costs."""

    inputs: dict[str, Files | LocalRows] = field(default_factory=dict)
    views: dict[str, str] = field(default_factory=dict)
    names: dict[Reference, str] = field(default_factory=dict)
    reports: list[TableScan] = field(default_factory=list)


def _session_inputs(
    catalog: Catalog,
    references: References,
    plan: ScanPlan,
    derived: Mapping[Reference, tuple[pa.Schema, Relation | Inspection]],
    places: RowPlaces | None,
    named: frozenset[str] | None,
    results: tuple[str, ...] | None,
    *,
    without_rows: bool,
) -> _SessionInputs:
    """Return an input or a view for each table that the query names. The catalog notes the versions that it reads.

    `named` are the folded names of all columns that the query can mean; None if it can mean any. `results` as for
    `result_columns`.
    """
    found = _SessionInputs()
    for number, reference in enumerate(references.tables):
        if reference in derived:
            relation = derived[reference][1].narrowed(plan.needed[reference])
            relation = _emptied(relation) if without_rows else relation
            found.inputs |= relation.inputs
            found.views |= relation.views
            found.names[reference] = relation.name
            for each in (each for each in relation.inputs.values() if isinstance(each, Files)):
                catalog.note_read(Scan(each.snapshot))
            found.reports += _reports(derived[reference][1], relation)
        else:
            scan = plan.scans[reference]
            catalog.note_read(scan)
            shown, located = plan.shown.get(reference), places if number == 0 else None
            rows = None if shown or located or without_rows else rows_alone(scan, named)
            files = Files(
                scan.snapshot,
                scan.files if rows is None and not without_rows else (),
                shown=shown,
                places=located,
                named=None if shown else named,
                results=results,
                rows=rows,
            )
            found.names[reference] = f"scan_{number}"
            found.inputs[found.names[reference]] = files
            found.reports.append(report(reference.shown, files))
    return found


def _field_reads(
    statement: Statement, references: References, plan: ScanPlan, derived: Mapping[Reference, pa.Schema]
) -> list[FieldRead]:
    """Return the reads of fields that files have as columns; none if a relation's `properties` is another."""
    having = [one for one, scan in plan.scans.items() if scan.snapshot.has_properties]
    if not having or not all(plan.scans[one].snapshot.variant == PROPERTIES for one in having) or plan.shown:
        return []
    if any(PROPERTIES in map(fold, schema.names) for schema in derived.values()):
        return []
    reads = find_field_reads(statement.root, references)
    moved = {field.key for one in having for field in plan.scans[one].snapshot.promoted}
    return [] if any(plain_key(read.path) in moved for read in reads) else reads


def _bound(session: Session, root: Node, newest: Mapping[str, Snapshot], values: pa.Table) -> dict[str, pa.Scalar]:
    """Bind the values of a query's parameters, times as such, and return them by name."""
    values = with_times(root, [each.schema for each in newest.values()], values)
    session.bind(values)
    return {name: values[name][0] for name in values.column_names}


def shown_tables(root: Mapping[str, object], views: Mapping[Reference, str]) -> Shown:
    """Return the tables to show for views in names of columns; none for a query without subqueries in expressions."""
    if not any(node.get("class") == "SUBQUERY" for node in walk(root)):
        return {}
    return {view: (_shown(reference), bool(reference.node["alias"])) for reference, view in views.items()}


def _shown(reference: Reference) -> str:
    parts = [part for part in reference.shown.split(".") if part]
    name = ".".join(part if part.isidentifier() else quote_name(part) for part in parts)
    if reference.call is None:
        return name
    return f"{reference.call.function}('{name}')" if reference.is_function else reference.call.function


def _derived(
    catalog: Catalog,
    statement: Statement,
    references: References,
    constants: Constants,
    newest: Mapping[str, Snapshot],
    session: Session,
    limits: QueryLimits,
    reads: PlannedReads,
    *,
    dry_run: bool,
    with_rows: bool,
) -> dict[Reference, tuple[pa.Schema, Relation | Inspection]]:
    """Return what replaces names and calls that are not tables, with its columns."""
    evaluate = _nothing_evaluated if dry_run else evaluation(catalog.store, limits, reads.add)
    streams = StreamReading(catalog, lambda: session.folder, limits, reads, dry_run=dry_run, with_rows=with_rows)
    relations: dict[Reference, tuple[pa.Schema, Relation | Inspection]] = {
        **find_derived(catalog, references, constants, newest, evaluate, streams)
    }
    if any(reference.call is not None for reference in references.tables):
        from alluvia.query.inspecting import find_inspections  # which other queries do not need

        root = statement.root
        relations |= find_inspections(
            catalog, root, references, constants, newest, session, limits, reads, with_rows=with_rows
        )
    return relations


def _reports(source: Relation | Inspection, relation: Relation) -> list[TableScan]:
    """Return the cost of a relation that replaces a name of the query."""
    before = () if isinstance(source, Relation) else source.reports
    return [
        *before,
        *(report(each.snapshot.name, each) for each in relation.inputs.values() if isinstance(each, Files)),
    ]


def _emptied(relation: Relation) -> Relation:
    """Return a relation without files."""
    inputs: Inputs = {
        name: replace(each, files=(), paths=()) if isinstance(each, Files) else each
        for name, each in relation.inputs.items()
    }
    return replace(relation, inputs=inputs)


def _nothing_evaluated(relation: Relation, take: Callable[[pa.Schema, Iterator[pa.RecordBatch]], A]) -> A:  # noqa: ARG001
    raise Invalid("a dry run reads no rows, and it depends on rows which files this takes: send it without dry_run")


def _tables_named(
    references: References, scans: Mapping[Reference, Scan], relations: Mapping[Reference, Relation | Inspection]
) -> Mapping[Reference, Snapshot] | None:
    """Return the version of the one table that each naming reads; None where one reads more than that."""
    snapshots = {}
    for reference in references.tables:
        if reference in scans:
            snapshots[reference] = scans[reference].snapshot
            continue
        relation = relations[reference]
        inputs = list(relation.inputs.values()) if isinstance(relation, Relation) else []
        if len(inputs) != 1 or not isinstance(inputs[0], Files) or not str(reference.table).endswith(FINAL):
            return None
        snapshots[reference] = inputs[0].snapshot
    return snapshots


def _fetched_max(statement: Statement) -> int | None:
    """Return how many files are worth fetching before a query runs; None for any number."""
    if statement.explain:
        return 0
    return EARLY_FILES if may_end_early(statement.root) else None
