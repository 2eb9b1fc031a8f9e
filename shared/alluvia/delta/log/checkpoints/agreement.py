"""Check whether a checkpoint agrees with the commits that it replaces. Pure.

Readers trust a checkpoint instead of the commits before it, so a damaged one would silently give wrong rows. Two checks
are cheap enough for every opening: it must contain the commit of its own version, and `_last_checkpoint` counts its
files.
"""

from __future__ import annotations

from typing import Any

import orjson

from alluvia.delta.log.actions import Metadata, Protocol
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.files.sidecars import SidecarRows
from alluvia.delta.log.replay import State

HEAD_BYTES = 1 << 18
"""So much of a commit is read, since one of many files may be bigger than the checkpoint."""
ADDS_MAX = 100
"""So many adds and removes of a commit are looked up."""


def disagreement(state: State, commit: CommitActions, *, whole: bool = True) -> str | None:
    """Return what a checkpoint's state lacks of its own version's commit, or contradicts in it; None if they agree.

    The removes of a truncated commit prove nothing: further on, it may add the same file.
    """
    if commit.protocol is not None and not _same_protocol(commit.protocol, state.protocol):
        return "it holds another protocol"
    if commit.metadata is not None and not _same_table(commit.metadata, state.metadata):
        return "it holds another metaData"
    if files_in(state) is None:
        return None
    added = {add.key for add in commit.adds}
    adds, removes = commit.adds[:ADDS_MAX], commit.removes[:ADDS_MAX] if whole else ()
    held = state.files.held([*(add.key for add in adds), *(remove.key for remove in removes)])
    for add in adds:
        if add.key not in held:
            return f"it lacks data file {add.path}, which that version added"
    for remove in removes:
        if remove.key not in added and remove.key in held:
            return f"it holds data file {remove.path}, which that version removed"
    for txn in commit.txns:
        known = state.txns.get(txn.app_id)
        if known is not None and known.version != txn.version:
            return f"it holds version {known.version} of transaction {txn.app_id!r}, not {txn.version}"
    return None


def files_in(state: State) -> int | None:
    """Return the number of data files of a checkpoint's state; None if sidecars would have to be opened for that."""
    if any(isinstance(part, SidecarRows) for part in state.files.parts):
        return None
    return len(state.files)


def difference(state: State, replayed: State) -> str | None:
    """Return how the data files of a checkpoint differ from those that its commits make; None if they do not."""
    ours, theirs = {file.key: file.path for file in state.files}, {file.key: file.path for file in replayed.files}
    for key, path in theirs.items():
        if key not in ours:
            return f"it lacks data file {path}"
    return next(
        (f"it holds data file {path}, which they do not" for key, path in ours.items() if key not in theirs), None
    )


def first_lines(head: bytes) -> bytes:
    """Return the complete lines in the first `HEAD_BYTES` of a commit; nothing if even its first line is longer."""
    return head if len(head) < HEAD_BYTES else head[: head.rfind(b"\n") + 1]


def _same_protocol(ours: Protocol, theirs: Protocol) -> bool:
    """Whether two protocols ask for the same; features have no order."""
    versions = (ours.min_reader_version, ours.min_writer_version) == (
        theirs.min_reader_version,
        theirs.min_writer_version,
    )
    readers = set(ours.reader_features or ()) == set(theirs.reader_features or ())
    return versions and readers and set(ours.writer_features or ()) == set(theirs.writer_features or ())


def _same_table(ours: Metadata, theirs: Metadata) -> bool:
    """Whether two metadata say the same of rows; writers may order the JSON of a schema as they like."""
    return (
        ours.id == theirs.id
        and ours.partition_columns == theirs.partition_columns
        and ours.configuration == theirs.configuration
        and _parsed(ours.schema_string) == _parsed(theirs.schema_string)
    )


def _parsed(text: str) -> Any:
    try:
        return orjson.loads(text)
    except ValueError:
        return text
