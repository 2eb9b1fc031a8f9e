"""A table that a transaction uses first after what it has read of others was changed: as it was before that.

Two things say where that is in the table's log (docs/TRANSACTIONS.md):

- the order of transactions over several tables, which logs tell. What changed a table that was read is not in, nor is
  what follows it, by way of any tables. What is in the tables that were read is in, and all that it follows.
- between these two, the moment of the first change. The store's clock says when it took a commit; of those that it took
  in the same millisecond (or second), the writers' clocks decide.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import inf

from alluvia.clock import Clock
from alluvia.commit.commit_records import Decision, Decisions
from alluvia.commit.handle import TableHandle, expired_message, oldest_readable
from alluvia.commit.intents import Claim, pending, placed_in
from alluvia.commit.transaction import TRANSACTION_AGE_MS_MAX
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.log import Log
from alluvia.delta.log.replay import State
from alluvia.errors import TableNotFound, TransactionExpired, VersionExpired
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import WritableCatalog
from alluvia.operations.catalog.consistent_snapshot import Cut, carried_out
from alluvia.operations.transactions.staging import StagedHandle

READ_AT_ONCE = 8
Transactions = dict[str, Mapping[str, int]]
"""Versions of the claims of transactions, by table, by the transactions' ids."""


@dataclass(frozen=True, slots=True, order=True)
class _Moment:
    """When something was written: by the store's clock, then by the writer's, both in ms."""

    stored_ms: float = inf
    written_ms: float = inf


