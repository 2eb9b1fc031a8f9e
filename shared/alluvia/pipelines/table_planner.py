"""Plan the tables of a pipeline, one after another: what they read is looked up as it is now."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from alluvia.delta.snapshot import Snapshot
from alluvia.errors import TableNotFound
from alluvia.operations.catalog.catalog import WritableCatalog
from alluvia.operations.catalog.schemas import check_schema
from alluvia.operations.catalog.views import find_view
from alluvia.operations.reading.relations import Evaluate
from alluvia.pipelines.declarations.declaration import Declaration
from alluvia.pipelines.declarations.definition import definition_of
from alluvia.pipelines.planning import REBUILT, StepPlan, StepSource, plan_table
from alluvia.pipelines.queries.query import read_query
from alluvia.pipelines.steps import Step, resolve
from alluvia.scratch import scratch_root


class Planner:
    """Plans tables one after another; one that does not exist yet is known to the later ones by its columns."""

    def __init__(self, catalog: WritableCatalog, evaluate: Evaluate) -> None:
        self._catalog = catalog
        self._evaluate = evaluate
        self._coming: dict[str, pa.Schema] = {}

    def plan(self, declaration: Declaration, target: Snapshot | None = None, *, full_refresh: bool = False) -> StepPlan:
        """Return what a run of a table does. `target` is the table as it is, which is looked up if it is not given.

        Raises `Invalid`, `TableNotFound` for a source that there is not, or the schema of a new table, and what else
        looking them up raises.
        """
        names = read_query(declaration.query).sources
        target = self.newest(declaration.target) if target is None else target
        if target is None:
            check_schema(self._catalog.store, declaration.target)
        recorded = None if target is None else definition_of(target)
        if target is not None and recorded is None:
            raise declaration.wrong("there is a table of this name that no pipeline has made: drop or rename it first")
        sources: dict[str, StepSource] = {}
        columns: dict[str, Snapshot | pa.Schema] = {}
        for name in names:
            found = self._source(declaration, name)
            if found is None:
                columns[name] = self._coming[name]
            else:
                sources[name], columns[name] = found, found.snapshot
        step = self._resolved(declaration, columns, target)
        if len(sources) < len(names):
            return StepPlan(step, REBUILT, "a source is new", sources)
        return plan_table(step, target, recorded, sources, full_refresh=full_refresh)

    def newest(self, name: str) -> Snapshot | None:
        """Return a table as it is now; None where there is none."""
        try:
            return self._catalog.handle(name).newest()
        except TableNotFound:
            return None

    def _source(self, declaration: Declaration, name: str) -> StepSource | None:
        handle = self._catalog.handle(name)
        try:
            snapshot = handle.newest()
        except TableNotFound as error:
            if name in self._coming:
                return None
            if find_view(self._catalog.store, name) is not None:
                raise declaration.wrong(
                    f"its query reads the view {name}: write its SELECT as a WITH clause"
                ) from error
            raise declaration.wrong(f"its query reads a table that does not exist: {error}") from error
        if handle.carry_out(snapshot):
            snapshot = handle.newest()
        return StepSource(handle, snapshot)

    def _resolved(
        self, declaration: Declaration, columns: Mapping[str, Snapshot | pa.Schema], target: Snapshot | None
    ) -> Step:
        recorded = None if target is None else definition_of(target)
        with tempfile.TemporaryDirectory(dir=scratch_root()) as folder:
            step = resolve(declaration, columns, self._evaluate, Path(folder), recorded)
        self._coming[declaration.target] = step.schema
        return step
