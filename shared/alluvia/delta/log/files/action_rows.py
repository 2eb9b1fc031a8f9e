"""File actions in a fixed order, available as columns or one by one: rows of checkpoints or commits. Pure.

Files are decoded, and sidecars fetched, on demand: if a query prunes a sidecar, it is never opened. What pruning
derives from the columns is kept in `derived`, because rows never change.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar, cast, overload

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.fields import Json
from alluvia.delta.log.files.columns import bodies_of, canonical_paths, plain_adds, statistics_texts, with_vectors
from alluvia.delta.log.files.parquet import BATCH_ROWS, ActionFile, Path, field_of, joined
from alluvia.errors import Corrupt

_ATTRIBUTES = {"partitionValues": "partition_values", "tags": "tags"}
STRUCT_FIELDS = ("stats_parsed", "partitionValues_parsed")
VECTOR: Path = ("deletionVector",)
VECTOR_KIND: Path = (*VECTOR, "storageType")
"""What every deletion vector has: where none has it, the other fields need not be decoded."""
UNKEPT = (("stats",), ("partitionValues",))


class FileAction(Protocol):
    """What an add and a remove have in common."""

    @property
    def key(self) -> str:
        """Identity of the logical file."""

    def to_json(self) -> Json:
        """Return the action's body."""


T = TypeVar("T", bound=FileAction)
Parse = Callable[[Json], T]


class LogRows(ABC, Generic[T]):
    """Some file actions of one kind, numbered from 0."""

    facts: str | None = None
    """Statistics of all the rows together, in the form of one file's; None if there are none."""

    def __init__(self) -> None:
        self.derived: dict[Hashable, Any] = {}

    @abstractmethod
    def __len__(self) -> int:
        """Return how many there are."""

    @abstractmethod
    def type_of(self, path: Path) -> pa.DataType | None:
        """Return the type of a field; None if no row has it."""

    @abstractmethod
    def column(self, path: Path) -> pa.Array | None:
        """Return a field of all rows; None if no row has it."""

    @abstractmethod
    def actions(self, at: Sequence[int] | None = None) -> Iterator[T]:
        """Yield the actions with some numbers, in ascending order; all by default."""

    @abstractmethod
    def structs(self, fields: Mapping[str, pa.DataType]) -> Iterator[pa.StructArray]:
        """Yield all rows as structs of some fields; a field that they lack is null."""

    @property
    def is_open(self) -> bool:
        """Whether the rows are in memory."""
        return True

    def may_hold(self, keys: pa.Array) -> bool:  # noqa: ARG002
        """Whether a row can have one of some keys, as far as that is known without opening the rows."""
        return True

    @property
    @abstractmethod
    def keys(self) -> pa.Array:
        """Return the keys of all rows."""

    def held(self, keys: pa.Array) -> set[str]:
        """Return those of some keys that a row has."""
        return set(pc.filter(self.keys, pc.is_in(self.keys, value_set=keys)).to_pylist())

    def map_texts(self, field: str, name: str) -> pa.Array:
        """Return each row's text under a name in `partitionValues` or `tags`; null where it has none."""
        return joined(list(self.map_batches(field, name)) or [pa.array([], pa.string())])

    @abstractmethod
    def map_batches(self, field: str, name: str) -> Iterator[pa.Array]:
        """Yield what `map_texts` returns in batches: the whole map takes far more memory."""

    @abstractmethod
    def with_vector(self) -> pa.BooleanArray:
        """Return which rows have a deletion vector."""

    def size(self, name: str) -> int:
        """Return the sum of a field over all rows."""
        column = self.column((name,))
        return 0 if column is None else int(pc.sum(column).as_py() or 0)


