"""dbt's connections to a lake. Each text that dbt sends is a transaction: BEGIN and COMMIT are never sent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from dbt.adapters.contracts.connection import AdapterResponse, Connection, ConnectionState
from dbt.adapters.exceptions import FailedToConnectError
from dbt.adapters.sql import SQLConnectionManager
from dbt_common.exceptions import DbtDatabaseError, DbtRuntimeError

from alluvia.errors import AlluviaError
from dbt.adapters.alluvia.cursor import LakeCursor, LakeSession


class AlluviaConnectionManager(SQLConnectionManager):
    """Opens a session of the lake for each thread of dbt."""

    TYPE = "alluvia"

    @contextmanager
    def exception_handler(self, sql: str) -> Iterator[None]:  # noqa: ARG002 - dbt shows the text by itself
        try:
            yield
        except AlluviaError as error:
            raise DbtDatabaseError(str(error)) from error

    @classmethod
    def open(cls, connection: Connection) -> Connection:
        if connection.state == ConnectionState.OPEN:
            return connection
        credentials = connection.credentials
        try:
            connection.handle = LakeSession(credentials.lake(), credentials.timeout_seconds)
        except DbtRuntimeError as error:
            connection.handle = None
            connection.state = ConnectionState.FAIL
            raise FailedToConnectError(str(error)) from error
        connection.state = ConnectionState.OPEN
        return connection

    def cancel(self, connection: Connection) -> None:
        connection.handle.cancel()

    @classmethod
    def get_response(cls, cursor: LakeCursor) -> AdapterResponse:
        rows = cursor.rows_affected
        return AdapterResponse(_message="OK" if rows is None else f"OK {rows:,} rows", rows_affected=rows)

    def begin(self) -> Connection:
        """Send nothing: a text is a transaction."""
        return self.get_thread_connection()

    def commit(self) -> Connection:
        """Send nothing: a text has committed when it answers."""
        return self.get_thread_connection()
