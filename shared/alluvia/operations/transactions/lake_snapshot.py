"""All tables of a lake at one moment. Of a table, only its version is looked up, and its state when it is needed.

First all logs are looked up, then all of them once more for what has come since. So a transaction that one of them
holds has its claims in all of them, as in `consistent_snapshot.py`. A claim that stands in a log then counts as carried
out if its transaction was decided by the time somebody asks, and all its claims are within the versions found here:
what it follows is then within them too, since no table takes another claim before the last one has gone
(docs/TRANSACTIONS.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from alluvia.clock import Clock
from alluvia.commit.commit_records import COMMIT_AGE_MS_MAX, Decisions
from alluvia.commit.handle import TableHandle
from alluvia.commit.intents import Claim, pending
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.replay import State
from alluvia.errors import Corrupt, Invalid, TableNotFound, Unsupported
from alluvia.operations.catalog.catalog import WritableCatalog
from alluvia.operations.catalog.consistent_snapshot import carried_out
from alluvia.operations.transactions.late_snapshot import check_age, state_at
from alluvia.table_names import STREAMS, TABLE_NAME

TABLES_MAX = 100
"""A lake of more tables is not looked up as a whole."""
_NONE = -1
_SKIPPED = (Corrupt, Invalid, Unsupported)
"""What is wrong with one table, or with this process's rights, stops no transaction over others."""


class _Log:
    """A table's log: its newest version (-1 without any), and that version's state where this process has it."""

    def __init__(self, handle: TableHandle) -> None:
        self.handle = handle
        with handle.lock:
            log = handle.log
            self.state = None if log.stale else log.state
            self.version = log.newest_listed() if self.state is None else self.state.version

    def follow(self) -> Sequence[CommitActions]:
        """Look for new commits."""
        log = self.handle.log
        if self.version == _NONE:
            return ()
        if self.state is None:
            commits: Sequence[CommitActions] = log.following(self.version)
            self.version += len(commits)
            return commits
        with self.handle.lock:
            self.state = log.refresh()
            known = log.since(self.version)
        new = range(self.version + 1, self.state.version + 1)
        self.version = self.state.version
        return log.read_commits(new) if known is None else known

    def opened(self) -> State:
        """Return the state of the version. Raises `TransactionExpired` where retention has taken it."""
        if self.state is None:
            self.state = state_at(self.handle, self.version)
        return self.state


def _tables(catalog: WritableCatalog) -> list[str]:
    with suppress(*_SKIPPED):
        found = [name for name in catalog.store.list_folders("") if TABLE_NAME.fullmatch(name)]
        return found if len(found) <= TABLES_MAX else []
    return []


def _looked_up(handle: TableHandle) -> _Log | None:
    with suppress(*_SKIPPED):  # whoever asks for the table gets the error
        return _Log(handle)
    return None


def _followed(log: _Log) -> Sequence[CommitActions] | None:
    with suppress(*_SKIPPED):
        return log.follow()
    return None


class LakeCut:
    """The tables of a lake as they are when this is made; `names` are those that will be needed first.

    Of logs of streams, it has those among `names`.

    Costs one LIST, and for each table one GET, with one LIST more if this process does not know it. Tables of rejected
    events are left out, and what this process may not list or read. A lake of more than `TABLES_MAX` tables counts as
    one without any.
    """

    def __init__(self, catalog: WritableCatalog, names: Iterable[str]) -> None:
        self._clock: Clock = catalog.clock
        self._began_ms = catalog.clock.now_ms()
        self._verdicts: dict[str, bool] = {}
        first = list(names)
        for name in first:
            with suppress(TableNotFound):
                catalog.log_handle(name).at_hand()
        all_names = [*_tables(catalog), *(name for name in first if name.startswith(STREAMS))]
        looked = catalog.store.map(_looked_up, map(catalog.log_handle, all_names))
        self._logs = {log.handle.name: log for log in looked if log is not None and log.version != _NONE}
        behind = list(self._logs.values())
        while behind:
            met = catalog.store.map(_followed, behind)
            for log, commits in zip(behind, met, strict=True):
                if commits is None:
                    del self._logs[log.handle.name]
            claims = [at for commits in met for each in carried_out(commits or ()).values() for at in each.items()]
            short = {name for name, at in claims if name in self._logs and self._logs[name].version < at}
            behind = [self._logs[name] for name in sorted(short)]

    def __contains__(self, name: str) -> bool:
        return name in self._logs

    def table(self, name: str) -> tuple[State, Sequence[Claim]]:
        """Return a table's state in its log, and the claims there that count as carried out.

        Raises `TransactionExpired` an hour after the look.
        """
        check_age(self._clock, self._began_ms)
        log = self._logs[name]
        state = log.opened()
        return state, [claim for claim in pending(state.domains) if self._happened(claim, log)]

    def _happened(self, claim: Claim, log: _Log) -> bool:
        """Whether a claim's transaction counts. What was said of it once stays so, whatever is decided afterwards."""
        found = self._verdicts.get(claim.transaction_id)
        if found is None:
            claims = self._decided(claim, log)
            reached = {name: at for name, at in claims.items() if name in self._logs}
            found = bool(claims) and all(at <= self._logs[name].version for name, at in reached.items())
            self._verdicts[claim.transaction_id] = found
        return found

    def _decided(self, claim: Claim, log: _Log) -> Mapping[str, int]:
        """Return the versions of a transaction's claims; none if it has not been decided that it happens."""
        decision = Decisions.about(log.handle.log, claim).read(claim)
        if decision is None and self._clock.now_ms() - claim.started_ms > COMMIT_AGE_MS_MAX:
            # A decision is deleted when all claims have been carried out, which the log then says.
            return carried_out(log.handle.log.following(log.version)).get(claim.transaction_id, {})
        return {} if decision is None else decision.claims