class ActionRows(LogRows[T]):
    """Actions that are values already."""

    def __init__(self, actions: Sequence[T]) -> None:
        super().__init__()
        self._actions = actions

    def __len__(self) -> int:
        return len(self._actions)

    def type_of(self, path: Path) -> pa.DataType | None:
        column = self.column(path)
        return None if column is None else column.type

    def column(self, path: Path) -> pa.Array | None:
        """Return a field of all rows: the text of the statistics, or the size in bytes."""
        if path == ("stats",):
            return pa.array([getattr(action, "stats", None) for action in self._actions], pa.string())
        if path == ("size",):
            return pa.array([getattr(action, "size", None) for action in self._actions], pa.int64())
        return None

    def actions(self, at: Sequence[int] | None = None) -> Iterator[T]:
        return iter(self._actions) if at is None else (self._actions[each] for each in at)

    def structs(self, fields: Mapping[str, pa.DataType]) -> Iterator[pa.StructArray]:
        kind = pa.struct(list(fields.items()))
        for start in range(0, len(self._actions), BATCH_ROWS):
            batch = self._actions[start : start + BATCH_ROWS]
            yield pa.array([action.to_json() for action in batch], kind)

    @cached_property
    def keys(self) -> pa.Array:
        return pa.array([action.key for action in self._actions], pa.string())

    def map_batches(self, field: str, name: str) -> Iterator[pa.Array]:
        values = (getattr(action, _ATTRIBUTES[field], None) or {} for action in self._actions)
        yield pa.array([each.get(name) for each in values], pa.string())

    def with_vector(self) -> pa.BooleanArray:
        return pa.array([getattr(action, "deletion_vector", None) is not None for action in self._actions], pa.bool_())


