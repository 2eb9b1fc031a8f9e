"""Rows deleted by deletion vectors as a table in a DuckDB database, so that `relation_sql` can exclude them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from alluvia.delta.data_files.reader import check_positions
from alluvia.delta.deletion_vectors.descriptors import POSITIONS_MAX, cardinality_of
from alluvia.delta.deletion_vectors.storage import read_deletions, vector_parts
from alluvia.delta.log.actions import AddFile
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.duck.database import Database
from alluvia.store import Store
from alluvia.store.caches.range_cache import RANGES

_POSITIONS = "alluvia_positions"


def create_deleted(
    connection: Database, name: str, snapshot: Snapshot, store: Store, files: Sequence[AddFile]
) -> str | None:
    """Make a table of files' deleted rows and return its name.

    Its columns are `file`, the number of a file among those with a deletion vector, and `position`, both from 0.

    None, and no table, if no file has a deletion vector. Raises `Corrupt`.
    """
    having = [file for file in files if file.deletion_vector is not None]
    if not having:
        return None

    parts = vector_parts(having, snapshot.locate)
    known = RANGES.get(store, parts) if store.parallel else {}

    def read(file: AddFile) -> pa.Int64Array:
        found = read_deletions(store, file, snapshot.locate, known)
        if file.num_records is not None:
            check_positions(file, found, file.num_records)
        return found

    connection.execute(f"CREATE TABLE {name} (file UBIGINT, position BIGINT)")
    arrays = (found for some in _held_at_once(having) for found in store.map(read, some))
    for number, positions in enumerate(arrays):
        same = pa.repeat(pa.scalar(number, pa.uint64()), len(positions))
        connection.register(_POSITIONS, pa.table({"file": same, "position": positions}))
        connection.execute(f"INSERT INTO {name} FROM {_POSITIONS}")
        connection.unregister(_POSITIONS)
    return name


def _held_at_once(files: Sequence[AddFile]) -> Iterator[list[AddFile]]:
    """Yield files whose vectors may be in memory together, in their order."""
    some: list[AddFile] = []
    count = 0
    for file in files:
        cardinality = cardinality_of(file.deletion_vector or {})
        if some and count + cardinality > POSITIONS_MAX:
            yield some
            some, count = [], 0
        some.append(file)
        count += cardinality
    yield some
