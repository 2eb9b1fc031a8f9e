"""A Parquet file of actions, as checkpoints and sidecars are: columns are decoded when they are asked for. Pure.

Source: Delta protocol, "Checkpoint Schema": a row for each action, a struct column for each kind of action.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from alluvia.errors import Corrupt

Path = tuple[str, ...]
KEYS = {
    "add": "path",
    "remove": "path",
    "protocol": "minReaderVersion",
    "metaData": "id",
    "txn": "appId",
    "domainMetadata": "domain",
    "sidecar": "path",
    "checkpointMetadata": "version",
}
"""A field that every action of a kind has: where it is null, the row holds no such action."""


class ActionFile:
    """The actions in some Parquet bytes. Safe for use from several threads. Raises `Corrupt`, naming the file."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self.size = len(data)
        self._lock = Lock()
        self._present: dict[tuple[str, int], pa.BooleanArray | None] = {}
        try:
            self._file = pq.ParquetFile(pa.BufferReader(data))
            self._schema = self._file.schema_arrow
            self._leaves = [self._file.schema.column(at).path for at in range(len(self._file.schema))]
        except (pa.ArrowException, OSError) as error:
            raise self._unreadable(error) from error

    @property
    def groups(self) -> range:
        """Return the numbers of the row groups."""
        return range(self._file.metadata.num_row_groups)

    def type_of(self, kind: str, path: Path = ()) -> pa.DataType | None:
        """Return the type of a kind of action, or of a field of it; None where the file has none."""
        at = self._schema.get_field_index(kind)
        found = self._schema.field(at).type if at >= 0 else None
        for name in path:
            if found is None or not pa.types.is_struct(found):
                return None
            at = found.get_field_index(name)
            found = found.field(at).type if at >= 0 else None
        return found

    def fields(self, kind: str) -> list[str]:
        """Return the names of the fields of a kind of action. Raises `Corrupt` if it is no struct."""
        found = self.type_of(kind)
        if found is None:
            return []
        if not pa.types.is_struct(found):
            raise self._unreadable(TypeError(f"{kind} is {found}, no struct"))
        return [found.field(at).name for at in range(found.num_fields)]

    def count(self, kind: str, group: int) -> int:
        """Return how many actions of a kind a row group holds, by its statistics if they say."""
        rows = int(self._file.metadata.row_group(group).num_rows)
        if self.type_of(kind, (KEYS[kind],)) is None:
            return 0
        nulls = self._nulls(f"{kind}.{KEYS[kind]}", group)
        if nulls is not None:
            return rows - nulls
        present = self._presence(kind, group)
        return rows if present is None else int(pc.sum(present).as_py() or 0)

    def read(self, kind: str, group: int, paths: Sequence[Path]) -> pa.StructArray:
        """Return the actions of a kind in a row group, with some of their fields: those that the file has."""
        count = self.count(kind, group)
        whole = count == self._file.metadata.row_group(group).num_rows
        wanted = [path for path in paths if self.type_of(kind, path) is not None]
        if not count or not wanted:
            return pa.array([{}] * count, pa.struct([]))
        actions = self._decode(kind, group, wanted)
        return actions if whole else actions.filter(self._presence(kind, group))

    def rows(self, kind: str) -> Iterator[dict[str, Any]]:
        """Yield the bodies of all actions of a kind."""
        fields = [(name,) for name in self.fields(kind)]
        for group in self.groups:
            if self.count(kind, group):
                yield from self.read(kind, group, fields).to_pylist(maps_as_pydicts="strict")

    def is_null(self, kind: str, path: Path, group: int) -> bool:
        """Whether a leaf field is null in a whole row group, as its statistics say; False where they do not."""
        nulls = self._nulls(".".join((kind, *path)), group)
        return nulls is not None and nulls == int(self._file.metadata.row_group(group).num_rows)

    def _presence(self, kind: str, group: int) -> pa.BooleanArray | None:
        """Return which rows of a group hold an action of a kind; None if all do."""
        if (kind, group) not in self._present:
            actions = self._decode(kind, group, [(KEYS[kind],)])
            present = pc.is_valid(pc.struct_field(actions, KEYS[kind]))
            self._present[kind, group] = None if pc.all(present).as_py() else present
        return self._present[kind, group]

    def _decode(self, kind: str, group: int, paths: Sequence[Path]) -> pa.StructArray:
        names = [".".join((kind, *path)) for path in paths]
        try:
            with self._lock:
                column = self._file.read_row_group(group, columns=names, use_threads=len(names) > 4)[kind]
        except (pa.ArrowException, OSError, KeyError) as error:
            raise self._unreadable(error) from error
        chunks = column.chunks
        return chunks[0] if len(chunks) == 1 else pa.concat_arrays(chunks or [pa.array([], column.type)])

    def _nulls(self, leaf: str, group: int) -> int | None:
        try:
            column = self._file.metadata.row_group(group).column(self._leaves.index(leaf))
        except (ValueError, IndexError):
            return None
        known = column.statistics
        return int(known.null_count) if known is not None and known.has_null_count else None

    def _unreadable(self, error: Exception) -> Corrupt:
        return Corrupt(f"{self.name} is not a readable Parquet file: {error}")