class FileRows(LogRows[T]):
    """The rows of one kind in a Parquet file."""

    def __init__(self, file: ActionFile, kind: str, parse: Parse[T]) -> None:
        super().__init__()
        self.file = file
        self.kind = kind
        self._parse = parse
        self._columns: dict[Path, pa.Array] = {}

    @cached_property
    def _counts(self) -> dict[int, int]:
        return {group: self.file.count(self.kind, group) for group in self.file.groups}

    def __len__(self) -> int:
        return sum(self._counts.values())

    def type_of(self, path: Path) -> pa.DataType | None:
        return self.file.type_of(self.kind, path)

    def column(self, path: Path) -> pa.Array | None:
        """Return a field of all rows. The big ones are decoded each time."""
        column = self._columns.get(path)
        if column is None:
            kind = self.type_of(path)
            if kind is None:
                return None
            parts = [pc.struct_field(rows, list(path)) for rows in self._batches([path])]
            column = joined(parts or [pa.array([], kind)])
            if path not in UNKEPT:
                self._columns[path] = column
        return column

    def actions(self, at: Sequence[int] | None = None) -> Iterator[T]:
        """Yield actions; only the row groups that hold one of them are decoded."""
        start, wanted = 0, None if at is None else list(at)
        for group in self._used_groups():
            end = start + self._counts[group]
            inside = _between(wanted, start, end)
            if inside is None or inside:
                yield from self._actions(group, inside)
            start = end

    def structs(self, fields: Mapping[str, pa.DataType]) -> Iterator[pa.StructArray]:
        kind = pa.struct(list(fields.items()))
        every: list[Path] = [(name,) for name in fields]
        light = [VECTOR_KIND if path == VECTOR else path for path in every]
        for group in self.file.groups:
            for number, rows in enumerate(self.file.batches(self.kind, group, light)):
                if light != every and _has_vectors(rows):
                    for each in islice(self.file.batches(self.kind, group, every), number, None):
                        yield conformed(each, kind)
                    break
                yield conformed(rows, kind)

    @cached_property
    def keys(self) -> pa.Array:
        """Return the keys of all rows: paths in their canonical form, with the deletion vector's id if there is one."""
        parts = [keys for group in self._used_groups() for keys in self._keys_in(group)]
        return joined(parts or [pa.array([], pa.string())])

    def held(self, keys: pa.Array) -> set[str]:
        """Return those of some keys that a row has; the newest rows are looked at first, and no more than needed."""
        matches: set[str] = set()
        for group in reversed(self._used_groups()):
            for present in self._keys_in(group):
                matches |= set(pc.filter(present, pc.is_in(present, value_set=keys)).to_pylist())
            if len(matches) == len(keys):
                break
        return matches

    def map_batches(self, field: str, name: str) -> Iterator[pa.Array]:
        kind = self.type_of((field,))
        if kind is None or not pa.types.is_map(kind) or self.lacks((field,)):
            yield pa.nulls(len(self), pa.string())
            return
        key = pa.scalar(name, kind.key_type)
        for rows in self._batches([(field,)]):
            values = pc.struct_field(rows, field)
            yield pc.map_lookup(values, query_key=key, occurrence="last").cast(pa.string())

    def lacks(self, leaf: Path) -> bool:
        """Whether a field is absent, or null or empty in every row."""
        if self.type_of(leaf[:1]) is None:
            return True
        return all(self.file.is_null(self.kind, leaf, group) for group in self._used_groups())

    def with_vector(self) -> pa.BooleanArray:
        if all(self.file.is_null(self.kind, VECTOR_KIND, group) for group in self._used_groups()):
            return pa.repeat(pa.scalar(value=False, type=pa.bool_()), len(self))
        kinds = self.column(VECTOR_KIND)
        return pa.repeat(pa.scalar(value=False, type=pa.bool_()), len(self)) if kinds is None else pc.is_valid(kinds)

    def _batches(self, paths: Sequence[Path]) -> Iterator[pa.StructArray]:
        for group in self._used_groups():
            yield from self.file.batches(self.kind, group, paths)

    def _keys_in(self, group: int) -> Iterator[pa.Array]:
        plain = self.type_of(VECTOR_KIND) is None or self.file.is_null(self.kind, VECTOR_KIND, group)
        for rows in self.file.batches(self.kind, group, [("path",)] if plain else [("path",), VECTOR]):
            paths = canonical_paths(pc.cast(pc.struct_field(rows, "path"), pa.string()))
            yield paths if plain else with_vectors(paths, pc.struct_field(rows, "deletionVector"))

    def _used_groups(self) -> list[int]:
        return [group for group, count in self._counts.items() if count]

    def _actions(self, group: int, inside: Sequence[int] | None) -> Iterator[T]:
        """Yield the actions in a row group, of those with some numbers in it."""
        wanted = [(name,) for name in self.file.fields(self.kind) if name not in STRUCT_FIELDS]
        structs = enumerate(self.file.batches(self.kind, group, [("stats_parsed",)]))
        start = 0
        for number, rows in enumerate(self.file.batches(self.kind, group, wanted)):
            start, end = start + len(rows), start
            at = _between(inside, end, start)
            if at is None or at:
                only = next(each for other, each in structs if other == number) if self._lacks_texts(rows) else None
                yield from self._actions_of(rows, only, at)

    def _actions_of(self, rows: pa.StructArray, only: pa.StructArray | None, at: Sequence[int] | None) -> Iterator[T]:
        structs = None if only is None else pc.struct_field(only, "stats_parsed")
        if at is not None:
            places = pa.array(at, pa.int64())
            rows, structs = pc.take(rows, places), None if structs is None else pc.take(structs, places)
        texts = None if structs is None else self._texts(rows, structs)
        plain = plain_adds(rows, texts) if self._parse == AddFile.from_json else None
        if plain is not None:
            return iter(cast(list[T], plain))
        bodies = bodies_of(rows)
        if texts is not None:
            bodies = [{**body, "stats": text} for body, text in zip(bodies, texts, strict=True)]
        return map(self._parsed, bodies)

    def _texts(self, rows: pa.StructArray, structs: pa.Array) -> list[str | None]:
        """Return the statistics of some rows, from JSON where they have it."""
        made = statistics_texts(structs)
        if self.type_of(("stats",)) is None:
            return made
        return [text or other for text, other in zip(pc.struct_field(rows, "stats").to_pylist(), made, strict=True)]

    def _lacks_texts(self, rows: pa.StructArray) -> bool:
        """Whether the struct statistics of some rows are all that there is."""
        if self.type_of(("stats_parsed",)) is None:
            return False
        return self.type_of(("stats",)) is None or bool(pc.struct_field(rows, "stats").null_count)

    def _parsed(self, body: Json) -> T:
        try:
            return self._parse(body)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise Corrupt(f"{self.file.name}: {self.kind} {body.get('path')}: {error}") from error


