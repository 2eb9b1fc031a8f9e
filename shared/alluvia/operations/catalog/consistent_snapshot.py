"""A consistent cut: the newest versions of several tables at one moment, whatever is being committed meanwhile.

Every transaction over several tables that is in one table of the cut is in all of them (docs/TRANSACTIONS.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from alluvia.commit.commit_records import COMMIT_AGE_MS_MAX, Decision, Decisions
from alluvia.commit.handle import TableHandle
from alluvia.commit.intents import TRANSACTION, Claim, pending, with_claims
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.replay import State
from alluvia.lazy_dataclasses import dataclass


class _Seen:
    """A table as it was last looked at, and the commits met one by one since the cut began."""

    def __init__(self, handle: TableHandle) -> None:
        self.handle = handle
        self.state = handle.known_state()
        self.commits: Sequence[CommitActions] = ()
        self._known = self.state.version

    def follow(self) -> bool:
        """Look for new commits. False where the log was opened again, so that not all commits were met."""
        with self.handle.lock:
            self.state = self.handle.log.refresh()
            since = self.handle.log.since(self._known)
        if since is None:
            self._known = self.state.version
        self.commits = since or ()
        return since is not None


@dataclass(frozen=True, slots=True)
class Cut:
    """States of tables, by name, and the claims of transactions that have happened but are not carried out there.

    `versions` are those of the claims of each transaction that was met, by table.
    """

    states: Mapping[str, State]
    undone: Mapping[str, Sequence[Claim]]
    versions: Mapping[str, Mapping[str, int]]

    def state(self, table: str) -> State:
        """Return a table as it is with what has happened."""
        return with_claims(self.states[table], self.undone[table])


def take_cut(handles: Sequence[TableHandle]) -> Cut:
    """Return tables at one moment. Costs one GET for each table that is warm, and one for each claim that stands.

    Raises what opening a table raises.
    """
    seen = {handle.name: _Seen(handle) for handle in handles}
    # A transaction that any of these states holds has its claims in all logs by now: the second look meets them.
    _follow(seen.values())
    decisions: dict[str, Decision | None] = {}
    doubted: set[str] = set()
    while True:
        happened: dict[str, Mapping[str, int]] = {}
        doubtful: list[_Seen] = []
        for table in seen.values():
            happened |= carried_out(table.commits)
            for claim in pending(table.state.domains):
                if decisions.get(claim.transaction_id) is None:
                    decisions[claim.transaction_id] = Decisions.about(table.handle.log, claim).read(claim)
                decision = decisions[claim.transaction_id]
                if decision is not None and decision.committed:
                    happened[claim.transaction_id] = decision.claims
                if decision is None and claim.transaction_id not in doubted and _may_be_gone(table, claim):
                    doubted.add(claim.transaction_id)
                    doubtful.append(table)
        claims = [(seen[name], at) for each in happened.values() for name, at in each.items() if name in seen]
        behind = [*doubtful, *(table for table, version in claims if table.state.version < version)]
        if not behind:
            break
        if not all(table.follow() for table in behind):
            _follow(seen.values())
    undone = {
        name: [claim for claim in pending(table.state.domains) if claim.transaction_id in happened]
        for name, table in seen.items()
    }
    return Cut({name: table.state for name, table in seen.items()}, undone, happened)


def _may_be_gone(table: _Seen, claim: Claim) -> bool:
    """Whether a decision that is not there may have been: it is deleted when all claims have been carried out.

    If the claim still stands at another look, there was none.
    """
    return table.handle.clock.now_ms() - claim.started_ms > COMMIT_AGE_MS_MAX


def _follow(tables: Iterable[_Seen]) -> None:
    """Look for new commits of all tables, until they were met one by one in each."""
    met = [False]
    while not all(met):
        met = [table.follow() for table in tables]


def carried_out(commits: Sequence[CommitActions]) -> dict[str, Mapping[str, int]]:
    """Return the versions of the claims of the transactions that some commits carried out."""
    found = [commit.info[TRANSACTION] for commit in commits if TRANSACTION in commit.info]
    return {each["id"]: each["claims"] for each in found}
