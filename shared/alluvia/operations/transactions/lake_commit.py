"""Commit to several tables at once: a claim in each, one decision, and then what was claimed (docs/TRANSACTIONS.md)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from alluvia.clock import Clock
from alluvia.commit.changes import Changes
from alluvia.commit.commit_records import COMMIT_AGE_MS_MAX, Decisions
from alluvia.commit.intents import pending
from alluvia.commit.transaction import TRANSACTION_AGE_MS_MAX, carry_out_claim
from alluvia.errors import (
    AlluviaError,
    CommitUnknown,
    Conflict,
    TableExists,
    TransactionExpired,
    Unavailable,
)
from alluvia.operations.catalog.transaction_order import carried_out
from alluvia.operations.streams.streams import conflicts_named
from alluvia.operations.tables.drop import put_hints
from alluvia.operations.transactions.staging import StagedTable
from alluvia.table_names import REJECTS

SERIALIZABLE = "serializable"
"""All that was read must still be so."""
WRITE_SERIALIZABLE = "write_serializable"
"""What was read of the tables that are changed must still be so, as in Delta's level of that name."""
SNAPSHOT = "snapshot"
"""Only what is changed must still be so."""
ISOLATION = (SERIALIZABLE, WRITE_SERIALIZABLE, SNAPSHOT)


def commit_all(tables: Sequence[StagedTable], clock: Clock, started_ms: int, isolation: str) -> dict[str, int]:
    """Commit what was staged in all tables, or nothing; `isolation` says which of what was read must still be so.

    Returns the versions that this made of the tables that were changed, as far as this process knows.

    Nothing is written where nothing was staged. One table costs what its commit costs, k tables cost 2k + 1 PUT
    requests. Raises a `Conflict` where another writer changed what was read, or gave this transaction up because it
    took too long; `CommitUnknown` where the store does not say.
    """
    if not any(table.staged for table in tables):
        return {}
    check_age(clock, started_ms)  # a table that has moved to a newer version does not know how old its files are
    used = [table for table in tables if table.staged or (isolation == SERIALIZABLE and table.scans)]
    reads = isolation != SNAPSHOT
    parts = [(table, table.changes(reads=reads)) for table in sorted(used, key=lambda each: each.name)]
    if len(parts) == 1:
        table, changes = parts[0]
        with _creating(table), conflicts_named(table.name):
            _put_hints([table] if table.drops else [])
            done = table.started.commit(changes, table.check_winners(changes))
        return {} if done is None else {table.name: done.version}
    _put_hints([table for table, _ in parts if table.drops or table.base.version < 0])
    return _commit_parts(parts, clock, started_ms)


def _commit_parts(parts: Sequence[tuple[StagedTable, Changes]], clock: Clock, started_ms: int) -> dict[str, int]:
    transaction_id = clock.new_id()
    names = [table.name for table, _ in parts]
    first = parts[0][0]
    decisions = Decisions(first.store, clock, first.root, first.name, names)
    versions: dict[str, int] = {}
    try:
        for table, changes in parts:
            with _creating(table), conflicts_named(table.name):
                on_lost = table.check_winners(changes)
                claimed = table.started.claim(changes, on_lost, transaction_id, names, table.name, started_ms)
            versions[table.name] = claimed.version
        check_age(clock, started_ms)
    except AlluviaError as error:
        with suppress(AlluviaError):  # the next reader of a claim aborts the transaction, only later
            decisions.abort(transaction_id)
        if isinstance(error, CommitUnknown):  # of a claim, which is nothing without a decision
            raise Unavailable(f"nothing was committed, since a claim may be missing: {error}") from error
        raise
    if not decisions.commit(transaction_id, versions):
        raise Conflict("the transaction took too long, so that another writer aborted it: start it again")
    first.store.check_lasts()
    if clock.now_ms() - started_ms > COMMIT_AGE_MS_MAX // 2:
        raise CommitUnknown("this process was paused for hours in a commit: check whether the transaction happened")
    for table, _ in parts:
        log = table.inner.log
        with table.inner.lock:
            claims = [] if log.state is None else pending(log.state.domains)
        for claim in claims:
            if claim.transaction_id == transaction_id:
                with suppress(AlluviaError):  # it has happened: readers see it, and writers carry it out
                    carry_out_claim(log, claim, versions)
    made = {table.name: _carried_out_in(table, versions[table.name], transaction_id) for table, _ in parts}
    return {table.name: made[table.name] for table, _ in parts if table.staged and made[table.name]}


def check_age(clock: Clock, started_ms: int) -> None:
    """Raise `TransactionExpired` an hour after a transaction began."""
    if clock.now_ms() - started_ms > TRANSACTION_AGE_MS_MAX:
        raise TransactionExpired(
            f"the transaction is older than {TRANSACTION_AGE_MS_MAX // 60_000} minutes: start it again"
        )


def _carried_out_in(table: StagedTable, claimed: int, transaction_id: str) -> int:
    """Return the version in which a transaction was carried out, 0 if this process does not know it."""
    with table.inner.lock:
        done = carried_out(table.inner.log.since(claimed) or ()).get(transaction_id)
    return 0 if done is None else int(done.done)


@contextmanager
def _creating(table: StagedTable) -> Iterator[None]:
    """Have a conflict about a table that the transaction creates say so."""
    try:
        yield
    except Conflict as error:
        if not table.creates:
            raise
        raise TableExists(
            f"another writer created table {table.name!r} meanwhile: start the transaction again"
        ) from error


def _put_hints(tables: Sequence[StagedTable]) -> None:
    """Mark tables as possibly dropped: those that will be, and those that do not exist yet."""
    for table in tables:
        put_hints(table, marked=REJECTS not in table.name.split("/"))
