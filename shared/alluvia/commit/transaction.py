"""A transaction on one table: commits by conditional write, and rebases over commits that won the race."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from alluvia.commit.changes import Changes, encode, prepare
from alluvia.commit.commit_records import Decisions
from alluvia.commit.conflicts import Attempt, find_conflict, moved_reads, without_undone_moves
from alluvia.commit.intents import TRANSACTION, Claim, claim_of, pending
from alluvia.commit.reads import READS_INFO
from alluvia.delta.log.actions import AddFile, DomainMetadata
from alluvia.delta.log.commit import EVENTS_INFO, CommitActions
from alluvia.delta.log.features import GUARD
from alluvia.delta.log.log import FOLLOW_AGE_MS_MAX, Log
from alluvia.delta.log.replay import State
from alluvia.delta.properties import WRITERS
from alluvia.delta.protocols import check_writable, has_domains
from alluvia.errors import CommitUnknown, ConcurrentDomain, TransactionExpired, Unavailable, Unsupported
from alluvia.lazy_dataclasses import dataclass

NEVER_MS = 1 << 62
TRANSACTION_AGE_MS_MAX = 60 * 60 * 1000
FILE_AGE_MS_MAX = 12 * 60 * 60 * 1000
"""Files older than this are not committed by a transaction that began after them: vacuum may come for them in a day."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A commit that happened. `rows` counts those in the files that it added, None where nobody asks."""

    version: int
    timestamp_ms: int
    rows: int | None = None
    files: int = 0


OnLost = Callable[[Sequence[CommitActions]], Changes | None]


