"""Clean up the decisions of transactions over several tables, once nobody can ask for them any more."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from alluvia.errors import TableNotFound
from alluvia.store import ObjectInfo
from alluvia.table.claims import pending
from alluvia.table.decisions import DECISIONS, Decisions, read_decision
from alluvia.table.handle import TableHandle
from alluvia.table.transaction import carry_out_claim

DECISION_AGE_MS_MIN = 48 * 60 * 60 * 1000
"""A decision is kept so long: what is decided later than half a day after its transaction began counts as an abort."""


def delete_old_decisions(handle: TableHandle, listed: Sequence[ObjectInfo]) -> int:
    """Delete those of a table's decisions, listed by their keys below its root, that are two days old.

    Returns how many. What was decided is carried out first, wherever nobody has. For old decisions a GET each, and the
    opening of the tables that they are about.
    """
    before_ms = handle.clock.now_ms() - DECISION_AGE_MS_MIN
    folder = handle.root + DECISIONS
    old = [handle.root + info.key for info in listed if info.modified_ms < before_ms]
    lake = handle.root[: -len(handle.name) - 1]
    decisions = handle.store.map(partial(read_decision, handle.store), old)
    names = {name for decision in decisions for name in decision.claims}
    for name in sorted(names):
        other = TableHandle(handle.store, f"{lake}{name}/", name, handle.clock)
        with suppress(TableNotFound):  # then nothing of it is left to be changed
            _carry_out(other, {key[len(folder) :].removesuffix(".json") for key in old})
    handle.store.delete(old)
    return len(old)


def _carry_out(handle: TableHandle, transaction_ids: set[str]) -> None:
    for claim in pending(handle.log.refresh().domains):
        if claim.transaction_id in transaction_ids:
            decision = Decisions.about(handle.log, claim).read(claim)
            if decision is not None and decision.committed:
                carry_out_claim(handle.log, claim, decision.claims)
