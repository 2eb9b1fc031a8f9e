"""A table's leaf columns, and their values and bounds in a form that compares exactly. Pure.

Times are whole microseconds and dates whole days since the Unix epoch, so that those outside Python's range of years
compare as well.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import field
from datetime import date, datetime, timedelta
from decimal import Decimal, localcontext
from typing import Any

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.log.actions import Metadata, Protocol
from alluvia.delta.schema.column_mapping import ColumnMapping, mapping_of, physical_schema
from alluvia.delta.schema.names import ColumnPath
from alluvia.delta.schema.serialization import arrow_schema
from alluvia.delta.statistics.typed import has_bounds, typed_value
from alluvia.errors import Corrupt
from alluvia.lazy_dataclasses import dataclass

_MILLISECOND_US = 1000
_ROUNDING = Decimal(2) ** -50
_DECIMAL_DIGITS_MAX = 38
_SHOWN_MAX = 80
_TEXT_KEPT_MIN = 16
"""No writer is known to cut text shorter than this in statistics."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A leaf column: its path in the table, its path in files and statistics, and its type.

    The type of a variant is the one that it is stored in: what statistics say of it is not about its text.
    """

    path: ColumnPath
    physical: ColumnPath
    kind: pa.DataType

    @property
    def name(self) -> str:
        """Return the name that people know it by."""
        return ".".join(self.path)


def leaves_of(schema: pa.Schema, physical: pa.Schema) -> Iterator[Leaf]:
    """Yield the leaves of a table's columns; lists and maps count as leaves. `physical` is alike, field by field."""
    for ours, theirs in zip(schema, physical, strict=True):
        yield from _leaves((ours.name,), (theirs.name,), ours.type, theirs.type)


def _leaves(path: ColumnPath, physical: ColumnPath, kind: pa.DataType, stored: pa.DataType) -> Iterator[Leaf]:
    if not pa.types.is_struct(kind) or not pa.types.is_struct(stored):
        yield Leaf(path, physical, stored if pa.types.is_struct(stored) else kind)
        return
    for ours, theirs in zip(kind.fields, stored.fields, strict=True):
        yield from _leaves((*path, ours.name), (*physical, theirs.name), ours.type, theirs.type)


def bound(value: Any, kind: pa.DataType) -> Any:
    """Return a bound from statistics' JSON in comparable form; None if it is not of the type."""
    typed = typed_value(value, kind)
    if isinstance(typed, datetime):
        return (typed.replace(tzinfo=None) - datetime(1970, 1, 1)) // timedelta(microseconds=1)  # noqa: DTZ001
    if isinstance(typed, date):
        return typed.toordinal() - date(1970, 1, 1).toordinal()
    return typed


def comparable(scalar: pa.Scalar) -> Any:
    """Return a column's value in comparable form."""
    return scalar.value if isinstance(scalar, (pa.TimestampScalar, pa.Date32Scalar)) else scalar.as_py()


def shown(value: Any, kind: pa.DataType) -> str:
    """Return a value in comparable form as people read it."""
    if value is None:
        return "nothing"
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        unit = timedelta(microseconds=1) if pa.types.is_timestamp(kind) else timedelta(days=1)
        try:
            moment = datetime(1970, 1, 1) + value * unit  # noqa: DTZ001
        except OverflowError:
            return str(value)
        return str(moment.isoformat() if pa.types.is_timestamp(kind) else moment.date())
    text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= _SHOWN_MAX else f"{text[:_SHOWN_MAX]}…"


def excludes(low: Any, high: Any, least: Any, greatest: Any, kind: pa.DataType) -> bool:
    """Whether bounds leave out a value between the least and the greatest that there are.

    A maximum that was cut counts: text to its start, times to the millisecond. None means unbounded.
    """
    if low is not None and least < low:
        return True
    if high is None or greatest <= high:
        return False
    if pa.types.is_timestamp(kind):
        return bool(greatest >= high + _MILLISECOND_US)
    if pa.types.is_string(kind):
        return not (len(high) >= _TEXT_KEPT_MIN and greatest.startswith(high))
    return True


