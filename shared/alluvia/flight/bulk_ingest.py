"""Rows that come as a stream for one table: appended, with the table created or replaced where that is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa

from alluvia.access.rights import Rights
from alluvia.errors import Invalid, TableExists, TableNotFound
from alluvia.flight.messages import Message
from alluvia.lake_transaction import LakeTransaction
from alluvia.lazy_dataclasses import dataclass
from alluvia.sql.nodes import CreateTable, Insert
from alluvia.sql.rights import check_statement
from alluvia.table.schema.names import fold

CREATE, NOT_CREATE = 1, 2
FAIL, APPEND, REPLACE = 1, 2, 3


@dataclass(frozen=True, slots=True)
class IngestTarget:
    """Where rows go: a table, and what to do if it is not there or is there, as FlightSql.proto numbers it."""

    table: str
    if_not_exist: int
    if_exists: int

    @classmethod
    def of(cls, asked: Message) -> IngestTarget:
        """Return what CommandStatementIngest asks for. Raises `Invalid` for what a lake does not have."""
        options = asked.table_definition_options
        if asked.catalog or asked.schema or asked.temporary:
            raise Invalid("a lake has no catalogs, schemas or temporary tables: name the table alone")
        if options.if_not_exist not in (CREATE, NOT_CREATE) or options.if_exists not in (FAIL, APPEND, REPLACE):
            raise Invalid("table_definition_options: say what to do if the table exists, and if it does not")
        return cls(fold(asked.table), options.if_not_exist, options.if_exists)


def ingest(
    inner: LakeTransaction,
    target: IngestTarget,
    rows: pa.RecordBatchReader,
    rights: Rights | None,
    check_time: Callable[[], None],
) -> int:
    """Append rows in a transaction, and return how many; -1 where nobody has counted. Raises what that raises.

    `check_time` is called for each batch, and raises when the time is up.
    """
    there = _is_there(inner, target.table)
    if there and target.if_exists == FAIL:
        raise TableExists(f"table {target.table!r} already exists: append to it, or replace it")
    if not there and target.if_not_exist == NOT_CREATE:
        raise TableNotFound(f"the lake has no table {target.table!r}: create it first, or as it is filled")
    creates = not there or target.if_exists == REPLACE
    if rights is not None:
        node = CreateTable(target.table, if_not_exists=False) if creates else Insert(target.table, None, None, False)
        check_statement(rights, "create table" if creates else "insert", node)
    if creates:
        inner.create_table(target.table, rows.schema, replace=there)
    checked = pa.RecordBatchReader.from_batches(rows.schema, _checked(rows, check_time))
    count = inner.table(target.table).append(checked).rows
    return -1 if count is None else count


def _is_there(inner: LakeTransaction, table: str) -> bool:
    try:
        inner.table(table)
    except TableNotFound:
        return False
    return True


def _checked(rows: pa.RecordBatchReader, check_time: Callable[[], None]) -> Iterator[pa.RecordBatch]:
    for batch in rows:
        check_time()
        batch.validate(full=True)
        yield batch
