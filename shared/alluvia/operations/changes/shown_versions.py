"""The versions of its sources that a derived table shows, by the `txn` actions in its own log. Pure.

A run records the version of each source that the table shows, under the id of the source. A table that was published
from a branch may show rows that no version has: every commit before some version, and single transactions after it,
such as the publish, whose version is not known before it is committed. Then the record is a negative number, which
names no version, and each of these transactions has a record of its own. -1 says that nothing is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from alluvia.commit.intents import TRANSACTION
from alluvia.delta.log.actions import Txn
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.properties import ROLLUP

UNKNOWN = -1


def shown_id(table_id: str) -> str:
    """Return the application id of the record about a source, by the id in its metadata."""
    return f"{ROLLUP}/{table_id}"


def shown_version(txns: Mapping[str, Txn], table_id: str) -> int | None:
    """Return the version of a source that a table shows; None if it shows none."""
    txn = txns.get(shown_id(table_id))
    return None if txn is None or txn.version < 0 else txn.version


def first_unread(txns: Mapping[str, Txn], table_id: str) -> int | None:
    """Return the first version of a source whose commit a table may not show; None where it is not known."""
    txn = txns.get(shown_id(table_id))
    if txn is None or txn.version == UNKNOWN:
        return None
    return txn.version + 1 if txn.version >= 0 else UNKNOWN - 1 - txn.version


def shown_beyond(table_id: str, first: int, transactions: Iterable[str], looked_ms: int | None) -> list[Txn]:
    """Return the records of a table that shows all before version `first` of a source, and some transactions.

    These are given by the application ids that their commits carry, or by the ids of transactions over several tables.
    """
    name = shown_id(table_id)
    later = [Txn(f"{name}/{each}", 1, looked_ms) for each in transactions]
    return [Txn(name, UNKNOWN - 1 - first, looked_ms), *later]


def without_shown(commits: Iterable[CommitActions], txns: Mapping[str, Txn], table_id: str) -> list[CommitActions]:
    """Return commits of a source. Those that a table shows have no files: only what they say of columns counts."""
    name = shown_id(table_id)

    def is_shown(commit: CommitActions) -> bool:
        ids = [*(txn.app_id for txn in commit.txns), commit.info.get(TRANSACTION, {}).get("id")]
        records = [txns.get(f"{name}/{each}") for each in ids]
        return any(record is not None and record.version >= 0 for record in records)

    return [replace(each, adds=[], removes=[], cdc=[]) if is_shown(each) else each for each in commits]
