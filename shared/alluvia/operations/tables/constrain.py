"""Add and drop CHECK constraints of a table. Adding one reads all rows, which must keep it."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from alluvia.commit.changes import Changes
from alluvia.commit.handle import TableHandle
from alluvia.commit.transaction import Commit
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.log.actions import Metadata
from alluvia.delta.properties import CONSTRAINT, check_properties
from alluvia.delta.schema.names import fold
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid
from alluvia.operations.planning.constraints import row_check
from alluvia.operations.planning.optimistic_retry import Plan, check_not_rollup, commit_planned
from alluvia.operations.tables.evolve import protocol_for


def add_constraint(handle: TableHandle, name: str, text: str) -> Commit:
    """Have every row, now and later, keep a condition. Rows that others add meanwhile are checked, too.

    Raises `Invalid`, naming it, for a constraint that is there already or that a row breaks, and `Unsupported` for a
    condition that other engines may read in another way.
    """

    def plan(snapshot: Snapshot) -> Changes:
        check_not_rollup(snapshot, "ADD CONSTRAINT")
        if _there(snapshot, name) is not None:
            raise Invalid(
                f"table {snapshot.name} already has a constraint {name}: drop it first, or choose another name"
            )
        check_properties({CONSTRAINT + name: text})
        check = row_check({name: text}, snapshot.schema)
        for batch in Scan(snapshot).read(handle.store):
            if check is not None:
                check(pa.Table.from_batches([batch]))
        before = snapshot.state.metadata
        metadata = replace(before, configuration={**before.configuration, CONSTRAINT + name: text})
        return _changes("ADD CONSTRAINT", {"name": name, "expr": text}, snapshot, metadata)

    return _commit(handle, plan)


def drop_constraint(handle: TableHandle, name: str) -> Commit:
    """Drop a constraint. Raises `Invalid` if there is none of that name."""

    def plan(snapshot: Snapshot) -> Changes:
        known = _there(snapshot, name)
        if known is None:
            raise Invalid(f"table {snapshot.name} has no constraint {name}")
        before = snapshot.state.metadata
        kept = {key: value for key, value in before.configuration.items() if key != known}
        return _changes("DROP CONSTRAINT", {"name": name}, snapshot, replace(before, configuration=kept))

    return _commit(handle, plan)


def _there(snapshot: Snapshot, name: str) -> str | None:
    wanted = fold(CONSTRAINT + name)
    return next((key for key in snapshot.properties if fold(key) == wanted), None)


def _changes(operation: str, parameters: dict[str, str], snapshot: Snapshot, metadata: Metadata) -> Changes:
    # Any row that another writer adds first counts: whether it keeps the constraint has to be seen.
    return Changes(
        operation,
        parameters,
        metadata=metadata,
        protocol=protocol_for(snapshot.protocol, metadata),
        can_match=lambda _: True,
    )


def _commit(handle: TableHandle, plan: Plan) -> Commit:
    commit, snapshot, _ = commit_planned(handle, plan)
    return commit or Commit(snapshot.version, snapshot.timestamp_ms)
