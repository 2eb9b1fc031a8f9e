"""Rows deleted by deletion vectors as a table in a DuckDB database, so that `relation_sql` can exclude them."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from alluvia.duck.database import Database
from alluvia.log.actions import AddFile
from alluvia.store import Store
from alluvia.store.range_cache import RANGES
from alluvia.table.deletion_vectors.storage import read_deletions, vector_parts
from alluvia.table.reader import check_positions
from alluvia.table.snapshot import Snapshot

_POSITIONS = "alluvia_positions"


def create_deleted(
    connection: Database, name: str, snapshot: Snapshot, store: Store, files: Sequence[tuple[AddFile, str]]
) -> str | None:
    """Make a table of deleted rows, `file` and `position`, for files and their URLs, and return its name.

    None, and no table, if no file has a deletion vector. Raises `Corrupt`.
    """
    having = [(file, url) for file, url in files if file.deletion_vector is not None]
    if not having:
        return None

    parts = vector_parts([file for file, _ in having], snapshot.locate)
    known = RANGES.get(store, parts) if store.parallel else {}

    def read(file: AddFile) -> pa.Int64Array:
        found = read_deletions(store, file, snapshot.locate, known)
        if file.num_records is not None:
            check_positions(file, found, file.num_records)
        return found

    vectors = store.map(read, [file for file, _ in having])
    connection.execute(f"CREATE TABLE {name} (file VARCHAR, position BIGINT)")
    for (_, url), positions in zip(having, vectors, strict=True):
        same = pa.DictionaryArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), len(positions)), [url])
        connection.register(_POSITIONS, pa.table({"file": same, "position": positions}))
        connection.execute(f"INSERT INTO {name} FROM {_POSITIONS}")
        connection.unregister(_POSITIONS)
    return name
