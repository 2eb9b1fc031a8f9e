"""A Parquet file of actions (a checkpoint or a sidecar), whose columns are decoded on demand. Pure.

Source: Delta protocol, "Checkpoint Schema": a row for each action, a struct column for each kind of action.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from threading import Lock
from typing import Any, TypeVar

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.arrow_parquet import pq
from alluvia.delta.log.files.expansion import Expansions
from alluvia.errors import Corrupt

A = TypeVar("A", bound=pa.Array)
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
"""A field that every action of a kind has: if it is null, the row has no action of that kind."""

COUNTED = KEYS | {"add": "modificationTime"}
"""A field to count actions by: the key, or one that is decoded sooner."""
FILE_KINDS = ("add", "remove")
BATCH_ROWS = 4096
KEYS_ROWS = 1 << 14
"""Rows of a batch that has keys alone."""
UNREADABLE = (pa.ArrowException, OSError, OverflowError, UnicodeDecodeError)
"""What a damaged Parquet file makes Arrow raise."""


def joined(arrays: Sequence[A]) -> A:
    """Return arrays of one type as one; of one array, itself."""
    return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


def field_of(structs: pa.Array, name: str) -> pa.Array:
    """Return a field of structs, null where they are. Where none is null, it takes a tenth of Arrow's own time."""
    if isinstance(structs, pa.StructArray) and not structs.null_count:
        return structs.field(name)
    return pc.struct_field(structs, name)


def _has_values(rows: pa.StructArray, path: Path) -> bool:
    values: pa.Array = rows
    for name in path:
        values = field_of(values, name)
    return len(values.keys) > 0 if isinstance(values, pa.MapArray) else values.null_count < len(values)


def bodies(rows: Sequence[pa.StructArray]) -> list[dict[str, Any]]:
    """Return actions as JSON objects. Raises `KeyError` for a map that repeats a key."""
    return [body for each in rows for body in each.to_pylist(maps_as_pydicts="strict")]


@cache
def _parquet_file() -> type[pq.ParquetFile]:
    """Return a class of Parquet files that share the names of columns with the last file of the same schema.

    To make them out takes as long as all else in opening a sidecar, and a checkpoint has hundreds, all alike.
    """

    class ParquetFile(pq.ParquetFile):
        last: tuple[Any, Any] | None = None

        def _build_nested_paths(self) -> Any:
            known = ParquetFile.last
            if known is None or not known[0].equals(self.schema):
                known = ParquetFile.last = (self.schema, super()._build_nested_paths())
            return known[1]

    return ParquetFile