def _has_vectors(rows: pa.StructArray) -> bool:
    if rows.type.get_field_index(*VECTOR) < 0:
        return False
    vectors = field_of(rows, *VECTOR)
    return vectors.null_count < len(vectors) and pc.struct_field(vectors, "storageType").null_count < len(vectors)


def _between(numbers: Sequence[int] | None, start: int, end: int) -> list[int] | None:
    """Return those of some ascending numbers that lie in a range, counted from its start; None for all."""
    if numbers is None:
        return None
    return [each - start for each in numbers[bisect_left(numbers, start) : bisect_left(numbers, end)]]


def check_fields(file: ActionFile, kind: str, fields: Mapping[str, pa.DataType]) -> None:
    """Raise `Corrupt`, naming the file, where a field of a kind of action has a type that it cannot have."""
    for name, wanted in fields.items():
        column = file.type_of(kind, (name,))
        if column is not None and not _fits(column, wanted):
            raise Corrupt(f"checkpoint {file.name}: {kind}.{name} is {column}, expected {wanted}")


def check_partitions(name: str, adds: LogRows[Any]) -> None:
    """Raise `Corrupt` where a partitioned table's checkpoint has no partition values: all would count as null."""
    if not isinstance(adds, FileRows) or not len(adds) or not adds.lacks(("partitionValues",)):
        return
    values = adds.column(("partitionValues",))
    if values is None or values.null_count:
        raise Corrupt(f"checkpoint {name}: add.partitionValues is missing, but the table is partitioned")


@lru_cache
def _fits(stored: pa.DataType, wanted: pa.DataType) -> bool:
    if pa.types.is_struct(wanted):
        if not pa.types.is_struct(stored):
            return False
        places = [
            (wanted.field(at).type, stored.get_field_index(wanted.field(at).name)) for at in range(wanted.num_fields)
        ]
        return all(place < 0 or _fits(stored.field(place).type, kind) for kind, place in places)
    if pa.types.is_map(wanted):
        if not pa.types.is_map(stored):
            return False
        return _fits(stored.key_type, wanted.key_type) and _fits(stored.item_type, wanted.item_type)
    for is_kind in (pa.types.is_integer, pa.types.is_boolean):
        if is_kind(wanted):
            return bool(is_kind(stored))
    return any(is_kind(stored) for is_kind in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view))


@overload
def conformed(values: pa.Array, kind: pa.StructType, *, strict: bool = True) -> pa.StructArray: ...
@overload
def conformed(values: pa.Array, kind: pa.DataType, *, strict: bool = True) -> pa.Array: ...
def conformed(values: pa.Array, kind: pa.DataType, *, strict: bool = True) -> pa.Array:
    """Return values as a type; of a struct the fields that it has, by name.

    Where a value has another type, it is converted; unless `strict`, it is null where that fails.
    """
    if values.type.equals(kind):
        return values
    if values.null_count == len(values):
        return pa.nulls(len(values), kind)
    if not pa.types.is_struct(kind) or not pa.types.is_struct(values.type):
        try:
            return pc.cast(values, kind)
        except pa.ArrowException:
            if strict:
                raise
            return pa.nulls(len(values), kind)
    children = []
    for field in kind:
        present = values.type.get_field_index(field.name) >= 0
        part = field_of(values, field.name) if present else pa.nulls(len(values), field.type)
        children.append(conformed(part, field.type, strict=strict))
    return struct_of(kind, children, pc.is_valid(values))


def struct_of(kind: pa.StructType, children: Sequence[pa.Array], present: pa.BooleanArray) -> pa.StructArray:
    """Return structs that are null where they are not `present`.

    `pa.StructArray.from_arrays` takes a mask, but loads all of pyarrow.compute for it.
    """
    bits = pa.concat_arrays([present, present.slice(0, 0)]).buffers()[1]  # which begin with a byte
    return cast("pa.StructArray", pa.Array.from_buffers(kind, len(present), [bits], children=children))
