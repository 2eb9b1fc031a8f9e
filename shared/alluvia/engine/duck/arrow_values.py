"""Results of DuckDB as Arrow, without the values that Arrow's form of them would change.

DuckDB gives its 128-bit integers to Arrow as DECIMAL(38, 0), even those of 39 digits; the largest unsigned ones become
negative. Times lose their zone, and some types come as bytes of DuckDB's own form.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.schema.digits import parts_of
from alluvia.errors import Invalid

if TYPE_CHECKING:
    import duckdb

    Kind = duckdb.sqltypes.DuckDBPyType

_MOST = 10**38 - 1
_LEAST = {"hugeint": -_MOST, "uhugeint": 0}
_NOT_SENT = frozenset({"bit", "bignum", "time with time zone"})
_NESTED = ("list", "array", "struct", "map", "union")


def arrow_reader(result: duckdb.DuckDBPyConnection, batch_rows: int) -> pa.RecordBatchReader:
    """Return a result's rows in batches. Raises `Invalid`, at once or as they are read, naming the column."""
    wide = _wide_columns(result)
    reader = result.to_arrow_reader(batch_rows)
    if not wide:
        return reader

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            _check(wide, batch)
            yield batch

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


def arrow_table(result: duckdb.DuckDBPyConnection) -> pa.Table:
    """Return all rows of a result. Raises `Invalid`, naming the column."""
    wide = _wide_columns(result)
    table = result.to_arrow_table()
    if wide:
        for batch in table.to_batches():
            _check(wide, batch)
    return table


def _wide_columns(result: duckdb.DuckDBPyConnection) -> list[tuple[int, str, Any]]:
    """Return the columns that hold 128-bit integers: place, name and type. Raises `Invalid` for what is not sent."""
    found = []
    for at, (name, kind, *_) in enumerate(result.description or ()):
        ids = set(_ids(kind))
        if not ids.isdisjoint(_NOT_SENT):
            shown = next(each for each in _parts(kind) if each.id in _NOT_SENT)
            raise Invalid(
                f"the column {name:.100} has values of the type {shown}, which an answer cannot contain: "
                "select CAST(… AS VARCHAR) instead"
            )
        if not ids.isdisjoint(_LEAST):
            found.append((at, name, kind))
    return found


def _ids(kind: Kind) -> Iterator[str]:
    return (each.id for each in _parts(kind))


def _parts(kind: Kind) -> Iterator[Kind]:
    yield kind
    for part in _children(kind):
        yield from _parts(part)


def _children(kind: Kind) -> list[Kind]:
    """Return the types of a nested type's parts, in the order in which Arrow has them."""
    if kind.id not in _NESTED:
        return []
    named: list[tuple[str, Any]] = kind.children
    return [part for name, part in named if not isinstance(part, int) and not (kind.id == "union" and not name)]


def _check(columns: list[tuple[int, str, Any]], batch: pa.RecordBatch) -> None:
    for at, name, kind in columns:
        wrong = _beyond(batch.column(at), kind)
        if wrong is not None:
            raise Invalid(
                f"the column {name:.100} has a value of the type {wrong} beyond the 38 digits of DECIMAL(38, 0), which "
                "is the widest number that a result can have: write CAST(… AS VARCHAR) or CAST(… AS DOUBLE)"
            )


def _beyond(values: Any, kind: Kind) -> str | None:
    """Return the type of an integer that Arrow shows as another, or with more digits than its type has; else None."""
    if kind.id in _LEAST:
        bounds = pc.min_max(values)
        low, high = bounds["min"].as_py(), bounds["max"].as_py()
        wrong = low is not None and (low < _LEAST[kind.id] or high > _MOST)
        return str(kind) if wrong else None
    if set(_ids(kind)).isdisjoint(_LEAST):
        return None
    pairs = zip(parts_of(values), _children(kind), strict=True)
    return next((found for part, child in pairs if (found := _beyond(part, child)) is not None), None)