def is_rounded(low: Any, high: Any, least: Any, greatest: Any, kind: pa.DataType) -> bool:
    """Whether bounds are the true ones, rounded to fewer digits than the column has.

    Some writers bring decimals through floating-point numbers; and a column of doubles that was once one of floats has
    files whose bounds are as short as those of floats.
    """
    pairs = [(said, true) for said, true in ((low, least), (high, greatest)) if said is not None]
    if pa.types.is_decimal(kind):
        with localcontext(prec=2 * _DECIMAL_DIGITS_MAX):
            return all(abs(said - true) <= abs(true) * _ROUNDING for said, true in pairs)
    if kind == pa.float64():
        return all(true in (said, pa.scalar(said, pa.float32()).as_py()) for said, true in pairs)
    return False


def is_loose(low: Any, high: Any, least: Any, greatest: Any, kind: pa.DataType) -> bool:
    """Whether a bound lies further out than cutting values explains."""
    if pa.types.is_string(kind):
        return (low is not None and _shared(low, least) < len(low)) or (
            high is not None and _shared(high, greatest) < len(high) - 1
        )
    if pa.types.is_timestamp(kind):
        least, greatest = least - _MILLISECOND_US + 1, greatest + _MILLISECOND_US - 1
    return (low is not None and low < least) or (high is not None and high > greatest)


def _shared(one: str, other: str) -> int:
    """Return how many characters two texts have in common at their start."""
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


def stored_leaves(protocol: Protocol | None, metadata: Metadata) -> tuple[Leaf, ...]:
    """Return the leaf columns in a table's data files. Raises `Corrupt` or `Unsupported`."""
    schema = arrow_schema(metadata.schema_string)
    lacking = [name for name in metadata.partition_columns if name not in schema.names]
    if lacking:
        msg = f"the table's metaData names the partition column {lacking[0]!r}, which is not in its schemaString"
        raise Corrupt(msg)
    mapping = ColumnMapping.NONE if protocol is None else mapping_of(protocol, metadata)
    physical = physical_schema(metadata.schema_string, mapping)
    return tuple(leaf for leaf in leaves_of(schema, physical) if leaf.path[0] not in metadata.partition_columns)


@dataclass(slots=True)
class ColumnTally:
    """Of one leaf column: nulls of all rows and of live ones; least and greatest live value, NaN left out."""

    nulls: int = 0
    live_nulls: int = 0
    least: Any = None
    greatest: Any = None


@dataclass(slots=True)
class Tally:
    """Of a file's rows so far; `deleted` are those of them that a deletion vector deletes.

    A column that a batch lacks, because its values cannot be read, is dropped.
    """

    leaves: Sequence[Leaf]
    rows: int = 0
    deleted: int = 0
    columns: dict[ColumnPath, ColumnTally] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.columns = {leaf.path: ColumnTally() for leaf in self.leaves}

    def take(self, batch: pa.RecordBatch, live: pa.RecordBatch) -> None:
        """Count a batch of which `live` are the rows that are not deleted."""
        self.rows += len(batch)
        self.deleted += len(batch) - len(live)
        readable = {*live.schema.names}
        for leaf in self.leaves:
            seen = self.columns.get(leaf.path)
            if seen is None or leaf.path[0] not in readable:
                self.columns.pop(leaf.path, None)
                continue
            shown = _leaf(live, leaf.path)
            seen.live_nulls += shown.null_count
            seen.nulls += shown.null_count if live is batch else _leaf(batch, leaf.path).null_count
            if has_bounds(leaf.kind):
                _widen(seen, shown)


def _leaf(batch: pa.RecordBatch, path: ColumnPath) -> pa.Array:
    values = batch.column(path[0])
    for name in path[1:]:
        values = pc.struct_field(values, name)
    return values


def _widen(seen: ColumnTally, values: pa.Array) -> None:
    if pa.types.is_floating(values.type):
        values = values.filter(pc.invert(pc.fill_null(pc.is_nan(values), fill_value=False)))
    if values.null_count == len(values):
        return
    both = pc.min_max(values)
    least, greatest = comparable(both["min"]), comparable(both["max"])
    seen.least = least if seen.least is None else min(seen.least, least)
    seen.greatest = greatest if seen.greatest is None else max(seen.greatest, greatest)
