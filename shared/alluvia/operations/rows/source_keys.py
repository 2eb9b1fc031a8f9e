"""The keys of a merge's source: which files can contain them, and which rows of a file have them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.deletion_vectors.storage import numbers, positions_of
from alluvia.delta.log.actions import AddFile
from alluvia.delta.schema.names import ColumnPath
from alluvia.delta.skipping.predicate import And, Comparison, In, Predicate
from alluvia.delta.skipping.verdicts import FileStatistics
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.duck.arrow_values import result_of
from alluvia.engine.duck.database import scratch_database
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

KEYS_SORTED_MAX = 1 << 20
"""Beyond this many keys in a column, only the lowest and the highest decide which files can contain them."""
KEYS_NAMED_MAX = 1000
"""So many keys are named by what a commit on a branch says of its reads; of more, the least and the greatest."""
FEW_ROWS = 4096
"""Arrow finds this many keys in any file within half a millisecond, and a query takes longer to begin."""
_PAIRS = "SELECT f.position, s.number FROM file f JOIN source s ON {on} ORDER BY f.position"
_REPEATED = "SELECT {names}, count(*) FROM source GROUP BY {names} HAVING count(*) > 1 ORDER BY {names} LIMIT 1"


class UnfitKeys(Invalid):
    """Keys of a source that rows of a table cannot be found by."""


class RepeatedKey(UnfitKeys):
    """Two rows of a source have the same key."""


class SourceKeys:
    """The keys of the rows of a source: the columns of a table that `rows` has, in the table's types.

    Raises `RepeatedKey` for one that two rows have. A row with a null in its key matches nothing. `bounds` says that
    `rows` are not all, but have the least and the greatest value of each column: enough to choose files.
    """

    def __init__(self, rows: pa.Table, *, bounds: bool = False) -> None:
        self._rows = rows
        self.on = tuple(rows.column_names)
        self._plain = len(self.on) == 1 and _is_plain(rows.schema.field(self.on[0]).type)
        self._every = not bounds
        if not bounds:
            self._check_repeated()

    @property
    def _keys(self) -> list[str]:
        return [f"k{at}" for at in range(len(self.on))]

    @cached_property
    def _connection(self) -> DuckDBPyConnection:
        """A database that has the keys as the table `source`."""
        connection = scratch_database()
        keys = self._rows.append_column("number", numbers(len(self._rows)))
        given = connection.from_arrow(keys.rename_columns([*self._keys, "number"]))
        whole = " AND ".join(f"{key} IS NOT NULL" for key in self._keys)
        given.filter(whole).order(self._keys[0]).create("source")
        return connection

    def _check_repeated(self) -> None:
        if self._plain:
            keys = self._rows[self.on[0]]
            if pc.count_distinct(keys).as_py() == len(keys) - keys.null_count:
                return
        repeated = result_of(self._connection, _REPEATED.format(names=", ".join(self._keys))).to_arrow_table()
        if len(repeated):  # fetched as rows, times would need the package pytz
            raise repeated_key(self.on, [column[0].as_py() for column in repeated.columns])

    def pairs(self, keys: pa.Table) -> tuple[pa.Int64Array, pa.Int64Array]:
        """Return the positions, ascending, of those rows of `keys` that the source has, and its rows' numbers."""
        if self._plain and len(self._rows) <= max(len(keys), FEW_ROWS):
            matches = pc.index_in(keys.column(0).combine_chunks(), self._rows[self.on[0]], skip_nulls=True)
            return positions_of(pc.is_valid(matches)), matches.drop_null().cast(pa.int64())
        numbered = keys.rename_columns(self._keys).append_column("position", numbers(len(keys)))
        self._connection.register("file", numbered.to_reader())
        on = " AND ".join(f"f.{key} = s.{key}" for key in self._keys)
        try:
            pairs = result_of(self._connection, _PAIRS.format(on=on)).to_arrow_table()
        finally:
            self._connection.unregister("file")
        positions, sources = pairs["position"].combine_chunks(), pairs["number"].combine_chunks()
        return positions.cast(pa.int64()), sources.cast(pa.int64())

    @cached_property
    def _sorted(self) -> Mapping[str, _Values]:
        """Return the values of each key column that has an order in statistics."""
        sorted_values = {}
        for name in self.on:
            kind = self._rows.schema.field(name).type
            if pa.types.is_floating(kind):
                continue
            values = pc.unique(self._whole_keys[name])
            values = values.take(pc.sort_indices(values))
            every = self._every and len(values) <= KEYS_SORTED_MAX
            if len(values) > KEYS_SORTED_MAX:
                values = values.take(pa.array([0, len(values) - 1]))
            try:
                sorted_values[name] = _Values(values.to_pylist(), every)
            except (ValueError, OverflowError):  # a time that Python cannot represent
                continue
        return sorted_values

    @cached_property
    def _whole_keys(self) -> pa.Table:
        keys = self._rows
        for name in self.on:
            keys = keys.filter(pc.is_valid(keys[name]))
        return keys

    @property
    def matches_nothing(self) -> bool:
        """Whether no row has a key without nulls."""
        return not len(self._whole_keys)

    @property
    def predicate(self) -> Predicate:
        """Return what a row with one of the keys needs."""
        parts: list[Predicate] = []
        for name, values in self._sorted.items():
            if values.ascending:
                least, greatest = values.ascending[0], values.ascending[-1]
                parts += [Comparison((name,), ">=", least), Comparison((name,), "<=", greatest)]
        return And(tuple(parts))

    @property
    def reads(self) -> Predicate:
        """Return what a row with one of the keys needs, as closely as `matcher` says it where the keys are few."""
        if self.matches_nothing:
            return In((self.on[0],), ())
        few = [In((name,), tuple(values.ascending)) for name, values in self._sorted.items()
               if values.every and len(values.ascending) <= KEYS_NAMED_MAX]  # fmt: skip
        return And((self.predicate, *few))

    def matcher(self, snapshot: Snapshot) -> Callable[[AddFile], bool]:
        """Return whether a file of a snapshot's table can hold a row with one of the keys."""
        schema, columns = snapshot.physical_schema, snapshot.partition_spec.stored_columns
        exact = any(pa.types.is_decimal(snapshot.schema.field(name).type) for name in self.on)
        if self.matches_nothing:
            return lambda _: False
        stored = {name: (snapshot.physical_name(name),) for name in self.on}
        return lambda file: self._can_hold(FileStatistics(file, schema, columns, exact=exact), stored)

    def _can_hold(self, file: FileStatistics, stored: Mapping[str, ColumnPath]) -> bool:
        return all(values.reach(file.bounds(stored[name])) for name, values in self._sorted.items()) and not any(
            file.rows is not None and file.nulls(stored[name]) == file.rows for name in self.on
        )


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of a key column: `every` one, or the least and the greatest alone."""

    ascending: Sequence[Any]
    every: bool

    def reach(self, bounds: tuple[Any, Any] | None) -> bool:
        """Whether one of the values can lie within bounds, where there are any."""
        if bounds is None:
            return True
        try:
            if not self.every:
                return bool(self.ascending[0] <= bounds[1] and self.ascending[-1] >= bounds[0])
            at = bisect_left(self.ascending, bounds[0])
            return at < len(self.ascending) and bool(self.ascending[at] <= bounds[1])
        except TypeError:
            return True


def repeated_key(on: Sequence[str], example: Sequence[Any]) -> RepeatedKey:
    """Return the error for a key that several rows have: its values, and how many they are."""
    key = ", ".join(f"{name}={value!r}" for name, value in zip(on, example, strict=False))
    return RepeatedKey(f"rows: the key {key} occurs in {example[-1]} rows; each key must be unique")


def _is_plain(kind: pa.DataType) -> bool:
    """Whether values of a type are equal to Arrow just where they are to SQL; it finds them in a tenth of the time."""
    return pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_timestamp(kind)
