"""Prepared statements: a text that waits for the values of its parameters, which are bound and never part of it."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.sql.binding import parameter_names

SETS_MAX = 100_000
"""So many rows of values may be bound at once."""
VALUES_MAX = 1_000_000
"""In all rows and columns together, those within lists and structs included."""
VALUES_BYTES_MAX = 20 << 20
"""A request has half of that, so these are columns of the same bytes."""
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
    `rows` has the values of each run, by the names of parameters; None where no values are bound. They stay as Arrow
    until they run, which takes a fraction of what they take in Python.
    """

    text: str
    transaction: bytes
    is_query: bool
    columns: pa.Schema
    rows: pa.Table | None = None
    ended: bool = False

    @property
    def runs(self) -> int:
        """How often it is to run: once for each row of values, and once without values."""
        return 1 if self.rows is None else self.rows.num_rows

    def sets(self) -> list[dict[str, Any] | None]:
        """Return the values of each run by name, as Python has them; None where no values are bound.

        Raises `Invalid` for a value that Python does not have, such as a day after the year 9999.
        """
        if self.rows is None:
            return [None]
        names = self.rows.column_names
        columns = [_in_python(name, column) for name, column in zip(names, self.rows.columns, strict=True)]
        return [dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True)]


def fitted(text: str, rows: pa.Table | None) -> pa.Table | None:
    """Return rows of values with the names of a text's parameters; None if there are no values.

    They go by name if the columns are called as the parameters are, else in their order. Raises `Invalid` where they
    do not match, are too many, or a value is of a type that SQL does not get.
    """
    if rows is None or not rows.num_columns:
        return None
    names = parameter_names(text)
    if rows.num_rows > SETS_MAX:
        raise Invalid(f"{rows.num_rows} rows of values were bound, more than the limit of {SETS_MAX}: bind fewer")
    if rows.num_columns != len(names):
        raise Invalid(f"the SQL has {len(names)} parameters, and {rows.num_columns} values were bound")
    given = [name.removeprefix("$") for name in rows.column_names]
    order = given if set(given) == set(names) else names
    if sum(_count(chunk) for column in rows.columns for chunk in column.chunks) > VALUES_MAX:
        raise Invalid(f"more than {VALUES_MAX} values were bound, in all rows and columns: bind fewer at a time")
    if rows.nbytes > VALUES_BYTES_MAX:
        raise Invalid(f"the values take more than {VALUES_BYTES_MAX} bytes: bind fewer at a time")
    columns = [_plain(name, column) for name, column in zip(order, rows.columns, strict=True)]
    # Else they would keep all of the request, of which they may be a part.
    return pa.table(columns, names=order).take(pa.array(range(rows.num_rows), pa.int64()))


def _plain(name: str, column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return values with times in microseconds. Raises `Invalid` for finer ones, and for other types."""
    kind = column.type
    if not _is_plain(kind):
        raise Invalid(
            f"parameter {name} has the type {kind!s:.100}, which SQL does not get: send plain values or lists"
        )
    if not pa.types.is_timestamp(kind) or kind.unit != "ns":
        return column
    try:
        return column.cast(pa.timestamp("us", kind.tz))
    except (pa.ArrowException, ValueError) as error:
        raise Invalid(f"parameter {name} has a value that SQL does not get: {error}") from None


def _in_python(name: str, column: pa.ChunkedArray) -> list[Any]:
    try:
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
