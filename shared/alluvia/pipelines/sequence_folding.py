"""Changes by key that are newer than those a table shows: they are folded in, without a look at the source. Pure.

A key is folded if its changes in the run are only new rows, each with a greater value of SEQUENCE BY than the table's
current row of the key. A key without one may be new, or may have been deleted by a change that is greater: it is folded
if no change deletes, or if its values are greater than all that any run has seen. Units with other keys are computed
again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa

from alluvia.delta.log.actions import AddFile
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.duck.literals import free_name, quote_name
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.reading.relations import Files, LocalRows, Relation
from alluvia.pipelines.computing import StepComputing, view
from alluvia.pipelines.declarations.declaration import Sequencing
from alluvia.pipelines.folding import leaves_rows_out
from alluvia.pipelines.kinds import not_row_wise
from alluvia.pipelines.sequences import HISTORY, sequenced
from alluvia.pipelines.steps import Step
from alluvia.rollups.change import PROGRESS, SourceChange
from alluvia.rollups.groups import Touched

GREATEST = f"{PROGRESS}.sequence"
"""The application id under which runs record the greatest value of SEQUENCE BY, as a number."""


@dataclass(frozen=True, slots=True)
class SequenceFolding:
    """Makes the relations of a run that folds changes. `rows` are changed rows that are not whole files."""

    computing: StepComputing
    sequencing: Sequencing
    changes: Mapping[str, SourceChange]
    rows: Mapping[str, LocalRows]

    def greatest(self) -> Relation:
        """Return one row: the greatest value of SEQUENCE BY among new rows as a number, null for other types."""
        inputs, views = self._more()
        text = f"SELECT max({self._number(quote_name(self.sequencing.by))}) FROM {view('pipeline_more')}"  # noqa: S608
        return Relation(inputs, {**views, "pipeline_greatest": text})

    def units(self) -> Relation:
        """Return the units of the change, each once, and last the greatest value of SEQUENCE BY in each as a number."""
        inputs, views, lost = self._more_and_lost()
        number = self._number(quote_name(self.sequencing.by))
        gained = f"SELECT {self._listed(self._unit_columns)}, max({number}) FROM {view('pipeline_more')} GROUP BY ALL"  # noqa: S608
        parts = " UNION ALL ".join([gained, *(f"SELECT {each}, NULL FROM {view(seen)}" for seen, each in lost)])  # noqa: S608
        named = self._listed([*self.computing.unit_schema.names, self._again])
        text = f"SELECT {self._listed(self.computing.unit_schema.names)}, max({self._again}) FROM ({parts}) AS r({named}) GROUP BY ALL"  # noqa: S608, E501
        return Relation(inputs, {**views, "pipeline_found": text})

    def classified(self, target: Snapshot, files: Sequence[AddFile], greatest: int | None) -> Relation:
        """Return the units of the change, and last whether to compute them again.

        `files` are those of the table that can hold them, and `greatest` is the greatest number that runs have seen.
        """
        inputs, views, lost = self._more_and_lost()
        keys, units = self._listed(self.step.declaration.key), self._listed(self._unit_columns)
        by = quote_name(self.sequencing.by)
        latest, current, least, unplaced = map(self._own, ("latest", "current", "least", "unplaced"))
        is_current = "true" if self.sequencing.scd == 1 else "bool_or(is_current)"
        old, more = view("pipeline_old"), view("pipeline_more")
        shown = f"SELECT {keys}, max({by}) AS {latest}, {is_current} AS {current} FROM {old} GROUP BY {keys}"  # noqa: S608
        found = f"SELECT {keys}, min({by}) AS {least}, count(*) > count({by}) AS {unplaced} FROM {more} GROUP BY {keys}"  # noqa: S608
        newer = f"s.{latest} IS NULL OR f.{least} > s.{latest}"
        folds = f"CASE WHEN s.{current} THEN {newer} ELSE {self._is_new(f'f.{least}', greatest)} END"
        judged = (
            f"SELECT {self._of('f', self._unit_columns)}, f.{unplaced} OR NOT ({folds}) AS {self._again} "  # noqa: S608
            f"FROM ({found}) f LEFT JOIN ({shown}) s ON {self._same('f', 's', self.step.declaration.key)}"
        )
        again = [f"SELECT {each}, true FROM {view(seen)}" for seen, each in lost]  # noqa: S608
        parts = " UNION ALL ".join([f"SELECT {units}, {self._again} FROM ({judged})", *again])  # noqa: S608
        named = self._listed([*self.computing.unit_schema.names, self._again])
        text = f"SELECT {self._listed(self.computing.unit_schema.names)}, bool_or({self._again}) FROM ({parts}) AS r({named}) GROUP BY ALL"  # noqa: S608, E501
        return Relation(
            {**inputs, "pipeline_old": Files(target, files)},
            {**views, "pipeline_classified": text},
        )

    def updated(self, target: Snapshot, files: Sequence[AddFile], touched: Touched) -> Relation:
        """Return how the rows of some of the table's files are brought up to date."""
        inputs, views = self._more()
        inputs["pipeline_old"] = Files(target, files)
        inputs["pipeline_folded"] = touched.folded.rows
        kept = self.computing.kept("pipeline_old", "pipeline_folded")
        made: list[str] = []
        if touched.recomputed.count:
            again = self.computing.of_units(touched.recomputed)
            inputs |= again.inputs
            views |= again.views
            views["pipeline_rest"] = kept
            kept = self.computing.kept("pipeline_rest", "pipeline_units")
            made.append(f"FROM {view(again.name)}")
        views["pipeline_more_folded"] = self._in_folded("pipeline_more")
        views["pipeline_old_folded"] = self._in_folded("pipeline_old")
        made.append(self.computing.judged(self._folded()))
        views["pipeline_kept"] = kept
        return Relation(inputs, {**views, "pipeline_updated": self.computing.with_kept(" UNION ALL ".join(made))})

    @property
    def step(self) -> Step:
        """Return the step."""
        return self.computing.step

    @property
    def _unit_columns(self) -> list[str]:
        return [each.column for each in self.step.kind.unit]

    @property
    def _again(self) -> str:
        return self._own("again")

    def _own(self, name: str) -> str:
        """Return a name that no column of the table has."""
        return free_name(f"pipeline_{name}", self.step.schema.names)

    def _is_new(self, least: str, greatest: int | None) -> str:
        """Return SQL for whether a key without a current row has no greater change than its least new one."""
        if self.sequencing.delete_when is None:
            return "true"
        return "false" if greatest is None else f"coalesce({self._number(least)} > {greatest}, false)"

    def _folded(self) -> str:
        """Return SQL of the rows that keys have with their new changes."""
        names = [name for name in self.step.schema.names if self.sequencing.scd == 1 or name not in HISTORY]
        listed, more = self._listed(names), view("pipeline_more_folded")
        old = view("pipeline_old_folded")
        if self.sequencing.scd == 1:
            text = f"SELECT {listed} FROM {old} UNION ALL SELECT {listed} FROM {more}"  # noqa: S608
            return sequenced(text, self.step.declaration, self.sequencing, names)
        keys, by = self._listed(self.step.declaration.key), quote_name(self.sequencing.by)
        least = self._own("least")
        first = f"SELECT {keys}, min({by}) AS {least} FROM {more} GROUP BY {keys}"  # noqa: S608
        until = f"CASE WHEN o.is_current THEN f.{least} ELSE o.valid_to END"
        closed = (
            f"SELECT {self._of('o', names)}, o.valid_from, {until} AS valid_to, o.is_current AND f.{least} IS NULL "  # noqa: S608
            f"FROM {old} o LEFT JOIN ({first}) f ON {self._same('o', 'f', self.step.declaration.key)}"
        )
        text = f"SELECT {listed} FROM {more}"  # noqa: S608
        return f"({closed}) UNION ALL ({sequenced(text, self.step.declaration, self.sequencing, names)})"

    def _in_folded(self, name: str) -> str:
        pairs = zip(self._unit_columns, self.computing.unit_schema.names, strict=True)
        same = " AND ".join(f"r.{quote_name(own)} IS NOT DISTINCT FROM u.{quote_name(unit)}" for own, unit in pairs)
        return f"SELECT r.* FROM {view(name)} r SEMI JOIN {view('pipeline_folded')} u ON {same}"  # noqa: S608

    def _more(self) -> tuple[dict[str, Files | LocalRows], dict[str, str]]:
        """Return the new changes: inputs, and views of which the last has the rows."""
        inputs, seen = self.computing.changed_rows(self.changes, self.rows, "> 0", "pipeline_rows")
        text = self.computing.typed({name: seen_as for name, (seen_as, _) in seen.items()})
        return inputs, {**dict(seen.values()), "pipeline_more": text}

    def _more_and_lost(self) -> tuple[dict[str, Files | LocalRows], dict[str, str], list[tuple[str, str]]]:
        """Return the new changes, and of those that went the names of views, with SQL of their units."""
        inputs, views = self._more()
        lost_inputs, lost = self.computing.changed_rows(self.changes, self.rows, "< 0", "pipeline_lost")
        units = [(seen, ", ".join(self.computing.unit_values(name))) for name, (seen, _) in lost.items()]
        return {**inputs, **lost_inputs}, {**views, **dict(lost.values())}, units

    def _number(self, value: str) -> str:
        kind = self.step.schema.field(self.computing.column(self.sequencing.by).name).type
        if pa.types.is_timestamp(kind):
            return f"epoch_us({value})"
        return f"CAST({value if pa.types.is_integer(kind) else 'NULL'} AS BIGINT)"

    def _same(self, one: str, other: str, names: Sequence[str]) -> str:
        return " AND ".join(
            f"{one}.{quoted} IS NOT DISTINCT FROM {other}.{quoted}" for quoted in map(quote_name, names)
        )

    def _of(self, table: str, names: Sequence[str]) -> str:
        return ", ".join(f"{table}.{quote_name(name)}" for name in names)

    def _listed(self, names: Sequence[str]) -> str:
        return ", ".join(map(quote_name, names))


def greatest_seen(table: Snapshot) -> int | None:
    """Return the greatest number of a change that runs of a table have seen; None where they have not recorded it."""
    txn = table.state.txns.get(GREATEST)
    return None if txn is None else txn.version


def folds_changes(step: Step) -> Sequencing | None:
    """Return how a step's rows are changes, if new ones can be folded in; None where they cannot be."""
    if leaves_rows_out(step.declaration) or not step.kind.unit or not_row_wise(step.query) is not None:
        return None
    return step.declaration.sequencing
