"""Which version of a table was the newest at a given time. The I/O is one listing of the log and a few commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from alluvia.errors import VersionExpired, VersionNotFound
from alluvia.log.in_commit_timestamps import timed_since
from alluvia.log.log import Log
from alluvia.log.paths import LOG_FOLDER
from alluvia.log.segment import oldest_version, read_listing, taken_ms


def version_at(log: Log, timestamp_ms: int, oldest_readable: int = 0) -> int:
    """Return the newest version whose timestamp is at or before a moment.

    In-commit timestamps increase with the version, so a binary search reads few commits. Versions from before there
    were any go by the files' times, each at least one millisecond after the one before, as the protocol's clients do.
    Raises `TableNotFound`, `VersionNotFound` before the first version, and `VersionExpired` before the oldest that is
    left: in the log, or by the table's own record, `oldest_readable`.
    """
    state = log.state or log.open()
    folder = log.root + LOG_FOLDER
    times_ms = {info.key[len(folder) :]: info.modified_ms for info in log.store.list(folder)}
    listing = read_listing(times_ms)
    oldest = max(oldest_version(listing) or 0, oldest_readable)
    versions = [version for version in sorted(listing.commits) if version >= oldest]
    since = timed_since(state.protocol, state.metadata)
    timed = [version for version in versions if since is not None and version >= since]
    found = _by_commit_time(log, timed, timestamp_ms)
    if found is None:
        every = taken_ms({version: times_ms[file.name] for version, file in listing.commits.items()})
        untimed = {version: every[version] for version in versions[: len(versions) - len(timed)]}
        found = _by_file_time(untimed, timestamp_ms)
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


def _by_file_time(times_ms: Mapping[int, int], timestamp_ms: int) -> int | None:
    """Return the version; `times_ms` has those of the commits' files by version, in order."""
    found, last = None, -1
    for version, file_ms in times_ms.items():
        last = max(last + 1, file_ms)
        if last > timestamp_ms:
            break
        found = version
    return found
