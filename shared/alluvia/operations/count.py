"""Counting rows, by the statistics of files; only of a file without them is the footer read."""

from __future__ import annotations

import io

from alluvia.errors import Corrupt, ObjectNotFound
from alluvia.log.actions import AddFile
from alluvia.log.files.parquet import UNREADABLE
from alluvia.store import Store
from alluvia.table.deletion_vectors.storage import read_deletions
from alluvia.table.reader import check_positions, open_parquet, unreadable
from alluvia.table.scan import Scan
from alluvia.table.snapshot import Snapshot


def count(snapshot: Snapshot, store: Store) -> int:
    """Return how many rows a snapshot has, without those that deletion vectors delete.

    Makes no request where the statistics of all files say how many rows they hold; else one GET for each other file,
    and one more for its deletion vector. Raises `Corrupt` where such a file is missing or unreadable.
    """
    total = 0
    for file in Scan(snapshot).files:
        known = file.live_records
        total += _read_count(snapshot, store, file) if known is None else known
    return total


def _read_count(snapshot: Snapshot, store: Store, file: AddFile) -> int:
    deleted = read_deletions(store, file, snapshot.locate)
    try:
        rows = int(open_parquet(io.BytesIO(store.get(snapshot.key(file)))).metadata.num_rows)
    except ObjectNotFound as error:
        msg = f"data file {file.path} of version {snapshot.version} is missing"
        raise Corrupt(msg) from error
    except UNREADABLE as error:
        raise unreadable(file, error) from error
    check_positions(file, deleted, rows)
    return rows - len(deleted)