class ActionFile:
    """The actions in some Parquet bytes. Safe for use from several threads. Raises `Corrupt`, naming the file."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name = name
        self.size = len(data)
        self._lock = Lock()
        self._counts: dict[tuple[str, int], int] = {}
        self._null: dict[tuple[str, Path, int], bool] = {}
        try:
            self._file = _parquet_file()(pa.BufferReader(data), page_checksum_verification=True)
            self._schema = self._file.schema_arrow
            self._expansions = Expansions(name, data, self._file)
        except UNREADABLE as error:
            raise self._unreadable(error) from error

    @property
    def groups(self) -> range:
        """Return the numbers of the row groups."""
        return range(self._file.metadata.num_row_groups)

    def type_of(self, kind: str, path: Path = ()) -> pa.DataType | None:
        """Return the type of a kind of action, or of a field of it; None where the file has none."""
        at = self._schema.get_field_index(kind)
        part = self._schema.field(at).type if at >= 0 else None
        for name in path:
            if part is None or not pa.types.is_struct(part):
                return None
            at = part.get_field_index(name)
            part = part.field(at).type if at >= 0 else None
        return part

    def fields(self, kind: str) -> list[str]:
        """Return the names of the fields of a kind of action. Raises `Corrupt` if it is not a struct."""
        column = self.type_of(kind)
        if column is None:
            return []
        if not pa.types.is_struct(column):
            raise self._unreadable(TypeError(f"{kind} is {column}, not a struct"))
        try:
            return [column.field(at).name for at in range(column.num_fields)]
        except UnicodeDecodeError as error:
            raise self._unreadable(error) from error

    def know_counts(self, counts: Mapping[str, int]) -> None:
        """Take from who wrote the file how many actions of some kinds it holds, if it has a single row group."""
        if len(self.groups) == 1:
            self._counts.update({(kind, 0): count for kind, count in counts.items()})

    def count(self, kind: str, group: int) -> int:
        """Return how many actions of a kind a row group holds."""
        if (kind, group) not in self._counts:
            self._counts[kind, group] = self._count(kind, group)
        return self._counts[kind, group]

    def batches(self, kind: str, group: int, paths: Sequence[Path]) -> Iterator[pa.StructArray]:
        """Yield the actions of a kind in a row group, with some of their fields: those that the file has.

        They are decoded as they are asked for, so that a row group of any size takes little memory. Of one row group,
        each batch comes from as many rows, whatever the fields.
        """
        wanted = [path for path in paths if self.type_of(kind, path) is not None]
        key, counted = (KEYS[kind],), (COUNTED[kind],)
        known = self._counts.get((kind, group))
        if known is None and (key not in wanted or self.type_of(kind, counted) is None):
            known = self.count(kind, group)
        if known == 0 or not wanted:
            yield pa.array([{}] * (known or 0), pa.struct([]))
            return
        if known is not None and known < self._file.metadata.row_group(group).num_rows:
            wanted = list(dict.fromkeys([*wanted, key]))
        count = lacking = 0
        for rows in self._structs(kind, group, wanted):
            actions = rows
            if key in wanted:
                keys = field_of(rows, *key)
                actions = pc.filter(rows, pc.is_valid(keys)) if keys.null_count else rows
            count += len(actions)
            lacking += len(rows) - len(actions)
            yield actions
        if known is None:
            known = self.count(kind, group) if lacking else count
        self._check_count(kind, group, count, known)

    def _check_count(self, kind: str, group: int, decoded: int, count: int) -> None:
        if decoded != count:
            msg = (
                f"{self.name} holds {decoded} {kind} actions in row group {group}, "
                f"of which {count} have a {COUNTED[kind]}"
            )
            raise Corrupt(msg)
        self._counts[kind, group] = count

    def read(self, kind: str, group: int, paths: Sequence[Path]) -> pa.StructArray:
        """Return the actions of a kind in a row group at once, as `batches` does."""
        return joined(list(self.batches(kind, group, paths)))

    def few(self) -> dict[str, list[pa.StructArray]]:
        """Return the actions that are not about files, by kind, and count those that are.

        A small row group is decoded once. Of a big one, the keys come first: most have nothing but files.
        """
        actions: dict[str, list[pa.StructArray]] = {kind: [] for kind in KEYS if kind not in FILE_KINDS}
        for kind in actions:
            self.fields(kind)  # which refuses what is not a struct
        kinds = [kind for kind in KEYS if self.type_of(kind, (COUNTED[kind],)) is not None]
        for group in self.groups:
            counted, whole = kinds, [kind for kind in kinds if kind in actions]
            if self._file.metadata.row_group(group).num_rows > BATCH_ROWS:
                self._take(group, kinds, {})
                counted = whole = [kind for kind in whole if self._counts[kind, group]]
            if counted:
                self._take(group, counted, {kind: actions[kind] for kind in whole})
        return actions

    def _take(self, group: int, kinds: Sequence[str], whole: Mapping[str, list[pa.StructArray]]) -> None:
        """Count the actions of some kinds in a row group, and add to `whole` those of the kinds that it has."""
        counts = dict.fromkeys(kinds, 0)
        names = [kind if kind in whole else f"{kind}.{COUNTED[kind]}" for kind in kinds]
        for batch in self._decode(group, names, BATCH_ROWS if whole else KEYS_ROWS):
            for kind in kinds:
                actions = self._struct(kind, batch)
                keys = field_of(actions, COUNTED[kind])
                count = len(keys) - keys.null_count
                counts[kind] += count
                if count and kind in whole:
                    whole[kind].append(pc.filter(actions, pc.is_valid(keys)) if keys.null_count else actions)
        self._counts.update({(kind, group): count for kind, count in counts.items()})

    def is_null(self, kind: str, path: Path, group: int) -> bool:
        """Whether a field is null in a whole row group; a map also where it holds nothing.

        It is decoded, up to the first value. Statistics would say it sooner, but Arrow ends the process on a footer
        whose column chunks contradict its schema.
        """
        if (kind, path, group) not in self._null:
            batches = self._structs(kind, group, [path]) if self.type_of(kind, path) is not None else ()
            self._null[kind, path, group] = not any(_has_values(rows, path) for rows in batches)
        return self._null[kind, path, group]

    def _count(self, kind: str, group: int) -> int:
        key = COUNTED[kind]
        if self.type_of(kind, (key,)) is None:
            return 0
        keys = (pc.struct_field(actions, key) for actions in self._structs(kind, group, [(key,)]))
        return sum(len(each) - each.null_count for each in keys)

    def _structs(self, kind: str, group: int, paths: Sequence[Path]) -> Iterator[pa.StructArray]:
        for batch in self._decode(group, [".".join((kind, *path)) for path in paths]):
            yield self._struct(kind, batch)

    def _decode(self, group: int, names: Sequence[str], rows: int = 0) -> Iterator[pa.RecordBatch]:
        with self._lock:
            self._expansions.check(group, names)
        batches = self._file.iter_batches(rows or BATCH_ROWS, row_groups=[group], columns=names, use_threads=False)
        while True:
            try:
                with self._lock:
                    batch = next(batches, None)
            except UNREADABLE as error:
                raise self._unreadable(error) from error
            if batch is None:
                return
            yield batch

    def _struct(self, kind: str, batch: pa.RecordBatch) -> pa.StructArray:
        try:
            actions = batch.column(kind)
        except KeyError as error:
            raise self._unreadable(error) from error
        if not isinstance(actions, pa.StructArray):
            raise self._unreadable(TypeError(f"{kind} is {actions.type}, not a struct"))
        return actions

    def _unreadable(self, error: Exception) -> Corrupt:
        return Corrupt(f"{self.name} is not a readable Parquet file: {error}")
