"""The versions of its sources that a derived table shows, by the `txn` actions in its own log. Pure.

A run records the version of each source that the table shows, under the id of the source. A table that was published
from a branch may show rows that no version has: every commit before some version, and single transactions after it,
such as the publish, whose version is not known before it is committed. Then the record is a negative number, which
names no version, and each of these transactions has a record of its own, up to the next run. -1 says that nothing is
known: the log knows no way to remove a record.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from alluvia.commit.intents import TRANSACTION
from alluvia.delta.log.actions import Txn
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.properties import ROLLUP

UNKNOWN = -1


def shown_id(table_id: str) -> str:
    """Return the application id of the record about a source, by the id in its metadata."""
    return f"{ROLLUP}/{table_id}"


def first_unread(txns: Mapping[str, Txn], table_id: str) -> int | None:
    """Return the first version of a source whose commit a table may not show; None where it is not known."""
    txn = txns.get(shown_id(table_id))
    if txn is None or txn.version == UNKNOWN:
        return None
    return txn.version + 1 if txn.version >= 0 else UNKNOWN - 1 - txn.version


def shown_now(txns: Mapping[str, Txn], versions: Mapping[str, int], looked_ms: int | None) -> list[Txn]:
    """Return the records of a table that shows these versions of its sources, by their ids, and nothing else.

    They end all other records in `txns`. Otherwise a source that was dropped, and comes back after the table has shown
    another one, would seem to be shown still.
    """
    shown = {shown_id(table_id): version for table_id, version in versions.items()}
    ended = [
        each.app_id
        for each in txns.values()
        if each.app_id.startswith(shown_id("")) and each.app_id not in shown and each.version != UNKNOWN
    ]
    return [Txn(name, version, looked_ms) for name, version in (*shown.items(), *((name, UNKNOWN) for name in ended))]


def shown_beyond(table_id: str, first: int, transactions: Iterable[str], looked_ms: int | None) -> list[Txn]:
    """Return the records of a table that shows all before version `first` of a source, and some transactions.

    These are given by the application ids that their commits carry, or by the ids of transactions over several tables.
    """
    name = shown_id(table_id)
    later = [Txn(f"{name}/{each}", 1, looked_ms) for each in transactions]
    return [Txn(name, UNKNOWN - 1 - first, looked_ms), *later]


def without_shown(commits: Iterable[CommitActions], txns: Mapping[str, Txn], table_id: str) -> Iterator[CommitActions]:
    """Yield commits of a source from the first unread one on, without the files of those that a table shows.

    Of these, only what they say of columns counts. A transaction is one commit, the first that carries its id.
    """
    name = f"{shown_id(table_id)}/"
    left = {each.removeprefix(name) for each, txn in txns.items() if each.startswith(name) and txn.version != UNKNOWN}
    for commit in commits:
        ids = (*(txn.app_id for txn in commit.txns), commit.info.get(TRANSACTION, {}).get("id"))
        found = left.intersection(ids)
        left -= found
        yield replace(commit, adds=[], removes=[], cdc=[]) if found else commit
