"""A table's files as a DuckDB relation: the text of the SELECT that reads them. Pure.

Columns that a file lacks are null, fields of structs as well; columns are found under their physical names; the values
of partition columns come from the log; rows that a deletion vector deletes are left out by their number in the file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from itertools import groupby, starmap
from typing import Any

import pyarrow as pa

from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.paths import is_own_name
from alluvia.delta.partitioning.values import partition_value
from alluvia.delta.promoted_fields import PROPERTIES
from alluvia.delta.schema.names import fold
from alluvia.delta.schema.nesting import not_for_sql
from alluvia.delta.schema.variant_shredding import WHOLE, form_of
from alluvia.delta.schema.variants import is_variant
from alluvia.engine.duck.file_kinds import FileKinds, stored_fields
from alluvia.engine.duck.literals import free_name, quote_name, quote_text
from alluvia.engine.duck.promoted_sql import shown_columns, trust, without_keys
from alluvia.engine.duck.variant_sql import shown_sql_of
from alluvia.errors import Unsupported
from alluvia.lazy_dataclasses import dataclass

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
_WILDCARD = re.compile(r"[*?\[]")
Pairs = Sequence[tuple[AddFile, str]]
_ROWS_MAX = 2**63 - 1
FILE_NUMBER, ROW_NUMBER = "file_index", "file_row_number"
"""DuckDB's names for the number of a file among those that it reads, and of a row in its file, both from 0.

