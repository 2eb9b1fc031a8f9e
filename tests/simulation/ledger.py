"""The transactions over several tables of a run, and what must hold of each."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.simulation.intents import Intent, Rows
from tests.simulation.model import Row, TableModel, Version
from tests.simulation.scheduler import Violation

DECISIONS = "/_alluvia/transactions/"
CLAIM = "alluvia.claim."
HALF_A_DAY_MS = 12 * 3_600_000
Actions = Sequence[Mapping[str, Any]]


@dataclass(frozen=True)
class Read:
    """Rows that a transaction has read: all of a table, by its key, that match."""

    root: str
    matches: Callable[[Mapping[str, object]], bool]
    rows: Rows

    def still(self, table: TableModel) -> bool:
        """Whether they are what the table holds."""
        return self.rows == found(table.tip.columns, table.tip.rows.elements(), self.matches)


class ReadOnly:
    """What an actor is about that only reads: it writes nothing."""


def found(columns: Sequence[str], rows: Iterable[Row], matches: Callable[[Mapping[str, object]], bool]) -> Rows:
    """Return the ids and amounts of the rows that match."""
    named = (dict(zip(columns, row, strict=True)) for row in rows)
    return Counter((row["id"], row["amount"]) for row in named if matches(row))


@dataclass(eq=False)
class Together:
    """What a transaction does to each table, and the versions in which that was carried out."""

    intents: Mapping[str, Intent]
    amounts: Mapping[str, int] = field(default_factory=dict)
    flag: bool = False
    transaction_id: str | None = None
    started_ms: int = 0
    claimed: dict[str, int] = field(default_factory=dict)
    carried_out: dict[str, int] = field(default_factory=dict)
    reads: list[Read] = field(default_factory=list)

    def precedes(self, other: Together) -> bool:
        """Whether another has claimed a table after this was carried out there."""
        return any(at < other.claimed.get(root, 0) for root, at in self.carried_out.items())

    def check(self, table: TableModel, before: Version, after: Version, removed: Rows, added: Rows) -> None:
        """Take a claim: it changes no row."""
        if removed or added or after.operation != "CLAIM":
            raise Violation("a claim changes no row", f"{after.operation} {table.root} {after.number}")
        self.claimed[table.root] = after.number


class Ledger:
    """All transactions of a run, by id, and what must hold of each."""

    def __init__(self, totals: dict[str, int]) -> None:
        self.known: dict[str, Together] = {}
        self._totals = totals
        self._fates: dict[str, str] = {}
        self._decided_us: dict[str, int] = {}
        self._standing: dict[str, dict[str, bool]] = {}
        self._stood: dict[tuple[str, int], dict[str, bool]] = {}
        self._inherited: frozenset[str] = frozenset()

    def claimed(self, transaction_id: str, together: Together, started_ms: int) -> None:
        """Note whose claim it is."""
        together.transaction_id, together.started_ms = transaction_id, started_ms
        self.known[transaction_id] = together

    def decide(self, key: str, data: bytes, now_us: int, tables: Mapping[str, TableModel]) -> None:
        """Take a decision, if it is one. What comes too late is an abort; what stands when it comes was read so."""
        if DECISIONS not in key:
            return
        transaction_id = key.partition(DECISIONS)[2].removesuffix(".json")
        together = self.known.get(transaction_id)
        if together is None:  # its first claim failed
            return
        late = now_us // 1000 > together.started_ms + HALF_A_DAY_MS
        fate = "abort" if late else str(json.loads(data)["decision"])
        self._decided_us.setdefault(transaction_id, now_us)
        if self._fates.setdefault(transaction_id, fate) != fate:
            raise Violation("a transaction is decided once", f"{transaction_id}: {fate}")
        if fate == "commit":
            for read in together.reads:
                if not read.still(tables[read.root]):
                    raise Violation("what was read is so when it is decided", f"{transaction_id} in {read.root}")

    def decided(self, transaction_id: str) -> str | None:
        """Return what was decided about a transaction."""
        return self._fates.get(transaction_id)

    def standing(self, root: str, version: int) -> frozenset[str]:
        """Return the transactions that claimed a table in a version, and were not carried out there."""
        return frozenset(self._stood.get((root, version), ()))

    def fork(self, totals: dict[str, int], happened: Callable[[int], bool]) -> Ledger:
        """Return what a branch knows of the transactions: also the decisions of moments that it shows."""
        forked = Ledger(totals)
        forked.known = {
            name: Together(each.intents, each.amounts, each.flag, name, each.started_ms, reads=each.reads)
            for name, each in self.known.items()
        }
        forked._decided_us = {name: at_us for name, at_us in self._decided_us.items() if happened(at_us)}
        forked._fates = {name: self._fates[name] for name in forked._decided_us}
        forked._inherited = frozenset(forked.known)
        return forked

    def was_inherited(self, root: str, version: int) -> bool:
        """Whether a version of a table carries out what had happened when the branch was cut."""
        return any(self.known[name].carried_out.get(root) == version for name in self._inherited)

    def follow(self, other: Ledger, root: str, version: int) -> None:
        """Take a version of a table as another ledger has it."""
        self._standing[root] = dict(other._stood.get((root, version), {}))
        for name in self._inherited:
            if (at := other.known[name].carried_out.get(root, version + 1)) <= version:
                self.known[name].carried_out[root] = at

    def pass_claims(self, root: str, number: int, actions: Actions) -> None:
        """Take a commit: it comes while another's claim stands only if both append, or if that was aborted."""
        info: Mapping[str, Any] = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
        domains = [each["domainMetadata"] for each in actions if "domainMetadata" in each]
        claims = {each["domain"].removeprefix(CLAIM): each for each in domains if each["domain"].startswith(CLAIM)}
        placed = {name: _claimed(each) for name, each in claims.items() if not each.get("removed")}
        own = info.get("alluviaTransaction", {}).get("id")
        standing = self._standing.setdefault(root, {})
        carried_out = standing.pop(own, None)
        lifted = [name for name in claims if name not in placed and name != own]
        appends = carried_out if carried_out is not None else all([*placed.values()] or [_only_appends(actions)])
        for name, also_appends in standing.items():
            aborted = self.decided(name) == "abort"
            if name in lifted and not aborted:
                raise Violation("only the claims of what was aborted are lifted", f"{name} in {root}")
            if not aborted and not (also_appends and appends):
                raise Violation("a claim keeps others out", f"{name} in {root}: {info.get('operation')}")
        for name in lifted:
            standing.pop(name, None)
        standing.update(placed)
        if standing:
            self._stood[root, number] = dict(standing)

    def carry_out(
        self, transaction_id: str, table: TableModel, before: Version, after: Version, removed: Rows, added: Rows
    ) -> None:
        """Take what carries a claim out."""
        together = self.known[transaction_id]
        where = f"{transaction_id} in {table.root} {after.number}"
        if self.decided(transaction_id) != "commit":
            raise Violation("only what was decided is carried out", where)
        if table.root in together.carried_out:
            raise Violation("a transaction happens once", f"{where} and {together.carried_out[table.root]}")
        together.carried_out[table.root] = after.number
        together.intents[table.root].check(table, before, after, removed, added)
        if table.root in self._totals:
            self._totals[table.root] += together.amounts.get(table.root, 0)

    def check_all_or_nothing(self, failed: set[int]) -> None:
        """Check every transaction, when all that was decided has been carried out."""
        for transaction_id, together in self.known.items():
            if transaction_id in self._inherited:
                continue
            there = {root for root in together.intents if root in together.carried_out}
            decided = self.decided(transaction_id)  # nothing any more where vacuum has been
            if len(there) not in (0, len(together.intents)) or (decided and bool(there) != (decided == "commit")):
                raise Violation("a transaction is all or nothing", f"{transaction_id}: {decided}, and in {there}")
            if there and id(together) in failed:
                raise Violation("an operation that failed changes nothing", transaction_id)


def _claimed(domain: Mapping[str, Any]) -> bool:
    """Whether what a claim wants to commit only appends."""
    return _only_appends([json.loads(line) for line in json.loads(domain["configuration"])["commit"].splitlines()])


def _only_appends(actions: Actions) -> bool:
    """Whether a commit adds rows, whatever the table holds, and does nothing else."""
    kinds = {kind for action in actions for kind in action} - {"commitInfo", "txn"}
    lifts = all(each["domainMetadata"].get("removed") for each in actions if "domainMetadata" in each)
    info: Mapping[str, Any] = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
    return bool(info.get("isBlindAppend")) and lifts and kinds - {"domainMetadata"} == {"add"}
