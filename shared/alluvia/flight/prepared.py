"""Prepared statements: a text that waits for the values of its parameters, which are bound and never part of it."""

from __future__ import annotations

from dataclasses import field
from typing import Any

import pyarrow as pa

from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.sql.binding import parameter_names

SETS_MAX = 100_000
"""So many rows of values may be bound at once."""
VALUES_MAX = 1_000_000
_PLAIN = (
    *(pa.types.is_null, pa.types.is_boolean, pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal),
    *(pa.types.is_string, pa.types.is_large_string, pa.types.is_binary, pa.types.is_large_binary),
    *(pa.types.is_date, pa.types.is_timestamp, pa.types.is_time),
)
"""Types whose values take about as much in Python as they do on the wire. Those of others may repeat one for ever."""


@dataclass(slots=True)
class Prepared:
    """A statement, in the transaction of a handle if that is not empty, with the columns that it answers as a query.

    `ended` says that the client has committed that transaction, or rolled it back.
    `sets` has the values of each run by name; None where no values are bound.
    """

    text: str
    transaction: bytes
    is_query: bool
    columns: pa.Schema
    sets: list[dict[str, Any] | None] = field(default_factory=lambda: [None])
    ended: bool = False

    def bind(self, rows: pa.Table | None) -> None:
        """Bind rows of values to the parameters: by name if the columns are called as they are, else in their order.

        Raises `Invalid` where they do not match, or a value is of a type that SQL does not get.
        """
        self.sets = [None] if rows is None or not rows.num_columns else list(_sets(self.text, rows))


def _sets(text: str, rows: pa.Table) -> list[dict[str, Any]]:
    names = parameter_names(text)
    if rows.num_rows > SETS_MAX:
        raise Invalid(f"{rows.num_rows} rows of values were bound, more than the limit of {SETS_MAX}: bind fewer")
    if rows.num_columns != len(names):
        raise Invalid(f"the SQL has {len(names)} parameters, and {rows.num_columns} values were bound")
    given = [name.removeprefix("$") for name in rows.column_names]
    order = given if set(given) == set(names) else names
    columns = [_values(name, column) for name, column in zip(order, rows.columns, strict=True)]
    return [dict(zip(order, values, strict=True)) for values in zip(*columns, strict=True)]


def _values(name: str, column: pa.ChunkedArray) -> list[Any]:
    """Return values as Python has them. Raises `Invalid` for times that are finer than a microsecond."""
    kind = column.type
    if not _is_plain(kind):
        raise Invalid(
            f"parameter {name} has the type {kind!s:.100}, which SQL does not get: send plain values or lists"
        )
    if sum(_count(chunk) for chunk in column.chunks) > VALUES_MAX:
        raise Invalid(f"parameter {name} has more than {VALUES_MAX} values: bind fewer at a time")
    try:
        if pa.types.is_timestamp(kind) and kind.unit == "ns":
            column = column.cast(pa.timestamp("us", kind.tz))
        found: list[Any] = column.to_pylist()
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise Invalid(f"parameter {name} has a value that SQL does not get: {error}") from None
    return found


def _is_plain(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_is_plain(field.type) for field in kind.fields)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _is_plain(kind.value_type)
    return any(each(kind) for each in _PLAIN)


def _count(values: pa.Array) -> int:
    """Return how many values there are, those within lists and structs included."""
    if isinstance(values, pa.StructArray):
        return len(values) + sum(_count(each) for each in values.flatten())
    if isinstance(values, pa.ListArray | pa.LargeListArray):
        return len(values) + _count(values.flatten())
    return len(values)
