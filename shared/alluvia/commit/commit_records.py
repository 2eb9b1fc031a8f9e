"""Decisions: whether a transaction over several tables has happened. I/O.

One object per transaction, written once with put-if-absent: `commit` by the transaction's owner alone, `abort` by
any writer that has waited long enough. The second writer reads the first one's decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from math import inf

import orjson

from alluvia.clock import Clock
from alluvia.commit.intents import Claim, TableAt, pending
from alluvia.delta.log.committer import put_once
from alluvia.delta.log.log import Log
from alluvia.delta.log.replay import State
from alluvia.errors import Corrupt, ObjectNotFound, Unsupported
from alluvia.lazy_dataclasses import dataclass
from alluvia.store import Store

DECISIONS = "_alluvia/transactions/"
"""Start of the keys of decisions, from the root of the first of a transaction's tables."""
POLLS = 6
FIRST_PAUSE_SECONDS = 0.05
"""Between looks for a decision, doubled each time: who waits gives a transaction up after about three seconds."""
PATIENT_TABLES = 20
"""A transaction over more tables than this gets as much more time, since it claims one after another."""
COMMIT_AGE_MS_MAX = 12 * 60 * 60 * 1000
"""A commit that was decided later after the transaction's start than this, by the store's clock, counts as an abort:
its owner slept, and an earlier abort may have been cleaned up."""


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome of a transaction. `claims` are the versions of its claims, by table; empty for an abort.

    `decided_ms` is when the store took it, by its own clock, where a caller has asked.
    """

    committed: bool
    claims: Mapping[str, int] = field(default_factory=dict)
    decided_ms: int = 0


ABORTED = Decision(committed=False)


class Decisions:
    """The decisions on transactions over the same tables: `table`, which is at `root`, is one of them."""

    def __init__(self, store: Store, clock: Clock, root: str, table: str, tables: Sequence[str]) -> None:
        if root != f"{table}/" and not root.endswith(f"/{table}/"):
            raise Unsupported(
                f"a transaction of its lake is changing table {table}: open the table with connect(), not by its path"
            )
        self._store = store
        self._clock = clock
        self._folder = f"{root[: -len(table) - 1]}{min(tables)}/{DECISIONS}"

    @classmethod
    def about(cls, log: Log, claim: Claim) -> Decisions:
        """Return the decisions that a claim in a table's log waits for."""
        return cls(log.store, log.clock, log.root, claim.table, claim.tables)

    def read(self, claim: Claim) -> Decision | None:
        """Return what was decided about a claim's transaction, None for nothing so far."""
        decision = self._read(claim.transaction_id)
        if decision is None or not decision.committed:
            return decision
        info = self._store.head(self._key(claim.transaction_id))
        if info is None:  # deleted just now: it has been carried out
            return None
        in_time = info.modified_ms <= claim.started_ms + COMMIT_AGE_MS_MAX
        return replace(decision, decided_ms=info.modified_ms) if in_time else ABORTED

    def settle(self, claim: Claim) -> Decision:
        """Return what was decided. If nothing is for a few seconds, abort the transaction."""
        patience = max(1.0, len(claim.tables) / PATIENT_TABLES)
        for poll in range(POLLS):
            decision = self.read(claim)
            if decision is not None:
                return decision
            self._clock.sleep(FIRST_PAUSE_SECONDS * patience * 2**poll * (0.5 + self._clock.uniform()))
        self.abort(claim.transaction_id)
        return self.read(claim) or ABORTED

    def commit(self, transaction_id: str, claims: Mapping[str, int]) -> bool:
        """Decide that a transaction of this caller has happened; False if another has aborted it."""
        return self._decide(transaction_id, Decision(committed=True, claims=claims)) is None

    def abort(self, transaction_id: str) -> None:
        """Decide that a transaction has not happened, unless it has."""
        self._decide(transaction_id, ABORTED)

    def _decide(self, transaction_id: str, wanted: Decision) -> Decision | None:
        body = {"decision": "commit" if wanted.committed else "abort", "claims": dict(wanted.claims)}
        return put_once(
            self._store,
            self._clock,
            self._key(transaction_id),
            orjson.dumps(body),
            what=f"the decision on transaction {transaction_id}",
            read=lambda: self._read(transaction_id),
            is_ours=lambda stored: stored == wanted,
        )

    def _read(self, transaction_id: str) -> Decision | None:
        try:
            return read_decision(self._store, self._key(transaction_id))
        except ObjectNotFound:
            return None

    def _key(self, transaction_id: str) -> str:
        return f"{self._folder}{transaction_id}.json"


def committed(log: Log, claims: Iterable[Claim], by_ms: float = inf) -> dict[str, Decision]:
    """Return what was decided, by transaction, about those of some claims whose transactions have happened.

    With `by_ms`, by that moment of the store's clock. One GET for each claim, and one HEAD for each that was decided.
    """
    decisions = {claim.transaction_id: Decisions.about(log, claim).read(claim) for claim in claims}
    in_time = {one: each for one, each in decisions.items() if each is not None and each.decided_ms <= by_ms}
    return {one: each for one, each in in_time.items() if each.committed}


def table_at(log: Log, state: State, by_ms: float = inf) -> TableAt:
    """Return a state of a table with the transactions that have happened, but are not carried out (`committed`)."""
    standing = pending(state.domains)
    decisions = committed(log, standing, by_ms)
    return TableAt(state, [claim for claim in standing if claim.transaction_id in decisions])


def read_decision(store: Store, key: str) -> Decision:
    """Read a decision. Raises `ObjectNotFound` or `Corrupt`."""
    try:
        body = orjson.loads(store.get(key))
        claims = {str(table): int(version) for table, version in body["claims"].items()}
        return Decision(body["decision"] == "commit", claims)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Corrupt(f"{key} is not a decision of this library") from error
