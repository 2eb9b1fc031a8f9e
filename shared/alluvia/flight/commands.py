"""The commands of Flight SQL: from a command to the columns and a ticket, from a ticket to rows.

The ticket of a query is the query itself. It is run with the rights of whoever brings the ticket, so it gives nobody
what sending the query would not. What has run already is held on the server for the caller who ran it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from threading import Lock

import pyarrow as pa

from alluvia.clock import Clock
from alluvia.engine.duck.literals import quote_table
from alluvia.errors import Invalid
from alluvia.flight import metadata
from alluvia.flight.bulk_ingest import IngestTarget
from alluvia.flight.handles import HANDLE_BYTES, Handles
from alluvia.flight.messages import Message, new, packed, read, schema_bytes, unpacked
from alluvia.flight.metadata import SCHEMA as SQL_INFO
from alluvia.flight.metadata import sql_info
from alluvia.flight.prepared import Prepared, fitted, parameter_schema
from alluvia.flight.statements import FlightCaller, OpenTransaction, Statements, Values, rows_changed
from alluvia.flight.statuses import HandleNotFound
from alluvia.query.engine import Result
from alluvia.query.permitted import permitted

STATEMENT, PREPARED = "CommandStatementQuery", "CommandPreparedStatementQuery"
STATEMENT_TICKET = "TicketStatementQuery"
_QUERY, _ANSWER = b"q", b"a"
"""What a ticket of a statement begins with: a query that is yet to run, or an answer that is held."""
_COLUMNS: dict[str, Callable[[Message], pa.Schema]] = {
    "CommandGetCatalogs": lambda _: metadata.CATALOGS,
    "CommandGetCrossReference": lambda _: metadata.FOREIGN_KEYS,
    "CommandGetDbSchemas": lambda _: metadata.DB_SCHEMAS,
    "CommandGetExportedKeys": lambda _: metadata.FOREIGN_KEYS,
    "CommandGetImportedKeys": lambda _: metadata.FOREIGN_KEYS,
    "CommandGetPrimaryKeys": lambda _: metadata.PRIMARY_KEYS,
    "CommandGetSqlInfo": lambda _: SQL_INFO,
    "CommandGetTableTypes": lambda _: metadata.TABLE_TYPES,
    "CommandGetTables": metadata.tables_schema,
    "CommandGetXdbcTypeInfo": lambda _: metadata.TYPES,
}


class Running:
    """The queries that run, by who runs them and with which ticket, so that they can be cancelled. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._cancels: dict[tuple[str, bytes], list[Callable[[], object]]] = {}

    def add(self, caller: FlightCaller, ticket: bytes, cancel: Callable[[], object]) -> Callable[[], None]:
        """Note a query that begins; call what is returned when it ends."""
        key = (caller.key, ticket)
        with self._lock:
            self._cancels.setdefault(key, []).append(cancel)

        def end() -> None:
            with self._lock:
                left = self._cancels.get(key, [])
                if cancel in left:
                    left.remove(cancel)
                if not left:
                    self._cancels.pop(key, None)

        return end

    def cancel(self, caller: FlightCaller, ticket: bytes) -> bool:
        """Cancel what this caller runs with a ticket; False if that is nothing."""
        with self._lock:
            cancels = list(self._cancels.get((caller.key, ticket), ()))
        for each in cancels:
            each()
        return bool(cancels)


