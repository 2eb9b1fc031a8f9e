"""The end of a file that is fetched ahead is what DuckDB reads first of it."""

from __future__ import annotations

import duckdb
import pytest

from alluvia.delta.data_files.column_chunks import ColumnChunks
from alluvia.query.process.fetching import first_read
from alluvia.store import Address
from alluvia.store.caches.engine_files import EngineFiles
from alluvia.store.caches.served import ServedFile, WantedColumns, name_of


@pytest.mark.parametrize("megabytes", [1, 4, 10, 16, 17, 20, 32, 33, 40, 64, 66, 100, 128, 200, 256, 1000, 50_000])
def test_duckdb_reads_so_many_bytes_first(megabytes: int) -> None:
    size = megabytes * 1_000_000
    file = ServedFile(name_of(0), Address("memory://x", {}, "k"), 0, size, 0, 0, WantedColumns((), ()), b"")
    reads: list[tuple[int, int]] = []

    class Noted(EngineFiles):
        def read_range(self, file: ServedFile, start: int, end: int) -> bytes:
            reads.append((start, end))
            return bytes(end - start)

    with duckdb.connect() as connection:
        connection.register_filesystem(Noted([file], ColumnChunks))
        with pytest.raises(duckdb.Error, match="magic bytes"):
            connection.execute(f"FROM '{name_of(0)}'")
    assert reads[0] == (size - first_read(size), size)
