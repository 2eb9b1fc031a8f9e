"""Results of DuckDB as Arrow, without the values that Arrow's form of them would change.

DuckDB gives its 128-bit integers to Arrow as DECIMAL(38, 0), even those of 39 digits; the largest unsigned ones become
negative. Times lose their zone, and some types come as bytes of DuckDB's own form.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol, cast

import orjson
import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.delta.schema.conversion import parts_of
from alluvia.delta.schema.names import fold
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass

_SIGNED = ("tinyint", "smallint", "integer", "bigint", "hugeint")
_WIDTHS = {name: 8 << at for at, name in enumerate(_SIGNED)}
_INTEGERS = frozenset({*_SIGNED, "utinyint", "usmallint", "uinteger", "ubigint", "uhugeint"})
_TIMES = frozenset({"timestamp", "timestamp with time zone", "timestamp_ns", "timestamp_ms", "timestamp_s"})
_WITH_CHILDREN = ("struct", "map", "list", "decimal")
_PLAIN = {"string": "varchar", "binary": "blob", "bool": "boolean", "date32[day]": "date"}


class DuckType(Protocol):
    """A type as DuckDB's Python client has it."""

    @property
    def id(self) -> str:
        """Its kind, such as `integer` or `struct`."""

    @property
    def children(self) -> list[tuple[str, Any]]:
        """Names and types of the parts of a nested type; precision and scale of a decimal."""


@dataclass(frozen=True, slots=True)
class ToldType:
    """A type that another process has told of, by `told`."""

    id: str
    children: list[tuple[str, Any]]


def told(kind: DuckType | int) -> Any:
    """Return a type as values that JSON has; the parts of kinds that no table has are left out."""
    if isinstance(kind, int):
        return kind
    children = kind.children if kind.id in _WITH_CHILDREN else []
    return [kind.id, [(name, told(child)) for name, child in children]]


def read_told(kind: Any) -> Any:
    """Return the type that `told` told of."""
    return kind if isinstance(kind, int) else ToldType(kind[0], [(name, read_told(child)) for name, child in kind[1]])


def fits(stored: DuckType, kind: pa.DataType) -> bool:
    """Whether DuckDB may cast a file's column to a type of the table's physical schema."""
    types = pa.types
    if types.is_struct(kind):
        return stored.id == "struct" and _struct_fits(dict(stored.children), kind)
    if types.is_map(kind):
        parts = dict(stored.children) if stored.id == "map" else {}
        return bool(parts) and fits(parts["key"], kind.key_type) and fits(parts["value"], kind.item_type)
    if types.is_list(kind):
        return stored.id == "list" and fits(dict(stored.children)["child"], kind.value_type)
    if types.is_integer(kind):
        return stored.id in _INTEGERS
    if types.is_floating(kind):
        return stored.id == "float" or (types.is_float64(kind) and (stored.id == "double" or stored.id in _INTEGERS))
    if types.is_decimal(kind):
        return stored.id == "decimal" or stored.id in _INTEGERS
    if types.is_timestamp(kind):
        return stored.id in _TIMES or (stored.id == "date" and kind.tz is None)
    return stored.id == _PLAIN[str(kind)]


def _struct_fits(children: dict[str, DuckType], kind: pa.StructType) -> bool:
    """Whether a struct has one of the fields at least (DuckDB asks for that), and none of another type."""
    known = {fold(name): child for name, child in children.items()}
    present = [field for field in kind.fields if fold(field.name) in known]
    return bool(present) and all(fits(known[fold(field.name)], field.type) for field in present)


def narrows(stored: DuckType, kind: pa.DataType) -> bool:
    """Whether DuckDB casts a file's whole numbers to a smaller kind of the table's."""
    return pa.types.is_integer(kind) and stored.id in _INTEGERS and _WIDTHS.get(stored.id, 128) > kind.bit_width


def holds(stored: DuckType, kind: pa.DataType) -> bool:
    """Whether a type that fits has all fields and values of the table's: DuckDB casts all files to the first one's."""
    types = pa.types
    if types.is_struct(kind):
        known = {fold(name): child for name, child in stored.children}
        fields = {fold(field.name): field.type for field in kind.fields}
        return all(name in known and holds(known[name], each) for name, each in fields.items())
    if types.is_map(kind):
        parts = dict(stored.children)
        return holds(parts["key"], kind.key_type) and holds(parts["value"], kind.item_type)
    if types.is_list(kind):
        return holds(dict(stored.children)["child"], kind.value_type)
    if types.is_integer(kind):
        return bool(_WIDTHS.get(stored.id, 0) >= kind.bit_width)
    if types.is_floating(kind):
        return stored.id == str(kind)
    if types.is_decimal(kind):
        parts = dict(stored.children) if stored.id == "decimal" else {"precision": 0, "scale": 0}
        whole = parts["precision"] - parts["scale"]
        return bool(whole >= kind.precision - kind.scale and parts["scale"] >= kind.scale)
    return not types.is_timestamp(kind) or stored.id in ("timestamp", "timestamp with time zone")


