"""A table's files as a DuckDB relation: the text of the SELECT that reads them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import orjson
import pyarrow as pa

from alluvia.log.actions import AddFile

_DUCKDB = {
    "string": "VARCHAR",
    "int64": "BIGINT",
    "int32": "INTEGER",
    "int16": "SMALLINT",
    "int8": "TINYINT",
    "float": "FLOAT",
    "double": "DOUBLE",
    "bool": "BOOLEAN",
    "binary": "BLOB",
    "date32[day]": "DATE",
    "timestamp[us, tz=UTC]": "TIMESTAMPTZ",
    "timestamp[us]": "TIMESTAMP",
}
_FILENAME = "alluvia_filename"


def quote_name(name: str) -> str:
    """Return an SQL identifier."""
    return '"' + name.replace('"', '""') + '"'


def quote_text(text: str) -> str:
    """Return an SQL text literal."""
    return "'" + text.replace("'", "''") + "'"


def duckdb_type(kind: pa.DataType) -> str:
    """Return DuckDB's name of a table's column type."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        return f"STRUCT({', '.join(f'{quote_name(field.name)} {duckdb_type(field.type)}' for field in fields)})"
    if pa.types.is_map(kind):
        return f"MAP({duckdb_type(kind.key_type)}, {duckdb_type(kind.item_type)})"
    if pa.types.is_list(kind):
        return f"{duckdb_type(kind.value_type)}[]"
    return _DUCKDB[str(kind)]


def relation_sql(
    schema: pa.Schema, partition_columns: Sequence[str], files: Sequence[AddFile], urls: Sequence[str]
) -> str:
    """Return a SELECT that gives exactly the columns of `schema`, in order and with its types, from some files.

    `urls` are the files' paths or s3:// URLs, one each. A column that a file lacks is null there; the values of
    partition columns come from the log. Without files it is an empty relation of the same columns.
    """
    if not files:
        return _empty(schema)
    stored = [field for field in schema if field.name not in partition_columns]
    source = _source(stored, files, urls)
    values = {_partition_row(file, schema, partition_columns) for file in files}
    if len(values) == 1:
        constants = dict(zip(partition_columns, values.pop(), strict=True))
        columns = ", ".join(_column(field, constants.get(field.name)) for field in schema)
        return f"SELECT {columns} FROM {source}"
    names = ", ".join(quote_name(name) for name in partition_columns)
    rows = ", ".join(
        f"({quote_text(url)}, {', '.join(_partition_row(file, schema, partition_columns))})"
        for file, url in zip(files, urls, strict=True)
    )
    columns = ", ".join(
        f"p.{quote_name(field.name)}" if field.name in partition_columns else _stored_column(field, "f.")
        for field in schema
    )
    return f"SELECT {columns} FROM {source} f JOIN (VALUES {rows}) p(path, {names}) ON f.{_FILENAME} = p.path"


def _source(stored: Sequence[pa.Field], files: Sequence[AddFile], urls: Sequence[str]) -> str:
    """Return the FROM clause: the files' rows with every stored column, whichever of them lack some."""
    paths = ", ".join(quote_text(escape_glob(url)) for url in urls)
    if all(_complete(file, stored) for file in files):
        return f"read_parquet([{paths}], hive_partitioning=false, filename={quote_text(_FILENAME)})"
    return (
        f"(SELECT * FROM read_parquet([{paths}], hive_partitioning=false, union_by_name=true, "
        f"filename={quote_text(_FILENAME)}) UNION ALL BY NAME {_empty(stored)})"
    )


def _empty(fields: Iterable[pa.Field]) -> str:
    columns = ", ".join(f"CAST(NULL AS {duckdb_type(field.type)}) AS {quote_name(field.name)}" for field in fields)
    return f"SELECT {columns} WHERE false"


def escape_glob(url: str) -> str:
    """Return a path in which DuckDB's wildcards stand for themselves."""
    return "".join(f"[{character}]" if character in "*?[" else character for character in url)


def _complete(file: AddFile, stored: Sequence[pa.Field]) -> bool:
    """Whether the statistics show that a file has every column, so that DuckDB need not compare the files' schemas."""
    if file.stats is None:
        return False
    counts = orjson.loads(file.stats).get("nullCount") or {}
    return all(field.name in counts for field in stored)


def _stored_column(field: pa.Field, qualifier: str = "") -> str:
    name = quote_name(field.name)
    return f"CAST({qualifier}{name} AS {duckdb_type(field.type)}) AS {name}"


def _column(field: pa.Field, constant: str | None) -> str:
    return _stored_column(field) if constant is None else f"{constant} AS {quote_name(field.name)}"


def _partition_row(file: AddFile, schema: pa.Schema, partition_columns: Sequence[str]) -> tuple[str, ...]:
    return tuple(_constant(file.partition_values.get(name), schema.field(name).type) for name in partition_columns)


def _constant(text: str | None, kind: pa.DataType) -> str:
    value = "NULL" if text is None or text == "" else quote_text(text)
    return f"CAST({value} AS {duckdb_type(kind)})"
