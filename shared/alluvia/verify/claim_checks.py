"""Checks of claims and decisions: what transactions over several tables have left in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from alluvia.errors import Corrupt, ObjectNotFound, Unsupported
from alluvia.log.actions import AddFile, DomainMetadata
from alluvia.log.commit import CommitActions
from alluvia.store import Store
from alluvia.table.claims import CLAIM, Claim, parse_claim
from alluvia.table.decisions import DECISIONS, Decisions, read_decision
from alluvia.table.handle import TableHandle
from alluvia.table.transaction import TRANSACTION_AGE_MS_MAX
from alluvia.verify.objects import Objects
from alluvia.verify.report import Findings


@dataclass(slots=True)
class Claimed:
    """What the claims in a table's newest version will commit: what has `happened`, and the files that others wait for.

    Readers see what has happened as if it were in the log.
    """

    happened: list[CommitActions] = field(default_factory=list)
    waiting: list[AddFile] = field(default_factory=list)


def check_claims(
    handle: TableHandle, domains: Mapping[str, DomainMetadata], version: int, findings: Findings
) -> Claimed:
    """Report claims in a version that cannot be read, and those that have stood for longer than a transaction lasts.

    One GET for each claim, and a HEAD where its transaction has happened.
    """
    claimed = Claimed()
    for name, domain in domains.items():
        if not name.startswith(CLAIM):
            continue
        try:
            claim = parse_claim(domain)
            intended = claim.intended(version + 1)
        except Corrupt as error:
            msg = f"{error}; until it is gone, nobody can write the table"
            findings.add("claim-unreadable", msg, version=version)
            continue
        if _has_happened(handle, claim, version, findings):
            claimed.happened.append(intended)
        else:
            claimed.waiting += intended.adds
    return claimed


def _has_happened(handle: TableHandle, claim: Claim, version: int, findings: Findings) -> bool:
    what = f"the transaction {claim.transaction_id} over {', '.join(claim.tables)}"
    try:
        decision = Decisions.about(handle.log, claim).read(claim)
    except Unsupported:
        msg = f"whether {what} has happened cannot be told here: verify table {claim.table} in its lake"
        findings.add("claim-unchecked", msg, version=version)
        return False
    except Corrupt as error:
        if min(claim.tables) != claim.table:  # else it is found among the table's own
            findings.add("decision-unreadable", f"{error}, and {what} waits for it", version=version)
        return False
    happened = decision is not None and decision.committed
    if handle.clock.now_ms() - claim.started_ms > TRANSACTION_AGE_MS_MAX:
        end = (
            "has happened; the next change carries it out here"
            if happened
            else "has not ended; the next change ends it"
        )
        findings.add("claim-stands", f"{what} {end}", version=version)
    return happened


def check_decisions(store: Store, root: str, objects: Objects, findings: Findings) -> None:
    """Report decisions in a table's folder that cannot be read. One GET for each."""
    names = [name for name in objects.hidden if name.startswith(DECISIONS)]
    reasons: Sequence[str | None] = store.map(partial(_wrong, store), [root + name for name in names])
    for name, reason in zip(names, reasons, strict=True):
        if reason is not None:
            msg = f"{reason}; whether its transaction has happened cannot be told"
            findings.add("decision-unreadable", msg, file=name)


def _wrong(store: Store, key: str) -> str | None:
    try:
        read_decision(store, key)
    except ObjectNotFound:  # vacuum has deleted it since the listing
        return None
    except Corrupt as error:
        return str(error)
    return None
