"""Uploads that happen once: the table's log says that a key is used, and by which content.

A key is an application's id in the log (`txn`), kept by its hash for as long as the table, about 100 bytes each. Two
uploads of one key never commit both: the log's conflict rules let only one of them win. The commit says by which
content, so that a key does not stand for two, and what was created, so that a repeated upload gets the first answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from alluvia.errors import VersionExpired, VersionNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.log.commit import CommitActions
from alluvia.log.log import Log
from alluvia.log.time_travel import version_at
from alluvia.table.snapshot import Snapshot
from alluvia.uploads.misfit import Misfit

INFO = "upload"
"""The field of a commitInfo that says what an upload has created."""
_COMMITS_READ_MAX = 1000


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the log says of an upload: the version that has its rows, how many, and the columns that it created.

    `version` and `rows` are None where the commit has expired.
    """

    version: int | None
    rows: int | None
    columns: Mapping[str, str]


def txn_of(key: str) -> tuple[str, int]:
    """Return a key as a transaction of the log."""
    return f"alluvia-upload-{blake2b(key.encode(), digest_size=16).hexdigest()}", 1


def info_of(content: str, created: Mapping[str, str]) -> dict[str, Any]:
    """Return what the commit of an upload says besides: a hash of its content, and the columns that it created."""
    said = ({"content": content} if content else {}) | ({"columns": dict(created)} if created else {})
    return {INFO: said} if said else {}


def recorded(log: Log, snapshot: Snapshot, txn: tuple[str, int] | None, content: str) -> Recorded | None:
    """Return what became of an earlier upload of the same key; None if there was none.

    Raises `Misfit` for one of another content. One LIST and a few GETs if there was one.
    """
    found = None if txn is None else snapshot.state.txns.get(txn[0])
    if txn is None or found is None:
        return None
    commit = _commit_of(log, snapshot, txn[0], found.last_updated or 0)
    if commit is None:
        return Recorded(None, None, {})
    said: Mapping[str, Any] = commit.info.get(INFO) or {}
    if said.get("content", content) != content:
        raise Misfit("this key was used for an upload of other content: use one key for each content")
    return Recorded(commit.version, sum(add.num_records or 0 for add in commit.adds), said.get("columns", {}))


def _commit_of(log: Log, snapshot: Snapshot, app_id: str, recorded_ms: int) -> CommitActions | None:
    """Return the commit with a transaction, which came soon after it was recorded; None if it has expired."""
    try:
        first = version_at(log, recorded_ms)
    except (VersionExpired, VersionNotFound):
        first = log.oldest()
    for version in range(first, min(snapshot.version + 1, first + _COMMITS_READ_MAX)):
        commit = log.read_commit(version)
        if commit is not None and any(txn.app_id == app_id for txn in commit.txns):
            return commit
    return None