class Transaction:
    """One attempt to change a table, from the state that it was planned on.

    Raises `Unsupported` for a table that this library must not write.
    `held` are the ids of transactions over several tables that the state holds before its log does.

    The log's lock keeps the threads that share it apart while they commit; other processes need none.
    """

    def __init__(
        self,
        log: Log,
        base: State,
        age_ms_max: int = TRANSACTION_AGE_MS_MAX,
        held: frozenset[str] = frozenset(),
    ) -> None:
        check_writable(base.protocol, base.metadata)
        self._held = held
        self._log = log
        self._base = base
        self._started_ms = log.clock.now_ms()
        self._age_ms_max = age_ms_max
        self._txn_id = log.clock.new_id()
        self._carries_out = False
        self._moved: frozenset[str] = frozenset()

    def commit(self, changes: Changes, on_lost: OnLost | None = None, *, backs_off: bool = True) -> Commit | None:
        """Commit the changes at the next free version.

        After a lost race each winner goes through the conflict rules, then `on_lost` sees the winners and returns the
        changes to go on with, or None to give up without a commit (then this returns None). It waits between the tries,
        so that other writers get their turn, unless not `backs_off`: then the caller commits for them, too. Raises a
        `Conflict`, `CommitUnknown`, `Unavailable`, or `Unsupported` where a winner made the table one we cannot write.
        """
        with self._log.lock:
            return self._commit(changes, on_lost, backs_off=backs_off)

    def claim(
        self,
        changes: Changes,
        on_lost: OnLost | None,
        transaction_id: str,
        tables: Sequence[str],
        table: str,
        started_ms: int,
    ) -> Commit:
        """Commit a claim for the changes, which are one table's part of a transaction over all of `tables`.

        `started_ms` is when the transaction began, the same for all tables.
        From then on until the transaction is decided, the table takes no other commit, unless both only append. The
        claim of a table that is to be created starts its log, as that of a table that was dropped. Raises what `commit`
        raises, and `Unsupported` for a table whose other writers would not see the claim.
        """
        _check_claimable(self._base, changes, table)

        def claiming(commit: CommitActions) -> CommitActions:
            blind = changes.only_appends and not changes.txns and EVENTS_INFO.isdisjoint(changes.info)
            claim = claim_of(transaction_id, tables, started_ms, table, commit, only_appends=blind)
            info: dict[str, Any] = {"operation": "CLAIM", "operationParameters": {"transaction": transaction_id}}
            info |= {"isBlindAppend": False, "operationMetrics": {}}
            kept = {name: value for name, value in commit.info.items() if name not in {*EVENTS_INFO, READS_INFO}}
            begins = commit.version == 0
            return CommitActions(
                commit.version,
                kept | info,
                self._base.protocol if begins else None,
                self._base.metadata if begins else None,
                domains=[claim.placed()],
            )

        with self._log.lock:
            commit = self._commit(changes, on_lost, claiming)
        assert commit is not None  # noqa: S101 - no on_lost callback gives up here
        return commit

    def carry_out(self, claim: Claim, claims: Mapping[str, int]) -> None:
        """Commit what was claimed, in place of the claim."""
        intended = claim.intended(self._base.version + 1)
        made = ("operation", "operationParameters", "operationMetrics")
        operation, parameters, metrics = (intended.info.get(name) for name in made)
        self._carries_out = True
        info = {
            name: intended.info[name] for name in (*EVENTS_INFO, READS_INFO, "isBlindAppend") if name in intended.info
        }
        self._commit(
            Changes(
                str(operation),
                parameters or {},
                intended.adds,
                intended.removes,
                intended.metadata,
                intended.protocol,
                intended.txns,
                [*(domain for domain in intended.domains if domain.domain != claim.domain), claim.lifted()],
                {**info, TRANSACTION: {"id": claim.transaction_id, "claims": dict(claims)}},
                cdc=intended.cdc,
                metrics={name: int(number) for name, number in (metrics or {}).items()},
            ),
            None,
        )

    def _commit(
        self,
        changes: Changes,
        on_lost: OnLost | None,
        claiming: Callable[[CommitActions], CommitActions] | None = None,
        *,
        backs_off: bool = True,
    ) -> Commit | None:
        state, losses, others = self._base, 0, 0
        clock, backoff = self._log.clock, self._log.backoff
        pause = backoff.before_commit(clock.now_ms(), clock.uniform()) if backs_off else 0.0
        if pause:
            clock.sleep(pause)
        known = self._committed_since(state.version)
        while True:
            if known:
                state = self._follow(known, changes)
                rebased = changes if on_lost is None else on_lost(known)
                if rebased is None:
                    return None
                changes = rebased
            self._check_age()
            if state.version >= 0 and self._log.stale and (known := self._looked_again(state.version)):
                continue
            if state is not self._base:
                check_writable(state.protocol, state.metadata)
            lifted = self._settle_claims(state, changes)
            if lifted is None:
                known = self._committed_since(state.version)
                continue
            # While a claim that changes metadata stands, no other commit comes between.
            takes_effect, with_reads = state.version + (1 if claiming is None else 2), self._log.store.is_branch
            commit = prepare(changes, state, self._txn_id, clock.now_ms(), takes_effect, with_reads=with_reads)
            commit = commit if claiming is None else claiming(commit)
            if commit.domains or lifted:
                domains = {domain.domain: domain for domain in (*commit.domains, *lifted)}
                commit = replace(commit, domains=list(domains.values()))
            began_ms, data = self._log.clock.now_ms(), encode(commit)
            winner = self._log.write(commit.version, data, self._txn_id)
            if winner is None:
                if claiming is None and not self._carries_out:  # else the decision counts
                    self._log.store.check_lasts()
                if self._slept(commit.version):
                    self._log.confirm(commit.version, data)
                newest = self._log.advance([commit], began_ms)
                backoff.committed(others, began_ms, clock.now_ms())
                if claiming is None:  # upkeep would wait for the decision, which comes after all claims
                    self._log.committed(newest, 2 if self._carries_out else 1)
                rows = sum(file.num_records or 0 for file in changes.adds)
                return Commit(commit.version, commit.timestamp_ms, rows, len(changes.adds))
            losses += 1
            if backs_off:
                clock.sleep(backoff.after_loss(losses, clock.uniform()))
            known = self._catch_up(winner, began_ms, further=backs_off or losses > 1)
            others += len(known)

    def _settle_claims(self, state: State, changes: Changes) -> list[DomainMetadata] | None:
        """Have each transaction decided that claims the table, unless it conflicts with none of the changes.

        Returns what lifts the claims of those that were aborted; None where one had happened, which was carried out.
        """
        lifted: list[DomainMetadata] = []
        if self._carries_out:  # its own claim has kept all others away, or both only append
            return lifted
        for claim in pending(state.domains):
            if claim.only_appends and changes.only_appends:
                continue
            try:
                decision = Decisions.about(self._log, claim).settle(claim)
                if decision.committed:
                    carry_out_claim(self._log, claim, decision.claims)
                    return None
            except CommitUnknown as error:  # of theirs: nothing of this transaction was written
                raise Unavailable(f"another transaction holds table {claim.table}: {error}") from error
            lifted.append(claim.lifted())
        return lifted

    def _looked_again(self, version: int) -> list[CommitActions]:
        """Open the log again, since clean-up may have deleted what comes after the current version.

        Only within the log's shortest retention of a look may the version after it be written. Raises
        `TransactionExpired` where it has.
        """
        newest = self._log.open()
        try:
            return self._log.read_commits(range(version + 1, newest.version + 1))
        except Unavailable as error:
            if self._log.read_commit(version + 1) is not None:
                raise
            raise TransactionExpired(f"the commits after version {version} were cleaned up: start again") from error

    def _committed_since(self, version: int) -> list[CommitActions]:
        """Return what this process already knows to have won, so that no race is lost in vain."""
        newest = self._log.state
        if newest is None or newest.version <= version:
            return []
        known = self._log.since(version)
        return self._log.read_commits(range(version + 1, newest.version + 1)) if known is None else known

    def check(self, winners: Sequence[CommitActions], changes: Changes) -> frozenset[str]:
        """Raise a `Conflict` if commits that came first change what some changes rest on.

        Returns the files that hold now what was read.
        """
        attempt = Attempt(
            metadata_read=self._base.metadata,
            adds=changes.adds,
            removes=changes.removes,
            metadata=changes.metadata,
            protocol=changes.protocol,
            domains=changes.domains,
            can_match=changes.can_match,
            files_read=changes.files_read | self._moved,
            app_ids=frozenset(txn.app_id for txn in changes.txns),
            domains_read=changes.domains_read,
        )
        for winner in without_undone_moves(winners):
            if winner.info.get(TRANSACTION, {}).get("id") in self._held:
                continue
            conflict = find_conflict(attempt, winner)
            if conflict is not None:
                raise conflict
            self._moved = moved_reads(attempt.files_read, winner)
            attempt = replace(attempt, files_read=self._moved)
        return attempt.files_read

    def _follow(self, winners: Sequence[CommitActions], changes: Changes) -> State:
        self.check(winners, changes)
        newest = self._log.state
        if newest is None or newest.version != winners[-1].version:
            raise Unavailable("the table's log moved on while this transaction read it: try again")
        return newest

    def _catch_up(self, winner: CommitActions, began_ms: int, *, further: bool) -> list[CommitActions]:
        """Read on from the winner to the tip, so that the next attempt does not lose one race a version.

        Without `further` it reads no more than the winner, and the next attempt is the version after it. That is worth
        one attempt: a writer that is several versions behind would lose to writers that know the newest.
        """
        winners = [winner, *(self._log.following(winner.version) if further else ())]
        self._log.advance(winners, began_ms)
        return winners

    def _slept(self, version: int) -> bool:
        """Whether a version may have come and gone before it was written. Of a new log nothing was seen before."""
        return self._log.stale if version else self._log.clock.now_ms() - self._started_ms > FOLLOW_AGE_MS_MAX

    def _check_age(self) -> None:
        if self._log.clock.now_ms() - self._started_ms > self._age_ms_max:
            msg = f"the transaction is older than {self._age_ms_max // 60_000} minutes: start it again"
            raise TransactionExpired(msg)


