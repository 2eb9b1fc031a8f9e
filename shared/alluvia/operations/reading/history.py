"""A table's history, from its commits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import datetime
from typing import Any

import orjson

from alluvia.clock import datetime_of
from alluvia.commit.handle import ReadableTable
from alluvia.commit.intents import CLAIM, TRANSACTION
from alluvia.commit.versions import kept_versions, oldest_readable
from alluvia.delta.lineage import in_gap, is_own_commit, version_gaps
from alluvia.delta.log.commit import CommitActions, timed_since
from alluvia.delta.log.log import file_times
from alluvia.delta.log.paths import commit_name
from alluvia.delta.log.replay import Listing, oldest_version
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Corrupt, Invalid
from alluvia.lazy_dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HistoryEntry:
    """One commit: who did what, and how many files came and went.

    `readable` says whether the version can be read: it cannot if vacuum has deleted files that it needs, or in a drop.
    `transaction` is the id of the transaction over several tables that claimed the table with the commit (then the
    operation is CLAIM), or that the commit carried out.
    """

    version: int
    timestamp: datetime
    operation: str
    parameters: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, str] = field(default_factory=dict)
    engine: str = ""
    files_added: int = 0
    files_removed: int = 0
    readable: bool = True
    transaction: str | None = None


def history(handle: ReadableTable, limit: int | None = None) -> list[HistoryEntry]:
    """Return the table's commits that the log still holds, newest first, at most `limit` of them.

    Those of other tables, which had its name while it was dropped or before it was created, are left out.
    """
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
        raise Invalid(f"limit: expected a number of commits, 0 or more, got {limit!r}")
    newest = handle.newest()
    _, oldest, versions, times = own_commits(handle, newest)
    return entries(handle, newest, oldest, handle.log.read_commits(versions[:limit]), times)


def own_commits(handle: ReadableTable, newest: Snapshot) -> tuple[Listing, int | None, list[int], dict[int, int]]:
    """Return the log's listing, the oldest version that it can make, and the table's own up to one, newest first.

    Last come the times, in ms, of those whose commits do not contain their own, as a time in a query means them.
    """
    gaps = version_gaps(newest.properties)
    listing, stored_ms = handle.log.timed_listing()
    there = sorted((each for each in listing.commits if each <= newest.version), reverse=True)
    state = handle.log.state or newest.state
    times = file_times(stored_ms, timed_since(state.protocol, state.metadata))
    return listing, oldest_version(listing), [version for version in there if is_own_commit(gaps, version)], times


def entries(
    handle: ReadableTable,
    newest: Snapshot,
    oldest: int | None,
    commits: Iterable[CommitActions],
    times: Mapping[int, int],
) -> list[HistoryEntry]:
    """Return the history up to `newest`; `oldest` is the oldest version that can be read.

    `times` are as `own_commits` has them.
    """
    gaps = version_gaps(newest.properties)
    first = max(known := oldest_readable(newest.state), oldest or 0)
    kept = kept_versions(handle, known) if known else ()

    def readable(version: int) -> bool:
        return (version >= first or version in kept) and not in_gap(gaps, version)

    return [
        _entry(each, times.get(each.version, each.timestamp_ms), readable=readable(each.version)) for each in commits
    ]


def _entry(commit: CommitActions, timestamp_ms: int, *, readable: bool) -> HistoryEntry:
    info = commit.info
    return HistoryEntry(
        commit.version,
        _moment(commit, timestamp_ms),
        str(info.get("operation") or ""),
        _texts(info.get("operationParameters")),
        _texts(info.get("operationMetrics")),
        str(info.get("engineInfo") or ""),
        len(commit.adds),
        len(commit.removes),
        readable,
        _transaction_of(commit),
    )


def _transaction_of(commit: CommitActions) -> str | None:
    carried_out = commit.info.get(TRANSACTION)
    if isinstance(carried_out, dict):
        return str(carried_out.get("id"))
    claims = [domain for domain in commit.domains if domain.domain.startswith(CLAIM) and not domain.removed]
    return claims[0].domain.removeprefix(CLAIM) if claims else None


def _moment(commit: CommitActions, timestamp_ms: int) -> datetime:
    try:
        return datetime_of(timestamp_ms)
    except (ValueError, OverflowError, OSError) as error:
        msg = f"{commit_name(commit.version)} has the timestamp {timestamp_ms} ms, which is not a valid time"
        raise Corrupt(msg) from error


def _texts(given: Any) -> dict[str, str]:
    """Return what a commit says of itself, by name. The protocol leaves its form to the writer."""
    if not isinstance(given, dict):
        return {}
    return {name: value if isinstance(value, str) else orjson.dumps(value).decode() for name, value in given.items()}
