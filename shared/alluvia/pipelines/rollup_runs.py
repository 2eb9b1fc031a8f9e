"""Rollups are refreshed as tables of pipelines run: here, or with their rows shared out among tasks."""

from __future__ import annotations

from alluvia.commit.handle import TableHandle
from alluvia.delta.log.actions import AddFile
from alluvia.delta.snapshot import Snapshot
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import WritableCatalog
from alluvia.operations.reading.relations import Relation, Split, Take
from alluvia.pipelines.declarations.declaration import Declaration
from alluvia.pipelines.execution import Execution, RowOutput, RowTable, T
from alluvia.rollups import refresh
from alluvia.rollups.definition import definition_of


def refresh_rollup(
    catalog: WritableCatalog, name: str, execution: Execution, *, rebuild: bool = False
) -> refresh.RefreshReport:
    """Bring a rollup up to date, as `rollups.refresh` does, by an execution of pipelines."""
    return refresh.refresh(catalog, name, RollupExecution(execution), rebuild=rebuild)


@dataclass(frozen=True, slots=True)
class RollupExecution:
    """Computes the relations of a rollup by an execution of pipelines."""

    execution: Execution

    def rows(self, relation: Relation, split: Split, take: Take[T]) -> T:
        return self.execution.rows(relation, split, take)

    def written(self, handle: TableHandle, rollup: Snapshot, relation: Relation, split: Split) -> list[AddFile]:
        declaration = Declaration(rollup.name, definition_of(rollup).query)
        output = RowOutput(declaration, RowTable(handle, rollup))
        try:
            return self.execution.written(relation, split, output).adds
        except BaseException:
            output.discard()
            raise
