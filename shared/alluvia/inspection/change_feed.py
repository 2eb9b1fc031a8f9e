"""The change feed in a query: the rows that versions inserted and deleted. Data files are read for it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from alluvia.errors import Invalid
from alluvia.inspection.asking import Asked
from alluvia.operations.changes.changes import changes
from alluvia.operations.changes.feed_commits import read_commits
from alluvia.operations.transactions.staging import StagedTable


def sizes(asked: Asked) -> list[int]:
    """Return the bytes of each file that may be read: what the commits add, remove and record."""
    first, last = _first(asked), asked.snapshot
    file_sizes: list[int] = []
    for commit in read_commits(asked.catalog.handle(last.name), min(first, last.version), last.version):
        if commit.cdc:
            file_sizes += [file.size for file in commit.cdc]
        else:
            file_sizes += [file.size for file in commit.adds if file.data_change]
            file_sizes += [file.size or 0 for file in commit.removes if file.data_change]
    return file_sizes


def feed(asked: Asked) -> Iterator[pa.RecordBatch]:
    """Yield the changes from one version to another, both ends included, as `Table.changes` does."""
    first, last = _first(asked), asked.snapshot
    handle = asked.catalog.handle(last.name)
    return iter(changes(handle, first, last.version, expired=asked.flags.get("expired", False)))


def _first(asked: Asked) -> int:
    """Return the first version. Raises `Invalid` without one, and where the last one is not committed yet."""
    first, last = asked.number("from"), asked.snapshot
    shown = last.name.replace("/", ".")
    if first is None:
        raise Invalid(f"changes() needs the first version, as in changes('{shown}', 1)")
    handle = asked.catalog.handle(last.name)
    if isinstance(handle, StagedTable) and handle.staged and last.state is handle.newest().state:
        raise Invalid(
            f"changes() lists what was committed, and this transaction has not committed its changes of {shown}: "
            f"name the last version, as in changes('{shown}', {first}, {handle.base.version})"
        )
    return first