It knows them by these names only where the files have no such columns. Its option `filename` is not used: with it,
DuckDB takes conditions on a column that files call `filename` for conditions on their paths.
"""


@dataclass(frozen=True, slots=True)
class RowPlaces:
    """Names of two columns that say where rows are: the number of their file, and of the row in it, both from 0."""

    file: str
    position: str


def duckdb_type(kind: pa.DataType) -> str:
    """Return DuckDB's name of a table's column type. Raises `Unsupported` for a struct without fields."""
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    if pa.types.is_struct(kind):
        fields = [kind.field(at) for at in range(kind.num_fields)]
        if not fields:
            msg = "the table has a struct without fields, which SQL cannot show: read the other columns with scan"
            raise Unsupported(msg)
        return f"STRUCT({', '.join(f'{quote_name(field.name)} {duckdb_type(field.type)}' for field in fields)})"
    if pa.types.is_map(kind):
        return f"MAP({duckdb_type(kind.key_type)}, {duckdb_type(kind.item_type)})"
    if pa.types.is_list(kind):
        return f"{duckdb_type(kind.value_type)}[]"
    return _DUCKDB[str(kind)]


@dataclass(frozen=True, slots=True)
class RelationPart:
    """Some of a relation's files: `source` reads them, `frame` and `columns` make the table's columns of that.

    `unified` is a part of the same files that compares their schemas; None if this part does so itself. Otherwise,
    columns have the types of the first file, and structs its fields, so the caller must check that `source` has all
    columns. If `lacks` is true, columns that all the files lack may be missing.
    """

    files: tuple[AddFile, ...]
    source: str
    frame: str
    columns: str
    reserved: frozenset[str] = frozenset()
    """Names, in lower case, that no column of the files may have."""
    unified: RelationPart | None = None
    lacks: bool = False
    compares: bool = False
    """Whether `source` has the columns of all files; otherwise it has those of the first."""

    def sql(self, source: str | None = None) -> str:
        """Return the SELECT, from its own source or from a view of it."""
        return f"SELECT {self.columns} FROM {self.frame.format(source or self.source)}"


def relation_sql(
    schema: pa.Schema,
    partition_columns: Sequence[str],
    files: Sequence[AddFile],
    urls: Sequence[str],
    physical: pa.Schema | None = None,
    deleted: str | None = None,
) -> str:
    """Return a SELECT that gives exactly the columns of `schema`, in order and with its types, from some files.

    `urls` are the files' paths or s3:// URLs, one each. `physical` is the schema, field by field, with the names that
    columns have in files (its own by default). `deleted` is the SQL name of a relation of deleted rows, needed where a
    file has a deletion vector: `file`, the number of a file among those with one, and `position`, both from 0. Without
    files it is an empty relation of the columns.
    Raises `Corrupt` for a partition value that is not of its type.
    """
    names = schema if physical is None else physical
    kinds = FileKinds(schema, names, partition_columns, files)
    parts = relation_parts(schema, partition_columns, files, urls, kinds, names, deleted)
    return union_sql(schema, [part.sql() for part in parts])


def union_sql(schema: pa.Schema, selects: Sequence[str]) -> str:
    """Return the rows of all SELECTs; an empty relation of the columns if there are none."""
    return " UNION ALL ".join(selects) or empty_sql(schema)


def shown_sql(
    relation: str, schema: pa.Schema, columns: Sequence[str], where: Sequence[str], without: Collection[str] = ()
) -> str:
    """Return a SELECT of some columns of a relation of a schema, and of the rows for which SQL conditions hold.

    `without` are keys that `properties` is shown without. DuckDB moves no condition below a LIMIT, so it evaluates
    nothing of a query on a row that is not shown.
    """
    rows = free_name("rows", schema.names)
    text = f"{rows}.{quote_name(PROPERTIES)}"
    cut = {PROPERTIES: f"{without_keys(text, without)} AS {quote_name(PROPERTIES)}"} if without else {}
    shown = ", ".join(cut.get(name, quote_name(name)) for name in columns)
    conditions = " AND ".join(f"(\n{text}\n)" for text in where) or "true"
    return f"SELECT {shown} FROM {relation} AS {rows} WHERE {conditions} LIMIT {_ROWS_MAX}"


def relation_parts(
    schema: pa.Schema,
    partition_columns: Sequence[str],
    files: Sequence[AddFile],
    urls: Sequence[str],
    kinds: FileKinds,
    physical: pa.Schema,
    deleted: str | None = None,
    position: str | None = None,
    fields: Mapping[str, str] | None = None,
) -> list[RelationPart]:
    """Return the parts of a relation: files without deletion vectors, and files with them (see `relation_sql`).

    With `position`, there is a last column of that name: the number of each row in its file. Consecutive files of one
    of the `kinds` are a part. `fields` are further columns, each with the argument of `->>` that finds it in
    `properties`.
    """
    pairs = list(zip(files, urls, strict=True))
    whole = [pair for pair in pairs if pair[0].deletion_vector is None]
    partial = [pair for pair in pairs if pair[0].deletion_vector is not None]
    if partial and deleted is None:
        raise ValueError("files with deletion vectors need the relation of the deleted rows")
    groups = [whole] if whole else []
    if FILE_NUMBER in map(fold, physical.names):  # then DuckDB cannot tell files apart, which their values differ by
        groups = _alike([(_partition_row(pair[0], schema, physical, partition_columns), pair) for pair in whole])
    form = _Form(schema, physical, partition_columns, position, kinds, fields or {})
    parts = [_part(form, each, None) for group in groups for each in _of_one_kind(group, kinds)]
    first = 0
    for each in _of_one_kind(partial, kinds):
        parts.append(_part(form, each, deleted, first))
        first += len(each)
    return parts


def _alike(pairs: Iterable[tuple[tuple[object, ...], tuple[AddFile, str]]]) -> list[list[tuple[AddFile, str]]]:
    """Return the files of each row of values."""
    groups: dict[tuple[object, ...], list[tuple[AddFile, str]]] = {}
    for row, pair in pairs:
        groups.setdefault(row, []).append(pair)
    return list(groups.values())


def _of_one_kind(pairs: Pairs, kinds: FileKinds) -> list[list[tuple[AddFile, str]]]:
    """Return runs of consecutive files of one kind."""
    return [list(each) for _, each in groupby(pairs, key=lambda pair: kinds.of(pair[0]))]


@dataclass(frozen=True, slots=True)
class _Form:
    """The columns of a relation, and those of its files; see `relation_parts`."""

    schema: pa.Schema
    physical: pa.Schema
    partition_columns: Sequence[str]
    position: str | None
    kinds: FileKinds
    fields: Mapping[str, str]

    @property
    def varies(self) -> bool:
        """Whether `frame` has other columns than files."""
        return bool(self.fields) or any(starmap(is_variant, zip(self.schema, self.physical, strict=True)))

    def read(self) -> _Form:
        """Return the form as it is once `frame` has made text of variants."""
        pairs = zip(self.schema, self.physical, strict=True)
        return replace(
            self,
            physical=pa.schema([each.with_type(ours.type) if is_variant(ours, each) else each for ours, each in pairs]),
        )

    def frame(self, file: AddFile) -> str:
        """Return the SQL of all columns of files like one, with variants as text, and of the `fields`."""
        pairs = zip(self.schema, self.physical, strict=True)
        column = next((stored.name for ours, stored in pairs if is_variant(ours, stored)), None)
        if column is not None:
            return shown_sql_of(column, form_of(file.tags) or WHOLE, self.fields)
        texts = quote_name(self.physical.field(self.schema.get_field_index(PROPERTIES)).name)
        return "*" + "".join(
            f", {texts} ->> {quote_text(path)} AS {quote_name(name)}" for name, path in self.fields.items()
        )

    def shown(self, columns: Sequence[str], file: AddFile) -> Sequence[str]:
        """Return the SQL of columns, given that of the stored columns of files like one."""
        promoted = self.kinds.promoted
        if not promoted:
            return columns
        stored = dict(zip(self.schema.names, columns, strict=True))
        types = {field.name: duckdb_type(field.type) for field in self.schema}
        new = shown_columns(promoted, trust(promoted, file), stored, types)
        return [new.get(name, column) for name, column in stored.items()]


def _part(form: _Form, pairs: Pairs, deleted: str | None, first: int = 0) -> RelationPart:
    """Return the part of some files. `first` is the number of the first of them among those with deletion vectors."""
    varied = _escaped(form.frame(pairs[0][0])) if form.varies else ""
    form = form.read()
    schema, physical, partition_columns, position = form.schema, form.physical, form.partition_columns, form.position
    stored = stored_fields(schema, physical, partition_columns)
    taken = [*schema.names, *physical.names]
    number, row_number = free_name("alluvia_file", taken), free_name("alluvia_row", taken)
    frame = ""
    if deleted is not None:
        at = f"f.{number} + {first}" if first else f"f.{number}"
        frame = f" ANTI JOIN {deleted} d ON {at} = d.file AND f.{row_number} = d.position"
    rows = [_partition_row(file, schema, physical, partition_columns) for file, _ in pairs]
    same = len(set(rows)) == 1
    if same:
        constants = dict(zip(partition_columns, rows[0], strict=True))
    else:
        names = ", ".join(quote_name(name) for name in partition_columns)
        values = ", ".join(f"({at}::UBIGINT, {', '.join(row)})" for at, row in enumerate(rows))
        joined = f"(VALUES {values}) p({number}, {names})"
        frame += f" JOIN {_escaped(joined)} ON f.{number} = p.{number}"
        constants = {name: f"p.{quote_name(name)}" for name in partition_columns}
    own = all(is_own_name(file.path) for file, _ in pairs)
    columns = [
        constants[ours.name] if ours.name in partition_columns else _stored_column(ours, theirs, own=own)
        for ours, theirs in zip(schema, physical, strict=True)
    ]
    columns = [*form.shown(columns, pairs[0][0])]
    shown = ", ".join(f"{column} AS {quote_name(field.name)}" for column, field in zip(columns, schema, strict=True))
    shown += "".join(f", f.{quote_name(name)}" for name in form.fields)
    if position is not None:
        shown += f", f.{row_number} AS {quote_name(position)}"
    numbers = {FILE_NUMBER: number} if deleted is not None or not same else {}
    numbers |= {ROW_NUMBER: row_number} if deleted is not None or position is not None else {}
    numbered = "".join(f", {name} AS {ours}" for name, ours in numbers.items())
    read = f"SELECT {varied or '*'}{numbered} FROM {{0}}"
    # Of a star, DuckDB binds all columns of the files.
    named = varied or ", ".join(_escaped(quote_name(field.name)) for field in stored) or "*"
    files, reserved = tuple(file for file, _ in pairs), frozenset([*numbers.keys(), *numbers.values()])
    paths = ", ".join(quote_text(escape_glob(url)) for _, url in pairs)
    one = RelationPart(files, _source(paths), f"(SELECT {named}{numbered} FROM {{0}}) f{frame}", shown, reserved)
    if not stored:
        return one
    whole = f"({read} UNION ALL BY NAME {_escaped(empty_sql(stored))}) f{frame}"
    unified = RelationPart(files, _source(paths, ", union_by_name=true"), whole, shown, reserved, compares=True)
    *_, kind = form.kinds.of(files[0])
    if kind == form.kinds.columns:
        return replace(one, unified=unified)
    return replace(one, unified=unified, frame=whole, lacks=True) if kind else unified


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _source(paths: str, options: str = "") -> str:
    """Return what reads some files, whose paths are SQL literals, with the columns of the first of them."""
    return f"read_parquet([{paths}], hive_partitioning=false{options})"


def empty_sql(fields: Iterable[pa.Field], rows: int = 0) -> str:
    """Return a relation of some columns, with `rows` rows of nulls. Raises `Unsupported` where there are none."""
    fields = list(fields)
    if not fields:
        raise Unsupported("the table has no columns, which SQL cannot show: add one")
    shown = ", ".join(f"CAST(NULL AS {duckdb_type(field.type)}) AS {quote_name(field.name)}" for field in fields)
    return f"SELECT {shown} FROM range({rows})" if rows else f"SELECT {shown} WHERE false"


def escape_glob(url: str) -> str:
    """Return a path with DuckDB's wildcards escaped."""
    return _WILDCARD.sub(r"[\g<0>]", url) if _WILDCARD.search(url) else url