class Commands:
    """Carries out commands on a lake, each for some caller."""

    def __init__(self, statements: Statements, clock: Clock) -> None:
        self._statements = statements
        self.prepared: Handles[Prepared] = Handles("prepared statement", clock)
        self.transactions: Handles[OpenTransaction] = Handles("transaction", clock, OpenTransaction.roll_back)
        self.answers: Handles[pa.Table] = Handles("answer", clock)
        self.running = Running()

    def close(self) -> None:
        """Roll back open transactions, and release all that is held."""
        for held in (self.prepared, self.transactions, self.answers):
            held.close()

    def info(self, command: bytes, caller: FlightCaller) -> tuple[pa.Schema, bytes]:
        """Return the columns that a command answers, and the ticket for the rows.

        A text that is more than one query runs here, once, and its answer is held.
        """
        name, asked = unpacked(command)
        if name in _COLUMNS:
            return _COLUMNS[name](asked), command
        if name == PREPARED:
            prepared = self.prepared.get(caller.key, asked.prepared_statement_handle)
            if prepared.is_query:
                return self._columns_bound(prepared, caller), command
            transaction = self._transaction_of(prepared, caller)
            return self._answered(prepared.text, prepared.sets(), caller, transaction)
        if name != STATEMENT:
            raise Invalid(f"{name} answers no rows")
        transaction = self._transaction(asked.transaction_id, caller)
        if not self._statements.is_query(asked.query):
            return self._answered(asked.query, [None], caller, transaction)
        columns = self._statements.columns(asked.query, caller, transaction)
        # A text that no other query has, so that cancelling one query ends no other.
        handle = _QUERY + secrets.token_bytes(HANDLE_BYTES) + asked.SerializeToString()
        return columns, packed(STATEMENT_TICKET, statement_handle=handle)

    def columns(self, command: bytes, caller: FlightCaller) -> pa.Schema:
        """Return the columns that a command would answer, and run nothing; none where only a run could tell."""
        name, asked = unpacked(command)
        if name in _COLUMNS:
            return _COLUMNS[name](asked)
        if name == PREPARED:
            prepared = self.prepared.get(caller.key, asked.prepared_statement_handle)
            return self._columns_bound(prepared, caller) if prepared.is_query else pa.schema([])
        if name != STATEMENT:
            raise Invalid(f"{name} answers no rows")
        transaction = self._transaction(asked.transaction_id, caller)
        if not self._statements.is_query(asked.query):
            return pa.schema([])
        return self._statements.columns(asked.query, caller, transaction)

    def rows(self, ticket: bytes, caller: FlightCaller, cancelled: Callable[[], bool]) -> Result:
        """Return the rows that a ticket stands for."""
        name, asked = unpacked(ticket)
        if name in _COLUMNS:
            return Result(_COLUMNS[name](asked), self._metadata(name, asked, caller))
        if name == PREPARED:
            prepared = self.prepared.get(caller.key, asked.prepared_statement_handle)
            if not prepared.is_query:
                raise Invalid("the prepared statement is not a query: its answer has a ticket of its own")
            if prepared.runs != 1:
                raise Invalid("a query takes one row of values: bind one, and run the query for each")
            transaction = self._transaction_of(prepared, caller)
            return self._statements.read(prepared.text, prepared.sets()[0], caller, transaction, cancelled)
        if name != STATEMENT_TICKET:
            raise Invalid(f"{name} is not a ticket: send it to GetFlightInfo")
        kind, rest = asked.statement_handle[:1], asked.statement_handle[1:]
        if kind == _ANSWER:
            answer = self.answers.take(caller.key, rest)
            return Result(answer.schema, iter(answer.to_batches()))
        if kind != _QUERY:
            raise HandleNotFound("the server does not know this ticket")
        query = read(STATEMENT, rest[HANDLE_BYTES:])
        if not self._statements.is_query(query.query):
            raise Invalid("the ticket is not of a query: send the statements to GetFlightInfo or DoPut")
        return self._statements.read(
            query.query, None, caller, self._transaction(query.transaction_id, caller), cancelled
        )

    def update(self, name: str, asked: Message, caller: FlightCaller) -> bytes:
        """Run statements that change something, and say how many rows they changed."""
        sets: Sequence[Values | None] = [None]
        if name == "CommandStatementUpdate":
            text, transaction = asked.query, self._transaction(asked.transaction_id, caller)
        else:
            prepared = self.prepared.get(caller.key, asked.prepared_statement_handle)
            text, sets = prepared.text, prepared.sets()
            transaction = self._transaction_of(prepared, caller)
        allowed = self._statements.rules.allowed(text)
        if not allowed:
            raise Invalid("the text is a query, which changes nothing: send it to GetFlightInfo")
        changed = 0 if not sets else rows_changed(self._statements.execute(text, sets, caller, transaction), allowed)
        return bytes(new("DoPutUpdateResult", record_count=changed).SerializeToString())

    def ingest(self, asked: Message, rows: pa.RecordBatchReader, caller: FlightCaller) -> bytes:
        """Append rows to a table, and say how many."""
        transaction = self._transaction(asked.transaction_id, caller)
        count = self._statements.ingest(IngestTarget.of(asked), rows, caller, transaction)
        return bytes(new("DoPutUpdateResult", record_count=count).SerializeToString())

    def bind(self, asked: Message, rows: pa.Table | None, caller: FlightCaller) -> bytes:
        """Bind values to a prepared statement's parameters. They count as held, as what the statement takes itself."""
        handle = asked.prepared_statement_handle
        prepared = self.prepared.get(caller.key, handle)
        values = fitted(prepared.text, rows)
        size_bytes = 0 if values is None else values.nbytes + values.schema.serialize().size
        self.prepared.resize(caller.key, handle, len(prepared.text) + size_bytes)
        prepared.rows = values
        return bytes(new("DoPutPreparedStatementResult", prepared_statement_handle=handle).SerializeToString())

    def prepare(self, text: str, transaction: bytes, caller: FlightCaller) -> bytes:
        """Hold a statement for later, and tell its handle, its columns, and the types of its parameters."""
        opened = self._transaction(transaction, caller)
        is_query = self._statements.is_query(text)
        columns = self._statements.columns(text, caller, opened) if is_query else self._shown(text, caller, opened)
        parameters = parameter_schema(text, permitted(self._statements.lake.catalog, caller.rights))
        prepared = Prepared(text, transaction, is_query=is_query, columns=columns)
        return packed(
            "ActionCreatePreparedStatementResult",
            prepared_statement_handle=self.prepared.add(caller.key, prepared, len(text)),
            dataset_schema=schema_bytes(columns),
            parameter_schema=schema_bytes(parameters),
        )

    def begin(self, caller: FlightCaller) -> bytes:
        """Begin a transaction, and tell its handle."""
        handle = self.transactions.add(caller.key, OpenTransaction(self._statements.lake, caller.peer))
        return packed("ActionBeginTransactionResult", transaction_id=handle)

    def end(self, handle: bytes, action: int, caller: FlightCaller) -> None:
        """Commit a transaction (1), or roll it back (2)."""
        if action not in (1, 2):
            raise Invalid("action: send END_TRANSACTION_COMMIT or END_TRANSACTION_ROLLBACK")
        transaction = self.transactions.take(caller.key, handle)
        for prepared in self.prepared.of(caller.key):
            prepared.ended = prepared.ended or prepared.transaction == handle
        if action == 1:
            transaction.commit()
        else:
            transaction.roll_back()

    def cancel(self, info: Message, caller: FlightCaller) -> None:
        """Cancel what runs with the tickets of an info. Raises `HandleNotFound` if nothing does."""
        cancelled = [self.running.cancel(caller, each.ticket.ticket) for each in info.endpoint]
        if True not in cancelled:
            raise HandleNotFound("no query runs with this ticket: it has ended, or not begun")

    def _answered(
        self, text: str, sets: Sequence[Values | None], caller: FlightCaller, transaction: OpenTransaction | None
    ) -> tuple[pa.Schema, bytes]:
        if not sets:
            raise Invalid("no values were bound to the parameters: bind a row of them")
        answer = self._statements.execute(text, sets, caller, transaction)
        handle = self.answers.add(caller.key, answer, answer.nbytes)
        return answer.schema, packed(STATEMENT_TICKET, statement_handle=_ANSWER + handle)

    def _shown(self, text: str, caller: FlightCaller, transaction: OpenTransaction | None) -> pa.Schema:
        """Return the columns of statements that show something, and write nothing; none of others."""
        if any(each.writes or each.controls for each in self._statements.rules.allowed(text)):
            return pa.schema([])
        return self._statements.execute(text, [None], caller, transaction).schema

    def _columns_bound(self, prepared: Prepared, caller: FlightCaller) -> pa.Schema:
        if prepared.rows is None or prepared.runs != 1:
            return prepared.columns
        transaction = self._transaction_of(prepared, caller)
        return self._statements.columns(prepared.text, caller, transaction, prepared.sets()[0])

    def _metadata(self, name: str, asked: Message, caller: FlightCaller) -> Iterator[pa.RecordBatch]:
        if name == "CommandGetSqlInfo":
            yield sql_info(asked.info, allow_writes=self._statements.rules.allow_writes)
        elif name == "CommandGetDbSchemas":
            yield metadata.db_schemas(asked, permitted(self._statements.lake.catalog, caller.rights))
        elif name == "CommandGetTableTypes":
            yield metadata.table_types()
        elif name == "CommandGetXdbcTypeInfo":
            yield metadata.types(asked)
        elif name == "CommandGetTables":
            catalog = permitted(self._statements.lake.catalog, caller.rights)
            yield from metadata.tables(
                asked, catalog, lambda view: self._statements.columns(f"TABLE {quote_table(view)}", caller, None)
            )

    def _transaction(self, handle: bytes, caller: FlightCaller) -> OpenTransaction | None:
        return self.transactions.get(caller.key, handle) if handle else None

    def _transaction_of(self, prepared: Prepared, caller: FlightCaller) -> OpenTransaction | None:
        """Return the transaction that a prepared statement runs in.

        Drivers go on to use a statement after its transaction has ended, without a word of the one that they have
        begun since. It is the one that is open on the same connection. A caller who has none open at all commits by
        itself. Raises `Invalid` where it could be another: of a connection that was lost, or of another client.
        """
        if not prepared.ended:
            return self._transaction(prepared.transaction, caller)
        opened = self.transactions.of(caller.key)
        here = [each for each in opened if each.peer == caller.peer]
        if opened and len(here) != 1:
            raise Invalid("the transaction of the prepared statement has ended: prepare it again in the next one")
        return here[0] if here else None
