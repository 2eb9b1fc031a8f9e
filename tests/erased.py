"""What is left of a value in a store, found without the library: in Parquet's columns, in text, in raw bytes."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq

from alluvia.store import Store


def traces(store: Store, value: str, prefix: str = "") -> list[str]:
    """Return the keys of the objects that hold a value."""
    return [info.key for info in store.list(prefix) if holds(store.get(info.key), info.key, value)]


def holds(data: bytes, key: str, value: str) -> bool:
    """Whether an object holds a value, in its key too."""
    if value in key or value.encode() in data:
        return True
    if not key.endswith(".parquet"):
        return False
    file = pq.ParquetFile(pa.BufferReader(data))
    return any(value in str(row) for row in file.read().to_pylist())
