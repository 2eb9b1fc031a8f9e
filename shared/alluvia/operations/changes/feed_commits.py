"""The commits that a change feed reads, and what they say of rows that expired.

Readers of changes keep rows that expire. So what they know of a version is its rows, and those that had expired in the
versions that led to it: a restore leads to its version from the one that it restored, any other commit from the version
before.
"""

from __future__ import annotations

from alluvia.commit.changes import EXPIRE, RESTORE
from alluvia.commit.handle import ReadableTable
from alluvia.delta.lineage import Gaps, is_own_commit
from alluvia.delta.log.actions import AddFile, CdcFile, RemoveFile
from alluvia.delta.log.commit import CommitActions
from alluvia.errors import VersionExpired

Expired = list[tuple[int, RemoveFile]]
"""Files with the version that each expired in."""


def read_commits(handle: ReadableTable, first: int, last: int) -> list[CommitActions]:
    """Return the commits of some versions, both ends included. Raises `VersionExpired` where clean-up took one."""
    known = handle.log.since(first - 1)
    if known is not None:
        return [commit for commit in known if commit.version <= last]
    left = [version for version in handle.log.listing().commits if version <= last]
    if first < min(left, default=last + 1):
        oldest = min(left, default=last)
        msg = f"the changes of version {first} of {handle.name} have expired; the log begins with version {oldest}"
        raise VersionExpired(msg)
    return handle.log.read_commits(range(first, last + 1))


def operations_of(commit: CommitActions) -> list[str]:
    """Return the operations of a commit; a transaction may have several."""
    parameters = commit.info.get("operationParameters")
    several = parameters.get("operations") if isinstance(parameters, dict) else None
    return str(several).split(", ") if several else [str(commit.info.get("operation"))]


def files_of(commit: CommitActions) -> list[AddFile | RemoveFile | CdcFile]:
    """Return the files that the changes of a commit are read from, at most."""
    return [*commit.adds, *commit.removes, *commit.cdc]


def is_expiry(commit: CommitActions) -> bool:
    """Whether a commit only removes rows because of their age."""
    return commit.info.get("operation") == EXPIRE and not commit.adds


def restored_version(commit: CommitActions) -> int | None:
    """Return the version that a commit restored; None for other commits, and where another writer does not say it."""
    parameters = commit.info.get("operationParameters")
    if commit.info.get("operation") != RESTORE or not isinstance(parameters, dict):
        return None
    text = str(parameters.get("version"))
    return int(text) if text.isdecimal() and int(text) < commit.version else None


def expired_around(handle: ReadableTable, gaps: Gaps, restore: CommitActions) -> tuple[Expired, Expired]:
    """Return the files that had expired before a restore and not in the version that it restored, and vice versa.

    Both versions are followed back to where they meet. Raises `VersionExpired` if clean-up has taken a commit of those.
    """
    here, there = restore.version - 1, restored_version(restore)
    before: Expired = []
    restored: Expired = []
    if there is None or here == there:
        return before, restored
    known = {commit.version: commit for commit in read_commits(handle, there + 1, here)}
    while here != there:
        newest = max(here, there)
        commit = known.get(newest) or read_commits(handle, newest, newest)[0]
        own = is_own_commit(gaps, newest)
        if own and is_expiry(commit):
            (before if newest == here else restored).extend((newest, remove) for remove in commit.removes)
        led_from = restored_version(commit) if own else None
        led_from = newest - 1 if led_from is None else led_from
        here, there = (led_from, there) if newest == here else (here, led_from)
    return before, restored