if TYPE_CHECKING:
    import duckdb

    Kind = duckdb.sqltypes.DuckDBPyType

_MOST = 10**38 - 1
_LEAST = {"hugeint": -_MOST, "uhugeint": 0}
_NOT_SENT = frozenset({"bit", "bignum", "time with time zone", "variant"})
_EXPLAIN = "EXPLAIN "
_BEFORE_FIELDS = " Error: "
_NESTED = ("list", "array", "struct", "map", "union")


def since_2() -> bool:
    """Whether the installed DuckDB is 2.0 or later. Decision 0081 lists the differences."""
    from alluvia.engine.duck.native import duckdb

    return int(duckdb.__version__.partition(".")[0]) >= 2


def result_of(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Any = None) -> duckdb.DuckDBPyConnection:
    """Run a query and return its result, to be read as Arrow batch by batch.

    DuckDB 1.5 streams the rows of `execute`, and 2.0 those of `sql`; the other call holds all rows in memory.
    """
    if not since_2():
        return connection.execute(sql, parameters)
    from alluvia.engine.duck.native import duckdb

    try:
        return cast("duckdb.DuckDBPyConnection", cast("Any", connection).sql(sql, params=parameters or None))
    except (duckdb.BinderException, duckdb.CatalogException) as error:
        raise _placed(connection, sql, parameters, error) from None


def _placed(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Any, error: duckdb.Error) -> duckdb.Error:
    """Return an error about a query with its place in it, which EXPLAIN tells and `sql` does not. Nothing runs."""
    from alluvia.engine.duck.native import duckdb

    try:
        connection.execute(_EXPLAIN + sql, parameters)
    except duckdb.Error as explained:
        kind, _, told = str(explained).partition(_BEFORE_FIELDS)
        fields = orjson.loads(told) if type(explained) is type(error) and told.startswith("{") else {}
        if fields.get("position", "").isdigit():
            fields["position"] = str(int(fields["position"]) - len(_EXPLAIN))
            return type(error)(f"{kind}{_BEFORE_FIELDS}{orjson.dumps(fields).decode()}")
    return error


def arrow_reader(
    connection: duckdb.DuckDBPyConnection, sql: str, parameters: Any, batch_rows: int
) -> pa.RecordBatchReader:
    """Return a query's rows in batches. Raises `Invalid`, at once or as they are read, naming the column."""
    result = result_of(connection, sql, parameters)
    wide = _wide_columns(result)
    reader = result.to_arrow_reader(batch_rows)
    if not wide:
        return reader

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            _check(wide, batch)
            yield batch

    return pa.RecordBatchReader.from_batches(reader.schema, batches())


def arrow_table(connection: duckdb.DuckDBPyConnection, sql: str, parameters: Any = None) -> pa.Table:
    """Return all rows of a query. Raises `Invalid`, naming the column."""
    result = result_of(connection, sql, parameters)
    wide = _wide_columns(result)
    table = result.to_arrow_table()
    if wide:
        for batch in table.to_batches():
            _check(wide, batch)
    return table


def _wide_columns(result: duckdb.DuckDBPyConnection) -> list[tuple[int, str, Any]]:
    """Return the columns that hold 128-bit integers: place, name and type. Raises `Invalid` for what is not sent."""
    wide = []
    for at, (name, kind, *_) in enumerate(result.description or ()):
        ids = set(_ids(kind))
        if not ids.isdisjoint(_NOT_SENT):
            shown = next(each for each in _parts(kind) if each.id in _NOT_SENT)
            raise Invalid(
                f"the column {name:.100} has values of the type {shown}, which an answer cannot contain: "
                "select CAST(… AS VARCHAR) instead"
            )
        if not ids.isdisjoint(_LEAST):
            wide.append((at, name, kind))
    return wide


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
    return next((value for part, child in pairs if (value := _beyond(part, child)) is not None), None)
