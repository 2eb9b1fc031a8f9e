"""Which version of a table was the newest at a given time. The I/O is one listing of the log and a few commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from alluvia.delta.log.commit import timed_since
from alluvia.delta.log.log import Log
from alluvia.delta.log.segment import oldest_version, taken_ms
from alluvia.errors import VersionExpired, VersionNotFound


def version_at(log: Log, timestamp_ms: int, oldest_readable: int = 0) -> int:
    """Return the newest version whose timestamp is at or before a moment.

    In-commit timestamps increase with the version, so a binary search reads few commits. Versions from before there
    were any go by the files' times, each at least one millisecond after the one before, as the protocol's clients do.
    Raises `TableNotFound`, `VersionNotFound` before the first version, and `VersionExpired` before the oldest that is
    left: in the log, or by the table's own record, `oldest_readable`.
    """
    state = log.state or log.open()
    listing, stored_ms = log.timed_listing()
    oldest = max(oldest_version(listing) or 0, oldest_readable)
    versions = [version for version in sorted(listing.commits) if version >= oldest]
    since = timed_since(state.protocol, state.metadata)
    timed = [version for version in versions if since is not None and version >= since]
    found = _by_commit_time(log, timed, timestamp_ms)
    if found is None:
        untimed = file_times(stored_ms, since).items()
        found = max((version for version, ms in untimed if version >= oldest and ms <= timestamp_ms), default=None)
    if found is not None:
        return found
    if oldest > 0:
        raise VersionExpired(f"the version at that time has expired; the oldest version that can be read is {oldest}")
    raise VersionNotFound("the table did not exist yet at that time")


def _by_commit_time(log: Log, versions: Sequence[int], timestamp_ms: int) -> int | None:
    low, high = 0, len(versions)
    while low < high:
        middle = (low + high) // 2
        commit = log.read_commit(versions[middle])
        if commit is None or commit.timestamp_ms <= timestamp_ms:  # clean-up takes the oldest alone
            low = middle + 1
        else:
            high = middle
    return versions[low - 1] if low else None


def file_times(stored_ms: Mapping[int, int], since: int | None) -> dict[int, int]:
    """Return the times of the commits that do not contain their own, by version: those before `since`, or all. Pure.

    They are those of their files, `stored_ms`, whatever a commit says in its `commitInfo`: no later than those of the
    versions that follow, since an erasure writes commits again, and each at least one millisecond after the one before,
    as the protocol's clients have them.
    """
    found: dict[int, int] = {}
    last = -1
    for version, taken in sorted(taken_ms(stored_ms).items()):
        if since is not None and version >= since:
            break
        found[version] = last = max(last + 1, taken)
    return found
