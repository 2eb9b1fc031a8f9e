"""The transactions over several tables of a run, and what must hold of each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from tests.simulation.intents import Intent, Rows
from tests.simulation.model import TableModel, Version
from tests.simulation.scheduler import Violation

DECISIONS = "bank/_alluvia/transactions/"
HALF_A_DAY_MS = 12 * 3_600_000


@dataclass(eq=False)
class Together:
    """What a transaction does to each table, and the versions in which that was carried out."""

    intents: Mapping[str, Intent]
    amounts: Mapping[str, int] = field(default_factory=dict)
    flag: bool = False
    transaction_id: str | None = None
    started_ms: int = 0
    carried_out: dict[str, int] = field(default_factory=dict)

    def check(self, table: TableModel, before: Version, after: Version, removed: Rows, added: Rows) -> None:
        """Take a claim: it changes no row."""
        if removed or added or after.operation != "CLAIM":
            raise Violation("a claim changes no row", f"{after.operation} {table.root} {after.number}")


class Ledger:
    """All transactions of a run, by id, and what must hold of each."""

    def __init__(self, totals: dict[str, int]) -> None:
        self.known: dict[str, Together] = {}
        self.objects: Mapping[str, tuple[bytes, int]] = {}
        self._totals = totals

    def claimed(self, transaction_id: str, together: Together, started_ms: int) -> None:
        """Note whose claim it is."""
        together.transaction_id, together.started_ms = transaction_id, started_ms
        self.known[transaction_id] = together

    def decided(self, transaction_id: str) -> str | None:
        """Return what was decided about a transaction; what was decided too late is an abort."""
        data, at_us = self.objects.get(f"{DECISIONS}{transaction_id}.json", (None, 0))
        if data is None:
            return None
        late = at_us // 1000 > self.known[transaction_id].started_ms + HALF_A_DAY_MS
        return "abort" if late else str(json.loads(data)["decision"])

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
            there = {root for root in together.intents if root in together.carried_out}
            decided = self.decided(transaction_id)  # nothing any more where vacuum has been
            if len(there) not in (0, len(together.intents)) or (decided and bool(there) != (decided == "commit")):
                raise Violation("a transaction is all or nothing", f"{transaction_id}: {decided}, and in {there}")
            if there and id(together) in failed:
                raise Violation("an operation that failed changes nothing", transaction_id)