def _check_claimable(state: State, changes: Changes, table: str) -> None:
    """Raise `Unsupported` for a table that cannot take part in a transaction with others."""
    if not has_domains(state.protocol):
        raise Unsupported(
            f"table {table} cannot take part in a transaction with other tables: create it with the property "
            f"{WRITERS} = 'alluvia', so that its log can hold the transaction's claim"
        )
    if GUARD not in (state.protocol.writer_features or ()) and not changes.only_appends:
        raise Unsupported(
            f"table {table} may be written by other libraries, which do not see claims: in a transaction with other "
            "tables it can only be appended to"
        )


def carry_out_claim(log: Log, claim: Claim, claims: Mapping[str, int]) -> None:
    """Commit one table's part of a transaction that has happened, unless somebody has; `claims` are their versions."""
    with log.lock:
        state = log.state
        while True:
            if state is None or claim.domain not in state.domains:
                state = log.refresh()
            if claim.domain not in state.domains:
                return
            try:
                Transaction(log, state, NEVER_MS).carry_out(claim, claims)
            except (ConcurrentDomain, TransactionExpired):  # another has carried it out, or the log was cleaned up
                state = None
            else:
                return


def too_old(adds: Iterable[AddFile], now_ms: int) -> bool:
    """Whether one of some files that wait to be committed is so old that vacuum may have deleted it."""
    return any(add.modification_time < now_ms - FILE_AGE_MS_MAX for add in adds)
