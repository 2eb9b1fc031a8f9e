"""What every reader of files holds to: formats, limits, names of columns, and why rows are refused.

Arrow's reader of Parquet inflates whole pages, and reads whole rows, of which one can hold a list of any size. So
`check_sizes` sums the sizes in the footer before anything is read. It does not find out a footer that lies.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from alluvia.arrow_parquet import pq
from alluvia.delta.schema.names import fold
from alluvia.errors import Invalid
from alluvia.events.ingest.compression import TooLarge
from alluvia.lazy_dataclasses import dataclass
from alluvia.processes.pool import Watch

FORMATS = ("csv", "tsv", "ndjson", "parquet")
BYTES_MAX = 16 << 20
NAMES_MAX = 2000
"""Columns of a file and nested fields, together."""


@dataclass(frozen=True, slots=True)
class FileLimits:
    """Limits for reading a file; None: no limit."""

    bytes_max: int = BYTES_MAX
    """Of the file, inflated, and of its rows, as Arrow counts them."""
    names_max: int = NAMES_MAX
    """Names of columns, and of fields in them."""
    seconds: float | None = None
    memory_bytes: int | None = None
    """What the process that reads it may hold."""
    cancelled: Callable[[], bool] | None = None
    """True once the sender has disconnected."""
    until: float | None = None
    """When the file must be read, by `time.monotonic()`: where it is read several times, they share the time."""

    def begun(self) -> FileLimits:
        """Return limits whose time runs from now on; if it runs, the same ones."""
        if self.seconds is None or self.until is not None:
            return self
        return replace(self, until=time.monotonic() + self.seconds)

    def watch(self) -> Watch:
        """Return what a process that reads the file is held to."""
        return Watch(self.until, self.memory_bytes, self.cancelled)


UNLIMITED = FileLimits(bytes_max=sys.maxsize)
"""For files of the user who runs the process."""


_WIDTHS = {"BOOLEAN": 0.125, "INT32": 4, "INT64": 8, "INT96": 12, "FLOAT": 4, "DOUBLE": 8, "BYTE_ARRAY": 4}
"""Bytes of a value; of a text its place in a dictionary."""
_CONVERTED = {"INT_8": 1, "UINT_8": 1, "INT_16": 2, "UINT_16": 2, "DECIMAL": 16}
_LEVELS = 4
"""Bytes that the reader takes for the levels of a value in a list."""


def check_sizes(metadata: pq.FileMetaData, bytes_max: int) -> None:
    """Raise `TooLarge` where pages inflate to more bytes than a limit, or their values take more; `Misfit` for damage.

    Both are summed over the file. A list's values in a row group, which may be one row, count with their levels.
    """
    schema = metadata.schema
    leaves = [schema.column(at) for at in range(len(schema))]
    widths = [_CONVERTED.get(leaf.converted_type) or _WIDTHS.get(leaf.physical_type, leaf.length) for leaf in leaves]
    inflated, values = [0] * len(leaves), [0.0] * len(leaves)
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        if group.num_columns != len(leaves):
            raise Misfit(f"the Parquet file is damaged: row group {number} has {group.num_columns} columns")
        for at, (leaf, width) in enumerate(zip(leaves, widths, strict=True)):
            chunk = group.column(at)
            if chunk.num_values < 0 or chunk.total_uncompressed_size < 0:
                raise Misfit(f"the Parquet file is damaged: column {leaf.path} has a negative size in its footer")
            inflated[at] += chunk.total_uncompressed_size
            values[at] += chunk.num_values * width
            if leaf.max_repetition_level and chunk.num_values * (width + _LEVELS) > bytes_max:
                raise TooLarge(
                    f"column {leaf.path}: row group {number} has {chunk.num_values} values, which take more than the "
                    f"limit of {bytes_max} bytes"
                )
    for what, sizes in (("inflate to", inflated), ("hold values of", values)):
        if sum(sizes) > bytes_max:
            size, leaf = max(zip(sizes, leaves, strict=True), key=lambda each: each[0])
            raise TooLarge(
                f"the file's columns {what} {sum(sizes):.0f} bytes, {size:.0f} of them in column {leaf.path}: more "
                f"than the limit of {bytes_max}"
            )


class Misfit(Invalid):
    """A file does not fit its table, or no type: the message names the row, the column and the kind of the value."""


def misfit(row: int, column: str, reason: str) -> Misfit:
    """Return the error for a value. `row` counts the file's rows from 1, without a header."""
    return Misfit(f"row {row}, column {column}: {reason}")


class FileNames:
    """The names that a file was found to have so far, of which there may be so many."""

    def __init__(self, names_max: int) -> None:
        self._names_max = names_max
        self._columns: set[str] = set()
        self._count = 0

    def take_column(self, name: str, row: int | None = None) -> None:
        """Take the name of another column. Raises `Misfit` for one that is empty, comes twice, or is one too many.

        `row` is the first that has it, from 1, where rows name their columns.
        """
        if not name.strip():
            which = f"column {len(self._columns) + 1} of the file" if row is None else f"row {row}: a field"
            raise Misfit(f"{which} has no name")
        if fold(name) in self._columns:
            where = "the file has the column" if row is None else f"row {row}: the file has the column"
            raise Misfit(f"{where} {name!r:.100} twice")
        self._columns.add(fold(name))
        self.take_field(name)

    def take_columns(self, names: Sequence[str]) -> None:
        """Take the names of all columns, as `take_column` does."""
        self.check_count(len(names))
        for name in names:
            self.take_column(name)

    def check_count(self, columns: int) -> None:
        """Raise `Misfit` for too many columns."""
        if columns > self._names_max:
            raise Misfit(f"the file has {columns} columns, more than the limit of {self._names_max}")

    def take_fields(self, paths: Iterable[str]) -> None:
        """Take the names of fields, as `take_field` does."""
        for path in paths:
            self.take_field(path)

    def take_field(self, path: str) -> None:
        """Take the name of another field in a column. Raises `Misfit` for one too many."""
        self._count += 1
        if self._count > self._names_max:
            raise Misfit(
                f"the file has more than the limit of {self._names_max} columns and fields in them, such as "
                f"{path!r:.100}: put values whose names vary into a map, or make them JSON text"
            )
