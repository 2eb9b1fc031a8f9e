"""Clean up the decisions of transactions over several tables, once nobody can ask for them any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from alluvia.errors import TableNotFound
from alluvia.store import ObjectInfo
from alluvia.table.claims import pending
from alluvia.table.decisions import DECISIONS, Decisions, read_decision
from alluvia.table.handle import TableHandle
from alluvia.table.keepers import keepers_of
from alluvia.table.transaction import carry_out_claim

DECISION_AGE_MS_MIN = 48 * 60 * 60 * 1000
"""A decision is kept so long: what is decided later than half a day after its transaction began counts as an abort."""


def delete_old_decisions(handle: TableHandle, listed: Sequence[ObjectInfo]) -> int:
    """Delete those of a table's decisions, listed by their keys below its root, that are two days old.

    Returns how many. What was decided is carried out first, wherever nobody has. For old decisions a GET each, and the
    opening of the tables that they are about, and two LISTs. Those from before a moment at which the lake is kept stay:
    a claim that stood in a table at that moment is understood by them.
    """
    before_ms = handle.clock.now_ms() - DECISION_AGE_MS_MIN
    folder = handle.root + DECISIONS
    aged = {handle.root + info.key: info.modified_ms for info in listed if info.modified_ms < before_ms}
    old = _unkept(handle, aged) if aged else []
    if not old:
        return 0
    lake = handle.root[: -len(handle.name) - 1]
    decisions = handle.store.map(partial(read_decision, handle.store), old)
    names = {name for decision in decisions for name in decision.claims}
    for name in sorted(names):
        other = TableHandle(handle.store, f"{lake}{name}/", name, handle.clock)
        with suppress(TableNotFound):  # then nothing of it is left to be changed
            _carry_out(other, {key[len(folder) :].removesuffix(".json") for key in old})
    old = _unkept(handle, {key: aged[key] for key in old})
    handle.store.delete(old)
    return len(old)


def _unkept(handle: TableHandle, decided_ms: Mapping[str, int]) -> list[str]:
    """Return the decisions that were taken after all moments at which the lake is kept."""
    kept = keepers_of(handle.store, handle.root, handle.name)
    moments = [each.moment for each in kept.live(handle.clock.now_ms()) if each.table is None]
    return [key for key, ms in decided_ms.items() if ms > max(moments, default=-1)]


def _carry_out(handle: TableHandle, transaction_ids: set[str]) -> None:
    for claim in pending(handle.log.refresh().domains):
        if claim.transaction_id in transaction_ids:
            decision = Decisions.about(handle.log, claim).read(claim)
            if decision is not None and decision.committed:
                carry_out_claim(handle.log, claim, decision.claims)
