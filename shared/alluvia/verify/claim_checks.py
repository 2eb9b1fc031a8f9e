"""Checks of claims and decisions: what transactions over several tables have left in a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial

from alluvia.commit.commit_records import ABORTED, DECISIONS, Decision, Decisions, read_decision
from alluvia.commit.handle import ReadableTable
from alluvia.commit.intents import CLAIM, Claim, parse_claim, placed_in
from alluvia.commit.transaction import TRANSACTION_AGE_MS_MAX
from alluvia.commit.versions import kept_versions
from alluvia.delta.log.actions import AddFile, DomainMetadata
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.log import Log
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import AlluviaError, Corrupt, ObjectNotFound, Unsupported, VersionExpired, VersionNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.transaction_order import carried_out
from alluvia.verify.file_checks import Place, check_live_files
from alluvia.verify.objects import Objects
from alluvia.verify.report import Findings


def check_kept(handle: ReadableTable, objects: Objects, oldest: int, findings: Findings) -> list[AddFile]:
    """Report kept versions that cannot be read, or whose files are missing. Returns the files that they need.

    Two LISTs if any version has been given up, and what reading the versions costs.
    """
    files: list[AddFile] = []
    try:
        versions = sorted(kept_versions(handle, oldest)) if oldest else []
    except Corrupt as error:
        findings.add("kept-version-unreadable", str(error))
        return files
    for version in versions:
        try:
            with handle.lock:
                state = handle.log.at(version)
            snapshot = Snapshot(state, handle.root, handle.name, handle.store)
            needed = list(state.files)
        except (Corrupt, VersionExpired, VersionNotFound) as error:
            msg = f"version {version}, which a tag, a clone or a branch keeps, cannot be read: {error}"
            findings.add("kept-version-unreadable", msg, version=version)
            continue
        of_files = Findings()
        check_live_files(Place(handle.store, snapshot, objects, whole=True), needed, of_files)
        for each in of_files.worst_first():
            msg = f"version {version}, which a tag, a clone or a branch keeps: {each.message}"
            findings.add("kept-file-damaged", msg, version=version, file=each.file)
        files += needed
    return files


@dataclass(slots=True)
class Claimed:
    """What the claims in a table's newest version will commit: what has `happened`, and the files that others wait for.

    Readers see what has happened as if it were in the log.
    """

    happened: list[CommitActions] = field(default_factory=list)
    waiting: list[AddFile] = field(default_factory=list)


def check_claims(
    handle: ReadableTable, domains: Mapping[str, DomainMetadata], version: int, findings: Findings
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
            msg = f"{error}; until it is gone, the table cannot be written"
            findings.add("claim-unreadable", msg, version=version)
            continue
        if _has_happened(handle, claim, version, findings):
            claimed.happened.append(intended)
        else:
            claimed.waiting += intended.adds
    return claimed


def _has_happened(handle: ReadableTable, claim: Claim, version: int, findings: Findings) -> bool:
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


def check_decisions(handle: ReadableTable, objects: Objects, findings: Findings) -> None:
    """Report decisions in a table's folder that cannot be read, or that not all of their tables have followed.

    One GET for each; and of each table that they name, what opening it costs, and one GET for each commit since the
    first of them.
    """
    names = [name for name in objects.hidden if name.startswith(DECISIONS)]
    read: Sequence[Decision | str] = handle.store.map(partial(_read, handle), names)
    claims: dict[str, dict[str, int]] = {}
    for name, decision in zip(names, read, strict=True):
        if isinstance(decision, str):
            msg = f"{decision}; whether its transaction has happened cannot be told"
            findings.add("decision-unreadable", msg, file=name)
            continue
        for table, version in decision.claims.items():
            claims.setdefault(table, {})[name.removeprefix(DECISIONS).removesuffix(".json")] = version
    own = min(claims, default="")
    for table, versions in sorted(claims.items()):
        log = Log(handle.store, f"{handle.root[: -len(own) - 1]}{table}/", handle.clock)
        _check_followed(log, table, versions, findings)


def _read(handle: ReadableTable, name: str) -> Decision | str:
    """Return a decision, or what is wrong with it."""
    try:
        return read_decision(handle.store, handle.root + name)
    except ObjectNotFound:  # vacuum has deleted it since the listing
        return ABORTED
    except Corrupt as error:
        return str(error)


def _check_followed(log: Log, table: str, versions: Mapping[str, int], findings: Findings) -> None:
    """Report transactions that have happened, but are neither in a table's log nor claimed there any more."""
    try:
        standing = log.open().domains
        kept = [version for version in log.listing().commits if version >= min(versions.values())]
        commits = {commit.version: commit for commit in log.read_commits(sorted(kept))}
    except AlluviaError as error:
        findings.add("claim-unchecked", f"whether table {table} has what was decided cannot be told: {error}")
        return
    done = carried_out(commits.values())
    edge = max(commits, default=-1)  # clean-up takes commits from the oldest on, but those of versions that are kept
    while edge - 1 in commits:
        edge -= 1
    for transaction_id, version in versions.items():
        if transaction_id in done or CLAIM + transaction_id in standing:
            continue
        if version < edge:
            continue  # clean-up has taken what would tell
        placed = placed_in(commits[version]) if version in commits else []
        claim = next((each for each in placed if each.transaction_id == transaction_id), None)
        if claim is not None and Decisions.about(log, claim).read(claim) == ABORTED:  # decided hours too late
            continue
        msg = (
            f"the transaction {transaction_id} has happened, but table {table} has neither its changes nor its claim, "
            f"which was version {version} there"
        )
        findings.add("transaction-incomplete", msg, file=f"{DECISIONS}{transaction_id}.json")
