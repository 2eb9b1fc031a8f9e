"""Uploads that happen once: the table's log says that a key is used, and by which content.

A key is an application's id in the log (`txn`), kept by its hash for as long as the table, about 100 bytes each. Two
uploads of one key never commit both: the log's conflict rules let only one of them win. The number of the transaction
is of the content's hash, so that a key never stands for two, not even when clean-up has taken the commit. The commit
says what was created besides, so that a repeated upload gets the first answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

from alluvia.delta.log.actions import Txn
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.log import Log
from alluvia.delta.log.time_travel import version_at
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import VersionExpired, VersionNotFound
from alluvia.files.misfit import Misfit
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.planning.optimistic_retry import Once
from alluvia.operations.tables.restore import UPLOAD

INFO = "upload"
"""The field of a commitInfo that says what an upload has created."""
_AHEAD, _BEHIND = 200, 20
"""How many commits are read: after the time that a transaction has, and before it, where a clock has stepped back."""
_NO_CONTENT = 1
"""The number of a key without a content, and of those from before numbers said it."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the log says of an upload: the version that has its rows, how many, and the columns that it created.

    `version` and `rows` are None where the commit has expired; `rows` also where it brought other rows too, as a
    restore, a clone and a published branch do.
    """

    version: int | None
    rows: int | None
    columns: Mapping[str, str]


def txn_of(key: str, content: str) -> Once:
    """Return a key that stands for some content as a transaction of the log."""
    number = int.from_bytes(blake2b(content.encode(), digest_size=7).digest()) + 2 if content else _NO_CONTENT
    return Once(f"{UPLOAD}{blake2b(key.encode(), digest_size=16).hexdigest()}", number)


def info_of(content: str, created: Mapping[str, str]) -> dict[str, Any]:
    """Return what the commit of an upload says besides: a hash of its content, and the columns that it created."""
    said = ({"content": content} if content else {}) | ({"columns": dict(created)} if created else {})
    return {INFO: said} if said else {}


def recorded(log: Log, snapshot: Snapshot, txn: Once | None, content: str) -> Recorded | None:
    """Return what became of an earlier upload of the same key; None if there was none.

    Raises `Misfit` for one of another content. One LIST and a few GETs if there was one.
    """
    found = None if txn is None else snapshot.state.txns.get(txn.app_id)
    if txn is None or found is None or found.version < 0:
        return None
    if found.version not in (txn.number, _NO_CONTENT):
        raise _other()
    commit = _commit_of(log, snapshot, found)
    if commit is None:
        if found.version != txn.number:
            raise Misfit("this key was used before, and its content is not known any more: use a new key")
        return Recorded(None, None, {})
    said: Mapping[str, Any] = commit.info.get(INFO) or {}
    if said.get("content", content) != content:
        raise _other()
    rows = sum(add.num_records or 0 for add in commit.adds) if commit.info.get("operation") == "WRITE" else None
    return Recorded(commit.version, rows, said.get("columns", {}))


def _other() -> Misfit:
    return Misfit("this key was used for an upload of other content: use one key for each content")


def _commit_of(log: Log, snapshot: Snapshot, wanted: Txn) -> CommitActions | None:
    """Return the commit with a transaction, looked for around the time that it has; None if it has expired."""
    ahead = _AHEAD
    try:
        first = version_at(log, wanted.last_updated or 0)
    except VersionNotFound:
        first = log.oldest()
    except VersionExpired:
        first, ahead = log.oldest(), _BEHIND
    behind = range(first - 1, max(first - _BEHIND, 0) - 1, -1)
    for version in (*range(first, min(snapshot.version + 1, first + ahead)), *behind):
        commit = log.read_commit(version)
        if commit is not None and any(
            (txn.app_id, txn.version) == (wanted.app_id, wanted.version) for txn in commit.txns
        ):
            return commit
    return None
