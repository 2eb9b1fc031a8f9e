"""The tables of a step in the transaction of its run: created, replaced, or given what its declaration now says."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from alluvia.commit.changes import Changes
from alluvia.delta.log.actions import Metadata
from alluvia.delta.partitioning.spec import parse_spec
from alluvia.delta.properties import CLUSTER_BY, PARTITION_BY, PIPELINE, SORT_BY, check_derived
from alluvia.delta.schema.serialization import normal_schema
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid, TableNotFound
from alluvia.operations.catalog.catalog import NewTable, WritableCatalog
from alluvia.operations.planning.layout import check_layout, check_ttl
from alluvia.operations.tables.create import plan_create
from alluvia.operations.tables.evolve import plan_evolve
from alluvia.operations.transactions.lake_transaction import StagedTables
from alluvia.operations.transactions.staging import StagedTable
from alluvia.pipelines.declarations.declaration import QUARANTINE_SUFFIX
from alluvia.pipelines.declarations.definition import definition_of, quarantine_text
from alluvia.pipelines.folding import lacks_rows
from alluvia.pipelines.marks import put_marks
from alluvia.pipelines.planning import REBUILT, StepPlan
from alluvia.pipelines.sorting_rows import quarantine_schema
from alluvia.pipelines.steps import Step

OPERATION = "PIPELINE RUN"


def staged_target(
    tables: StagedTables, catalog: WritableCatalog, plan: StepPlan, before: Snapshot | None
) -> StagedTable:
    """Return a step's table, with the columns and properties of its declaration. `before` is None for a new one."""
    step = plan.step
    metadata = _metadata(catalog, step)
    if before is None or before.properties.get(PIPELINE) != step.definition.to_text():
        put_marks(catalog.store, step.declaration.target, step.definition.columns)
    if before is None:
        return tables.create(step.declaration.target, metadata, exist_ok=False)
    if plan.mode == REBUILT and _differs(before, step, metadata):
        return tables.create(step.declaration.target, metadata, exist_ok=False, replace=True)
    staged = tables.handle(step.declaration.target)
    changed = _redeclared(_widened(before, step.schema, catalog), step, before, metadata)
    if changed != before.state.metadata:
        staged.transaction(before).commit(Changes(OPERATION, metadata=changed))
    return staged


def staged_quarantine(
    tables: StagedTables, catalog: WritableCatalog, plan: StepPlan, before: Snapshot | None
) -> StagedTable | None:
    """Return the table of a step's failed rows; None where none are kept. Raises `Invalid` for another's table.

    `before` is the step's table, whose failed rows may be kept since an expectation that its declaration had.
    """
    step = plan.step
    name = step.declaration.quarantine
    if name is None:
        return None if before is None or not lacks_rows(before) else _former_quarantine(tables, step.declaration.target)
    text, schema = quarantine_text(step.declaration.target), quarantine_schema(step.schema)
    metadata = plan_create(NewTable(schema), catalog.clock.new_id(), catalog.clock.now_ms())
    metadata = replace(metadata, configuration={**metadata.configuration, PIPELINE: text})
    try:
        staged = tables.handle(name)
    except TableNotFound:
        return tables.create(name, metadata, exist_ok=False)
    before = staged.newest()
    if before.properties.get(PIPELINE) != text:
        raise step.declaration.wrong(f"its failed rows go to {name}, and there is another table of that name")
    if plan.mode == REBUILT and not _same_columns(before.schema, schema):
        return tables.create(name, metadata, exist_ok=False, replace=True)
    widened = _widened(before, schema, catalog)
    if widened != before.state.metadata:
        staged.transaction(before).commit(Changes(OPERATION, metadata=widened))
    return staged


def _former_quarantine(tables: StagedTables, target: str) -> StagedTable | None:
    """Return the table of failed rows that earlier runs have made, which rows leave when they are computed again.

    It keeps its columns: it gains no rows.
    """
    try:
        staged = tables.handle(target + QUARANTINE_SUFFIX)
        own = staged.newest().properties.get(PIPELINE) == quarantine_text(target)
    except TableNotFound:
        return None
    return staged if own else None


def _metadata(catalog: WritableCatalog, step: Step) -> Metadata:
    """Return the metadata of a new table. By default, its rows are sorted by the columns by which they are replaced."""
    declaration, schema = step.declaration, step.schema
    units = [field.name for field in schema if field.name.lower() in {each.column for each in step.kind.unit}]
    sort_by = declaration.sort_by or (() if declaration.cluster_by else tuple(units))
    new = NewTable(schema, declaration.partition_by, sort_by, dict(declaration.properties), declaration.cluster_by)
    try:
        metadata = plan_create(new, catalog.clock.new_id(), catalog.clock.now_ms())
        configuration = {**metadata.configuration, PIPELINE: step.definition.to_text()}
        metadata = replace(metadata, configuration=configuration)
        check_derived(configuration)
        check_ttl(metadata)
    except Invalid as error:
        raise declaration.wrong(str(error)) from error
    return metadata


def _differs(before: Snapshot, step: Step, metadata: Metadata) -> bool:
    """Whether a table needs other columns or partitions than it has."""
    spec = parse_spec(step.declaration.partition_by, normal_schema(step.schema))
    parted = PARTITION_BY in before.properties or before.partition_columns
    same_parts = (
        before.properties.get(PARTITION_BY) == metadata.configuration.get(PARTITION_BY)
        and tuple(before.partition_columns) == tuple(metadata.partition_columns)
        if spec.fields or parted
        else True
    )
    return not same_parts or not _same_columns(before.schema, step.schema)


def _same_columns(one: pa.Schema, other: pa.Schema) -> bool:
    return [(each.name, each.type) for each in one] == [(each.name, each.type) for each in other]


def _widened(before: Snapshot, schema: pa.Schema, catalog: WritableCatalog) -> Metadata:
    """Return a table's metadata with the columns that it lacks."""
    metadata = before.state.metadata
    new = [field.with_nullable(True) for field in schema if field.name not in before.schema.names]
    if not new:
        return metadata
    own = {name: value for name, value in metadata.configuration.items() if name != PIPELINE}
    widened = plan_evolve(replace(metadata, configuration=own), pa.schema(new), None, seed=catalog.clock.new_id())
    return replace(widened, configuration={**widened.configuration, PIPELINE: metadata.configuration[PIPELINE]})


def _redeclared(metadata: Metadata, step: Step, before: Snapshot, wanted: Metadata) -> Metadata:
    """Return metadata with the properties and the order of the declaration, and without those of the one before."""
    recorded = definition_of(before)
    gone = {SORT_BY, CLUSTER_BY, *(() if recorded is None else recorded.declaration.properties)}
    declared = {SORT_BY, CLUSTER_BY, PIPELINE, *step.declaration.properties}
    configuration = {name: value for name, value in metadata.configuration.items() if name not in gone}
    configuration |= {name: value for name, value in wanted.configuration.items() if name in declared}
    changed = replace(metadata, configuration=configuration)
    check_layout(changed)
    return changed
