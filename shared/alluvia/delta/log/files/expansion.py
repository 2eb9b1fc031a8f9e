"""Keep what the columns of a Parquet file of actions take in memory within bounds, before they are decoded. Pure.

Tables of others are read in the process that serves, and a checkpoint of 100 kB can stand for terabytes of text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from alluvia.arrow_compute import pc
from alluvia.delta.log.files.pages import FALSE, FIXED_BYTES, Expansion, expansion
from alluvia.errors import Corrupt

BYTES_MAX = 1 << 30
"""What all columns that are read of a file may take: a tenth of the memory that the largest function can have."""
TIMES_MAX = 64
"""What they may take instead, in sizes of the file, so that a table of millions of files is read."""
BATCH_BYTES = 1 << 28
"""What a batch of a column may take while it is measured."""
ROWS = 4096


class Expansions:
    """What the columns of one file take once decoded, as far as they have been asked for."""

    def __init__(self, name: str, data: bytes, file: Any) -> None:
        self._name = name
        self._data = data
        self._file = file
        self._limit = max(BYTES_MAX, TIMES_MAX * len(data))
        self._known: dict[tuple[int, int], Expansion] = {}
        self._total = 0

    def check(self, group: int, names: Sequence[str]) -> None:
        """Raise `Corrupt` if columns of a row group would take too much with all that were checked before."""
        try:
            leaves = self._file._get_column_indices(names)  # noqa: SLF001 - the columns that pyarrow will decode
            new = [leaf for leaf in leaves if (group, leaf) not in self._known]
            if new:
                self._vet(group, new)
            for leaf in new:
                self._add(group, leaf)
            if self._total > self._limit:
                self._measure()
        except FALSE as error:
            raise Corrupt(f"{self._name} is not a readable Parquet file: {error}") from error

    def _vet(self, group: int, leaves: Sequence[int]) -> None:
        """Have Arrow open columns, and decode no row: what it then says of a false footer is an error.

        Its accessors of the same columns end the process on it.
        """
        for _ in self._file.reader.iter_batches(0, row_groups=[group], column_indices=leaves, use_threads=False):
            pass

    def _add(self, group: int, leaf: int) -> None:
        column = self._file.schema.column(leaf)
        width = max(FIXED_BYTES, column.length) if column.physical_type != "BYTE_ARRAY" else None
        chunk = self._file.metadata.row_group(group).column(leaf)
        found = self._known[group, leaf] = expansion(self._data, chunk, width, self._limit - self._total)
        self._total += found.most

    def _measure(self) -> None:
        """Look closer at the columns that could take more than is sure. Raises `Corrupt` if they do."""
        for (group, leaf), found in sorted(self._known.items(), key=lambda item: -item[1].most):
            if found.least < found.most and sum(each.least for each in self._known.values()) <= self._limit:
                size = self._measured(group, self._file.schema.column(leaf), found)
                self._known[group, leaf] = Expansion(size, size, 0)
                self._total += size - found.most
            if self._total <= self._limit:
                return
        group, leaf = max(self._known, key=lambda at: self._known[at].most)
        raise self._too_large(group, self._file.schema.column(leaf).path)

    def _measured(self, group: int, column: Any, found: Expansion) -> int:
        """Return what a column of texts takes, or more than the limit. Each text is decoded once, and counted."""
        if column.converted_type == "DECIMAL":
            return found.most
        rows, dictionaries = ROWS, [column.path]
        if found.prefixed:  # which Arrow cannot read into a dictionary
            if column.max_repetition_level:
                return found.most
            rows, dictionaries = max(1, min(ROWS, BATCH_BYTES // found.prefixed)), []
        source, metadata = pa.BufferReader(self._data), self._file.metadata
        file = pq.ParquetFile(source, metadata=metadata, read_dictionary=dictionaries)
        size = found.least
        for batch in file.iter_batches(rows, row_groups=[group], columns=[column.path], use_threads=False):
            for texts in _texts(batch.column(0)):
                size += _bytes_of(texts)
            if size > self._limit:
                break
        return size

    def _too_large(self, group: int, column: str) -> Corrupt:
        return Corrupt(
            f"{self._name} has {len(self._data)} bytes, but its columns take more than {self._limit} once decoded, "
            f"with {column} in row group {group}: write the table's checkpoint anew without such long texts, "
            f"or delete this one if the commits before it are still there"
        )


def _texts(values: pa.Array) -> list[pa.Array]:
    if isinstance(values, pa.StructArray):
        return [each for at in range(values.type.num_fields) for each in _texts(values.field(at))]
    if isinstance(values, pa.ListArray | pa.LargeListArray | pa.MapArray):
        return _texts(values.flatten())
    return [values]


def _bytes_of(texts: pa.Array) -> int:
    """Return how many bytes texts take, each as often as it occurs."""
    if isinstance(texts, pa.DictionaryArray):
        lengths = pc.binary_length(texts.dictionary)
        return int(pc.sum(lengths.cast(pa.int64()).take(texts.indices)).as_py() or 0)
    return int(texts.nbytes)