def _holds_floats(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return _holds_floats(kind.key_type) or _holds_floats(kind.item_type)
    if pa.types.is_list(kind):
        return _holds_floats(kind.value_type)
    return pa.types.is_floating(kind) or (pa.types.is_struct(kind) and any(_holds_floats(f.type) for f in kind.fields))


def _stored_column(field: pa.Field, physical: pa.Field, *, own: bool) -> str:
    """Return a column's values; for one that takes DuckDB too long, what fails where a query needs them.

    The bounds of floating-point numbers in a file leave NaN out, and DuckDB, which sorts NaN above every number, takes
    them for bounds of all values, also of structs and lists. Our own files have no such bounds. In those of others
    (not `own`) TRY, which changes no value, stands between a condition and the bounds.
    """
    kind = field.type
    if (reason := not_for_sql(field)) is not None:
        return f"CAST(error({quote_text(reason)}) AS {duckdb_type(kind)})"
    stored = f"CAST(f.{quote_name(physical.name)} AS {duckdb_type(physical.type)})"
    if not own and _holds_floats(physical.type):
        stored = f"TRY({stored})"
    return _renamed(stored, kind, physical.type, 0)


def _renamed(value: str, kind: pa.DataType, physical: pa.DataType, depth: int) -> str:
    """Return an expression with the fields of its structs named as in the table."""
    if duckdb_type(kind) == duckdb_type(physical):
        return value
    if pa.types.is_struct(kind) and pa.types.is_struct(physical):
        fields = ", ".join(
            f"{quote_name(ours.name)} := "
            + _renamed(f"struct_extract({value}, {quote_text(theirs.name)})", ours.type, theirs.type, depth)
            for ours, theirs in zip(kind.fields, physical.fields, strict=True)
        )
        return f"CASE WHEN {value} IS NULL THEN NULL ELSE struct_pack({fields}) END"
    item = f"e{depth}"
    if pa.types.is_map(kind) and pa.types.is_map(physical):
        key = _renamed(f"{item}.key", kind.key_type, physical.key_type, depth + 1)
        entry = _renamed(f"{item}.value", kind.item_type, physical.item_type, depth + 1)
        pair = f"lambda {item}: struct_pack(key := {key}, value := {entry})"
        return f"map_from_entries(list_transform(map_entries({value}), {pair}))"
    if pa.types.is_list(kind) and pa.types.is_list(physical):
        element = _renamed(item, kind.value_type, physical.value_type, depth + 1)
        return f"list_transform({value}, lambda {item}: {element})"
    return value


def _partition_row(
    file: AddFile, schema: pa.Schema, physical: pa.Schema, partition_columns: Sequence[str]
) -> tuple[str, ...]:
    row = []
    for name in partition_columns:
        at = schema.get_field_index(name)
        kind = schema.field(at).type
        row.append(_constant(partition_value(file, physical.field(at).name, kind), kind))
    return tuple(row)


def _constant(value: Any, kind: pa.DataType) -> str:
    if value is None:
        text = "NULL"
    elif isinstance(value, bytes):
        text = quote_text("".join(f"\\x{byte:02X}" for byte in value))
    elif isinstance(value, (date, datetime)):
        text = quote_text(value.isoformat(sep=" ") if isinstance(value, datetime) else value.isoformat())
    else:
        text = quote_text(str(value))
    return f"CAST({text} AS {duckdb_type(kind)})"
