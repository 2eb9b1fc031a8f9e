"""Rows that come as a stream for one table: appended, with the table created or replaced where that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, cast

import pyarrow as pa

from alluvia.access.rights import Rights
from alluvia.api.lake_transaction import LakeTransaction
from alluvia.arrow_compute import pc
from alluvia.delta.schema.names import fold
from alluvia.engine.queries.tokens import tokens_of
from alluvia.errors import Invalid, TableExists, TableNotFound
from alluvia.flight.messages import Message
from alluvia.lazy_dataclasses import dataclass
from alluvia.query.parameters import arrow_row, named_values
from alluvia.sql.fitting import table_schema
from alluvia.sql.grammar.nodes import CreateTable, Insert
from alluvia.sql.grammar.statements import SqlStatement
from alluvia.sql.scope import check_statement
from alluvia.table_names import DATABASE, in_schema

Values = Mapping[str, Any]


def as_rows(statements: Sequence[SqlStatement], sets: Sequence[Values | None]) -> tuple[Insert, pa.Table] | None:
    """Return an INSERT and the rows that it writes, where its VALUES are parameters and nothing else.

    None for any other statement, where the values of a parameter differ in type, and where a row has other values than
    the statement has parameters: then each row is a statement, which says what is wrong.
    """
    node = statements[0].node if len(statements) == 1 else None
    if len(sets) < 2 or not isinstance(node, Insert) or not node.is_values or node.source is None:
        return None
    names = _only_parameters(node.source.text)
    rows = [each for each in sets if each is not None and each.keys() == set(names)]
    if not names or len(rows) < len(sets):
        return None
    values = {str(at): [each[name] for each in rows] for at, name in enumerate(names)}
    try:
        lists = arrow_row(named_values(values))
    except Invalid:
        return None
    columns = {name: cast("pa.ListArray", lists[name].combine_chunks()).flatten() for name in values}
    return node, pa.table(columns)


def _only_parameters(text: str) -> list[str]:
    """Return the names of the parameters in `VALUES (?, …)`; none if there is anything else."""
    tokens = [token for token in tokens_of(text) if token.word != ";"]
    words = [token.word for token in tokens]
    parameters, commas = tokens[2:-1:2], words[3:-1:2]
    if words[:2] != ["values", "("] or words[-1:] != [")"] or len(parameters) != len(commas) + 1:
        return []
    if any(token.kind != "parameter" for token in parameters) or any(word != "," for word in commas):
        return []
    return [text[token.start + 1 : token.end] or str(at) for at, token in enumerate(parameters, 1)]


CREATE, NOT_CREATE = 1, 2
FAIL, APPEND, REPLACE = 1, 2, 3
VIEWS_BYTES_MAX = 20 << 20
"""A batch comes in one message, of half that."""
BARE_VALUES_MAX = 4_000_000
"""So many values of a batch may be in columns that take no bytes, such as those of nulls alone."""


@dataclass(frozen=True, slots=True)
class IngestTarget:
    """Where rows go: a table, and what to do if it is missing or exists, by the numbers of FlightSql.proto."""

    table: str
    if_not_exist: int
    if_exists: int

    @classmethod
    def of(cls, asked: Message) -> IngestTarget:
        """Return what CommandStatementIngest asks for. Raises `Invalid` for what a lake does not have."""
        options = asked.table_definition_options
        if asked.temporary or asked.catalog not in ("", DATABASE):
            raise Invalid(
                f"a lake has no temporary tables, and one catalog, {DATABASE}: name the table and its schema alone"
            )
        if options.if_not_exist not in (CREATE, NOT_CREATE) or options.if_exists not in (FAIL, APPEND, REPLACE):
            raise Invalid("table_definition_options: say what to do if the table exists, and if it does not")
        return cls(in_schema(fold(asked.schema), fold(asked.table)), options.if_not_exist, options.if_exists)


def ingest(
    inner: LakeTransaction,
    target: IngestTarget,
    rows: pa.RecordBatchReader,
    rights: Rights | None,
    check_time: Callable[[], None],
) -> int:
    """Append rows in a transaction, and return how many; -1 where they were not counted. Raises what that raises.

    `check_time` is called for each batch, and raises when the time is up.
    """
    if rights is not None:
        _check_asked(rights, target)
    there = _is_there(inner, target.table)
    if there and target.if_exists == FAIL:
        raise TableExists(f"table {target.table!r} already exists: append to it, or replace it")
    if not there and target.if_not_exist == NOT_CREATE:
        raise TableNotFound(f"the lake has no table {target.table!r}: create it first, or as it is filled")
    creates = not there or target.if_exists == REPLACE
    if rights is not None and creates:
        _check_create(rights, target.table)
    plain = pa.schema([pa.field(each.name, _plain(each), each.nullable) for each in rows.schema])
    if creates:
        inner.create_table(target.table, table_schema(plain), replace=there)
    checked = pa.RecordBatchReader.from_batches(plain, _checked(rows, plain, check_time))
    count = inner.table(target.table).append(checked).rows
    return -1 if count is None else count


def _check_asked(rights: Rights, target: IngestTarget) -> None:
    """Raise `Forbidden` by what is asked for, before anything tells whether the table is there."""
    if target.if_exists == REPLACE or (target.if_exists == FAIL and target.if_not_exist == CREATE):
        _check_create(rights, target.table)
    else:
        check_statement(rights, "insert", Insert(target.table, None, None, False))


def _check_create(rights: Rights, table: str) -> None:
    check_statement(rights, "create table", CreateTable(table, if_not_exists=False))


def _is_there(inner: LakeTransaction, table: str) -> bool:
    try:
        inner.table(table)
    except TableNotFound:
        return False
    return True


def _checked(rows: pa.RecordBatchReader, plain: pa.Schema, check_time: Callable[[], None]) -> Iterator[pa.RecordBatch]:
    try:
        for batch in rows:
            check_time()
            batch.validate(full=True)
            _check_bounded(batch)
            pairs = zip(batch.columns, plain.types, strict=True)
            columns = [each if each.type.equals(kind) else each.cast(kind) for each, kind in pairs]
            yield pa.RecordBatch.from_arrays(columns, schema=plain)
    except (pa.ArrowException, OSError, ValueError):
        raise Invalid("the rows are not a stream of Arrow") from None


def _check_bounded(batch: pa.RecordBatch) -> None:
    """Raise `Invalid` where values take much more than they did in the message: they share bytes, or have none."""
    bare = shared_bytes = 0
    for field, column in zip(batch.schema, batch.columns, strict=True):
        bare += len(column) if column.nbytes * 8 < len(column) else 0
        if bare > BARE_VALUES_MAX:
            raise Invalid(
                f"column {field.name} has nothing in too many rows: send fewer than {BARE_VALUES_MAX} at a time"
            )
        shared_bytes += _shared_bytes(column)
        if shared_bytes > VIEWS_BYTES_MAX:
            raise Invalid(f"column {field.name} repeats the same bytes too often: send fewer rows at a time")


def _shared_bytes(column: pa.Array) -> int:
    """Return how many bytes values take by themselves that are views, or numbers of those in a dictionary; else 0."""
    types = pa.types
    if types.is_string_view(column.type) or types.is_binary_view(column.type):
        count = column.offset + len(column)
        numbers = pa.Array.from_buffers(pa.int32(), 4 * count, [None, column.buffers()[1]])  # a view is four numbers
        lengths = numbers.take(pa.array(range(4 * column.offset, 4 * count, 4), pa.int64()))
    elif not isinstance(column, pa.DictionaryArray):
        return 0
    elif _has_length(column.type.value_type):
        lengths = pc.binary_length(column.dictionary).take(column.indices)
    else:
        return len(column) * column.type.value_type.bit_width // 8
    return int(pc.sum(lengths.cast(pa.int64())).as_py() or 0)


def _has_length(kind: pa.DataType) -> bool:
    types = pa.types
    texts = types.is_string(kind) or types.is_large_string(kind)
    return texts or types.is_binary(kind) or types.is_large_binary(kind)


def _plain(field: pa.Field) -> pa.DataType:
    """Return the type of a column whose values all have bytes of their own. Raises `Invalid` for others within lists.

    Polars sends texts as views, many of which may be of the same bytes; in lists, nothing takes no bytes at all. What
    may repeat bytes as a column is bounded batch by batch.
    """
    if pa.types.is_string_view(field.type):
        return pa.string()
    if pa.types.is_binary_view(field.type):
        return pa.binary()
    if _repeats(field.type, nested=False) or not _is_simple_dictionary(field.type):
        raise Invalid(f"column {field.name} has the type {field.type!s:.100}: send lists and structs of plain values")
    return field.type


def _is_simple_dictionary(kind: pa.DataType) -> bool:
    """Whether a type is plain, or a dictionary of texts, of bytes, or of values of one width."""
    if not pa.types.is_dictionary(kind):
        return True
    value = kind.value_type
    return _has_length(value) or pa.types.is_primitive(value) or pa.types.is_decimal(value)


def _repeats(kind: pa.DataType, *, nested: bool) -> bool:
    types = pa.types
    if types.is_struct(kind):
        return (nested and not kind.num_fields) or any(_repeats(each.type, nested=True) for each in kind.fields)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        empty = types.is_fixed_size_list(kind) and not kind.list_size
        return (nested and empty) or _repeats(kind.value_type, nested=True)
    if types.is_map(kind):
        return _repeats(kind.key_type, nested=True) or _repeats(kind.item_type, nested=True)
    if types.is_fixed_size_binary(kind):
        return nested and not kind.byte_width
    views = types.is_string_view(kind) or types.is_binary_view(kind) or types.is_list_view(kind)
    return nested and (types.is_null(kind) or views or types.is_dictionary(kind) or types.is_run_end_encoded(kind))
