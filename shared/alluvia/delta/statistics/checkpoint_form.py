"""Statistics and partition values as structs in a table's checkpoints, in the columns' own types. Pure.

Source: Delta protocol, "Checkpoints" (`stats_parsed`, `partitionValues_parsed`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Any

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.files.action_rows import LogRows, conformed, struct_of
from alluvia.delta.log.files.columns import statistics_text
from alluvia.delta.partitioning.values import parse_partition_text
from alluvia.delta.schema.names import ColumnPath, put
from alluvia.delta.statistics.column_bounds import STRUCT, Bounds, bounds_of, partition_bounds
from alluvia.delta.statistics.typed import ColumnStatistics, ManyStatistics, has_bounds, parse_texts, tree

PARTITIONS = "partitionValues_parsed"
_PLAIN: dict[str, pa.DataType] = {"numRecords": pa.int64(), "tightBounds": pa.bool_()}


class CheckpointForm:
    """The structs for a table of a schema, whose first `indexed_columns` leaf columns have statistics.

    Names are those that columns have in files and statistics.
    """

    def __init__(self, schema: pa.Schema, partition_columns: Sequence[str], indexed_columns: int) -> None:
        self._partitions = {name: schema.field(name).type for name in partition_columns}
        stored = [field for field in schema if field.name not in self._partitions]
        self._columns = dict(list(_leaves(stored))[:indexed_columns])

    @cached_property
    def fields(self) -> Mapping[str, pa.StructType]:
        """Return the fields of an add that hold structs, with their types."""
        parts = dict(_PLAIN)
        bounded = {column: kind for column, kind in self._columns.items() if has_bounds(kind)}
        if bounded:
            parts |= {"minValues": tree(bounded), "maxValues": tree(bounded)}
        if self._columns:
            parts["nullCount"] = tree(dict.fromkeys(self._columns, pa.int64()))
        statistics = {STRUCT: pa.struct(list(parts.items()))}
        return statistics | ({PARTITIONS: pa.struct(list(self._partitions.items()))} if self._partitions else {})

    def filled(self, adds: pa.StructArray) -> list[pa.Array]:
        """Return the structs of adds that have `stats`, `partitionValues`, and maybe an earlier `stats_parsed`."""
        structs: list[pa.Array] = [self._statistics(adds)]
        if self._partitions:
            values = pc.struct_field(adds, "partitionValues")
            columns = [_partition_column(values, name, kind) for name, kind in self._partitions.items()]
            structs.append(pa.StructArray.from_arrays(columns, fields=self.fields[PARTITIONS].fields))
        return structs

    def facts(self, rows: LogRows[AddFile]) -> str | None:
        """Return the statistics of many files together, in the form of one file's, partition columns included."""
        known: dict[ColumnPath, Bounds] = dict(bounds_of(rows, self._columns.items()))
        known |= {(name,): partition_bounds(rows, name, kind) for name, kind in self._partitions.items()}
        facts: dict[str, Any] = {"minValues": {}, "maxValues": {}, "nullCount": {}}
        for column, bounds in known.items():
            if not bounds.rows.null_count:
                facts["numRecords"] = pc.sum(bounds.rows).as_py()
            for group, value in _together(bounds).items():
                put(facts[group], column, value)
        return statistics_text(facts)

    def _statistics(self, adds: pa.StructArray) -> pa.StructArray:
        target = self.fields[STRUCT]
        texts = pc.struct_field(adds, "stats")
        earlier = pc.struct_field(adds, STRUCT) if adds.type.get_field_index(STRUCT) >= 0 else None
        if earlier is None:
            return self._parsed(texts)
        kept = conformed(earlier, target, strict=False)
        better = pc.is_valid(texts)
        if _covers(earlier.type, target):
            better = pc.and_(better, pc.is_null(earlier))
        if not pc.any(better).as_py():
            return kept
        return pc.if_else(better, self._parsed(texts), kept)

    def _parsed(self, texts: pa.Array) -> pa.StructArray:
        parsed = parse_texts(texts, self._columns)
        return _struct(parsed, self.fields[STRUCT], pc.is_valid(texts))


def _leaves(fields: Sequence[pa.Field], path: ColumnPath = ()) -> Iterator[tuple[ColumnPath, pa.DataType]]:
    for field in fields:
        if pa.types.is_struct(field.type):
            yield from _leaves(list(field.type), (*path, field.name))
        else:
            yield (*path, field.name), field.type


def _struct(parsed: ManyStatistics, kind: pa.StructType, present: pa.BooleanArray) -> pa.StructArray:
    groups: dict[str, Callable[[ColumnStatistics], pa.Array]] = {
        "minValues": attrgetter("low"),
        "maxValues": attrgetter("high"),
        "nullCount": attrgetter("nulls"),
    }

    def build(kind: pa.DataType, group: str, path: ColumnPath) -> pa.Array:
        if pa.types.is_struct(kind):
            parts = [build(field.type, group, (*path, field.name)) for field in kind]
            return pa.StructArray.from_arrays(parts, fields=list(kind))
        return groups[group](parsed.columns[path])

    plain: dict[str, pa.Array] = {"numRecords": parsed.rows, "tightBounds": parsed.tight}
    columns = [plain[field.name] if field.name in plain else build(field.type, field.name, ()) for field in kind]
    return struct_of(kind, columns, present)


def _covers(stored: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a struct type has all leaves of another, in their types."""
    if not pa.types.is_struct(wanted):
        return stored == wanted
    if not pa.types.is_struct(stored):
        return False
    places = [(field.type, stored.get_field_index(field.name)) for field in wanted]
    return all(place >= 0 and _covers(stored.field(place).type, kind) for kind, place in places)


def _partition_column(values: pa.Array, name: str, kind: pa.DataType) -> pa.Array:
    """Return a partition column's values; null for a text that is not valid."""
    codes = pc.map_lookup(values, query_key=pa.scalar(name), occurrence="last").dictionary_encode()

    def value(text: str | None) -> Any:
        try:
            return parse_partition_text(text, kind)
        except (ValueError, ArithmeticError):
            return None

    return pa.array([value(text) for text in codes.dictionary.to_pylist()], kind).take(codes.indices)


def _together(bounds: Bounds) -> dict[str, Any]:
    """Return the least and the greatest value and the nulls of many files, as far as all of them are known."""
    totals: dict[str, Any] = {}
    all_null = pc.fill_null(pc.equal(bounds.nulls, bounds.rows), fill_value=False)
    known = pc.or_(pc.is_valid(bounds.low), all_null)
    if has_bounds(bounds.low.type) and bounds.low.null_count < len(bounds.low) and pc.all(known).as_py():
        totals = {"minValues": pc.min(bounds.low).as_py(), "maxValues": pc.max(bounds.high).as_py()}
    possible = pc.and_(pc.greater_equal(bounds.nulls, 0), pc.less_equal(bounds.nulls, bounds.rows))
    if pc.all(pc.fill_null(possible, fill_value=False)).as_py():
        totals["nullCount"] = pc.sum(bounds.nulls).as_py()
    return totals