class LateTable:
    """A table, `name`, as it was when the tables `used` were last all as a transaction has them.

    `cut` is a later cut of all of these tables, `began_ms` is when the transaction began. Reads the commits since then
    of tables that have changed and, where other transactions have changed several tables, of these too; one LIST for
    each table that has changed. Raises `TransactionExpired`.
    """

    def __init__(
        self, catalog: WritableCatalog, name: str, used: Mapping[str, StagedHandle], cut: Cut, began_ms: int
    ) -> None:
        check_age(catalog.clock, began_ms)
        self._catalog = catalog
        self._handle = catalog.log_handle(name)
        self._used = used
        self._cut = cut
        self._began_ms = began_ms
        self._known: dict[str, tuple[int, Sequence[CommitActions]]] = {}
        self._standing = {
            other: {claim.transaction_id: claim for claim in pending(table.base.state.domains)}
            for other, table in used.items()
        }
        self._end = min(self._changes(), default=_Moment())
        self._after = self._with_followers(self._changed())

    def read(self) -> tuple[State, list[Claim]]:
        """Return the table's state in its log, and the claims there that count as carried out.

        Raises `TableNotFound` if it was created later.
        """
        name, newest = self._handle.name, self._cut.states[self._handle.name]
        stored = self._handle.log.stored_ms()
        start = newest.version
        while start >= 0 and stored.get(start, 0) >= self._end.stored_ms:
            start -= 1
        start = min([start, *(claims[name] for claims in self._after.values() if name in claims)])
        commits = [commit for commit in self._commits(name, start) if commit.version <= newest.version]
        done = {one: commit.version for commit in commits for one in carried_out([commit])}
        version = min([done[one] for one in self._after.keys() & done.keys()], default=newest.version + 1) - 1
        while version > start and self._is_later(commits[version - start - 1], stored):
            version -= 1
        there = self._transactions(name, commits)
        needed = {
            one: claims[name]
            for one, claims in there.items()
            if done.get(one, inf) > version and one not in self._after and self._comes_before(one, claims)
        }
        version = max([version, *needed.values()])
        if version < 0:
            raise TableNotFound(
                f"table {name!r} did not exist yet when the transaction read other tables: start the transaction again"
            )
        state = newest if version == newest.version else state_at(self._handle, version)
        held = [
            claim
            for claim in pending(state.domains)
            if claim.transaction_id in needed
            or (claim.transaction_id in there.keys() - self._after.keys() and self._was_decided(claim))
        ]
        return state, held

    def _is_later(self, commit: CommitActions, stored: Mapping[int, int]) -> bool:
        moment = _Moment(stored.get(commit.version, 0), commit.timestamp_ms)
        # An erasure writes old commits again: then their writers' clocks alone tell when they came.
        return moment > self._end and commit.timestamp_ms > self._began_ms

    def _was_decided(self, claim: Claim) -> bool:
        decision = Decisions.about(self._handle.log, claim).read(claim)
        return decision is not None and decision.committed and decision.decided_ms <= self._end.stored_ms

    def _changes(self) -> Iterator[_Moment]:
        """Yield when each table that was used has changed first."""
        for name, table in self._used.items():
            first = next(iter(self._commits(name, table.base.version)), None)
            if first is not None:
                stored_ms = table.log.stored_ms(first.version).get(first.version, self._began_ms)
                yield _Moment(stored_ms, first.timestamp_ms)
            for decision in self._decided(table.log, self._waiting(name)).values():
                yield _Moment(decision.decided_ms)

    def _waiting(self, name: str) -> list[Claim]:
        """Return the claims that stood in a table when it was read, of transactions that had not happened."""
        held = self._used[name].held
        return [claim for one, claim in self._standing[name].items() if one not in held]

    def _changed(self) -> Transactions:
        """Return the transactions that tables which were used hold now, and did not when they were read."""
        found: Transactions = {}
        for name, table in self._used.items():
            now = self._transactions(name, self._commits(name, table.base.version))
            found |= {one: claims for one, claims in now.items() if one not in table.held}
        return found

    def _transactions(self, name: str, commits: Sequence[CommitActions]) -> Transactions:
        """Return the transactions that some commits, up to those of the cut, have carried out, or still have to."""
        undone = {claim.transaction_id: self._cut.versions[claim.transaction_id] for claim in self._cut.undone[name]}
        return carried_out(commits) | undone

    def _comes_before(self, one: str, claims: Mapping[str, int]) -> bool:
        """Whether a transaction, or one that follows it, is in what was read."""
        return any(
            other in table.held or (claims[name] <= table.base.version and other not in self._standing[name])
            for other, claims in self._with_followers({one: claims}).items()
            for name, table in self._used.items()
            if name in claims
        )

    def _with_followers(self, first: Transactions) -> Transactions:
        """Return transactions with those that follow them, by way of tables that were not used."""
        found: Transactions = {}
        waiting = dict(first)
        while waiting:
            one, claims = waiting.popitem()
            found[one] = claims
            for name, claimed in claims.items():
                if name not in self._used:
                    later = self._followers(one, name, claimed)
                    waiting |= {other: theirs for other, theirs in later.items() if other not in found}
        return found

    def _followers(self, one: str, name: str, claimed: int) -> Transactions:
        """Return the transactions that have claimed a table after one was carried out there."""
        commits = self._commits(name, claimed)
        done = next((commit.version for commit in commits if one in carried_out([commit])), None)
        if done is None:
            return {}
        later = [commit for commit in commits if commit.version > done]
        lifted = {domain.domain for commit in later for domain in commit.domains if domain.removed}
        standing = [claim for commit in later for claim in placed_in(commit) if claim.domain not in lifted]
        decided = self._decided(self._catalog.log_handle(name).log, standing)
        found = {other: claims for other, claims in carried_out(later).items() if claims[name] > done}
        return found | {other: decision.claims for other, decision in decided.items()}

    def _decided(self, log: Log, claims: Sequence[Claim]) -> dict[str, Decision]:
        """Return the decisions on claims whose transactions have happened."""
        found = {claim.transaction_id: Decisions.about(log, claim).read(claim) for claim in claims}
        return {one: decision for one, decision in found.items() if decision is not None and decision.committed}

    def _commits(self, name: str, after: int) -> Sequence[CommitActions]:
        """Return the commits of a table after a version, up to its newest."""
        start, commits = self._known.get(name, (after + 1, ()))
        if start > after:
            handle = self._used[name].inner if name in self._used else self._catalog.log_handle(name)
            with handle.lock:
                if name not in self._cut.states and handle.log.state is not None:
                    handle.log.refresh()
                known = handle.log.since(after)
            commits = handle.log.following(after, READ_AT_ONCE) if known is None else known
            self._known[name] = (after, commits)
        return [commit for commit in commits if commit.version > after]


def check_age(clock: Clock, began_ms: int) -> None:
    """Raise `TransactionExpired` an hour after a transaction began."""
    if clock.now_ms() - began_ms > TRANSACTION_AGE_MS_MAX:
        raise TransactionExpired(
            f"the transaction is older than {TRANSACTION_AGE_MS_MAX // 60_000} minutes: start it again"
        )


def state_at(handle: TableHandle, version: int) -> State:
    """Return a table's state at a version. Raises `TransactionExpired` where retention or an erasure has taken it."""
    newest = handle.known_state()
    if newest.version == version:
        return newest
    try:
        oldest = oldest_readable(newest)
        if version < oldest:
            raise VersionExpired(expired_message(handle.name, version, oldest))
        with handle.lock:
            return handle.log.at(version)
    except VersionExpired as error:
        raise TransactionExpired(f"table {handle.name}: {error}: start the transaction again") from error
