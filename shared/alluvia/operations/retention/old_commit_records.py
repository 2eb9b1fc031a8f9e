"""Clean up the decisions of transactions over several tables that no reader or writer can need any more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from alluvia.commit.commit_records import DECISIONS, Decision, Decisions, read_decision
from alluvia.commit.handle import TableHandle
from alluvia.commit.intents import pending
from alluvia.commit.transaction import carry_out_claim
from alluvia.commit.versions import oldest_readable
from alluvia.commit.warm_table import WarmTable
from alluvia.delta.refs import keepers_of, kept_version
from alluvia.errors import Corrupt, TableNotFound, Unavailable, VersionExpired, VersionNotFound
from alluvia.store import ObjectInfo

DECISION_AGE_MS_MIN = 48 * 60 * 60 * 1000
"""How long a decision is kept. One made later than half a day after its transaction began counts as an abort."""


def delete_old_decisions(handle: TableHandle, listed: Sequence[ObjectInfo]) -> int:
    """Delete those of a table's decisions, listed by their keys below its root, that are two days old.

    Returns how many. Decisions that no writer has carried out are carried out first. For old decisions a GET each, and
    the opening of the tables that they are about, and two LISTs. Those stay by which a claim is understood that stood
    in a table at a moment at which the lake is kept: each such moment since the oldest of them costs what reading the
    tables at it does.
    """
    before_ms = handle.clock.now_ms() - DECISION_AGE_MS_MIN
    folder = handle.root + DECISIONS
    aged = {handle.root + info.key: info.modified_ms for info in listed if info.modified_ms < before_ms}
    if not aged:
        return 0
    keys = sorted(aged)
    decisions = dict(zip(keys, handle.store.map(partial(read_decision, handle.store), keys), strict=True))
    lake = handle.root[: -len(handle.name) - 1]
    ids = {key: key[len(folder) :].removesuffix(".json") for key in keys}
    tables: dict[str, TableHandle] = {}
    for name in sorted({name for decision in decisions.values() for name in decision.claims}):
        other = WarmTable(handle.store, f"{lake}{name}/", name, handle.clock)
        with suppress(TableNotFound):  # then nothing of it is left to be changed, nor to be read
            _carry_out(other, set(ids.values()))
            tables[name] = other
    asked = _asked_for(tables, aged, {ids[key]: decision for key, decision in decisions.items()}, ids)
    old = [key for key in keys if key not in asked]
    handle.store.delete(old)
    return len(old)


def _asked_for(
    tables: Mapping[str, TableHandle],
    decided_ms: Mapping[str, int],
    decisions: Mapping[str, Decision],
    ids: Mapping[str, str],
) -> set[str]:
    """Return the decisions that a reader of the lake at a kept moment may ask for.

    A claim that stands in a table at a moment after its decision is understood by it. Where a version of a moment
    cannot be told or read, all decisions about the table stay that were taken before.
    """
    asked: set[str] = set()
    for name, table in tables.items():
        about = {key: ms for key, ms in decided_ms.items() if name in decisions[ids[key]].claims}
        first_ms = min(about.values(), default=0)
        kept = keepers_of(table.store, table.root, table.name)
        keepers = [each for each in kept.live(table.clock.now_ms()) if each.table is None and each.moment >= first_ms]
        if not about or not keepers:
            continue
        stored_ms = table.log.stored_ms()
        oldest = oldest_readable(table.log.refresh())
        standing: dict[int, set[str] | None] = {}
        for keeper in keepers:
            version = None if keeper.pending else kept_version(keeper, kept.pins, stored_ms, oldest)
            if version is not None and version not in standing:
                standing[version] = _standing(table, version)
            listed = None if version is None else standing[version]
            asked.update(
                key for key, ms in about.items() if ms <= keeper.moment and (listed is None or ids[key] in listed)
            )
    return asked


def _standing(table: TableHandle, version: int) -> set[str] | None:
    """Return the transactions whose claims stand in a version; None if it cannot be read."""
    try:
        with table.lock:
            state = table.log.at(version)
    except (Corrupt, VersionExpired, VersionNotFound, Unavailable):
        return None
    return {claim.transaction_id for claim in pending(state.domains)}


def _carry_out(handle: TableHandle, transaction_ids: set[str]) -> None:
    for claim in pending(handle.log.refresh().domains):
        if claim.transaction_id in transaction_ids:
            decision = Decisions.about(handle.log, claim).read(claim)
            if decision is not None and decision.committed:
                carry_out_claim(handle.log, claim, decision.claims)
