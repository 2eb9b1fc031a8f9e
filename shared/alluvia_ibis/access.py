"""What the backend asks of a lake, wherever it is: in this process, or behind a server."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence

import pyarrow as pa

Rows = pa.Table | pa.RecordBatchReader


class LakeAccess(ABC):
    """A lake, as far as the backend needs it. Its errors are `alluvia.errors`."""

    in_transactions = False
    """Whether rows of this process can be part of a transaction, so that they replace others at once."""

    @property
    @abstractmethod
    def version(self) -> str:
        """Return the version of Alluvia that runs queries."""

    @abstractmethod
    def tables(self) -> Sequence[str]:
        """Return the names of the tables."""

    @abstractmethod
    def schema_of(self, table: str) -> pa.Schema:
        """Return the columns of a table or view, by the lake's name for it. Raises `TableNotFound`."""

    @abstractmethod
    def columns(self, query: str) -> pa.Schema:
        """Return the columns that a query would have."""

    @abstractmethod
    def read(self, query: str) -> tuple[pa.Schema, Generator[pa.RecordBatch]]:
        """Run a query and return its columns, and its rows as they come."""

    @abstractmethod
    def execute(self, text: str) -> pa.Table:
        """Run statements, as one transaction. Return what the last read answers, or what the last write did."""

    @abstractmethod
    def create(self, name: str, schema: pa.Schema, rows: Rows | None, *, replace: bool) -> None:
        """Create a table with some rows. Raises `TableExists`, unless `replace` is true.

        To replace it by a table with rows needs `in_transactions`.
        """

    @abstractmethod
    def append(self, name: str, rows: Rows, *, replace: bool = False) -> None:
        """Append rows to a table, all or none.

        With `replace`, they take the place of all its rows, which needs `in_transactions`.
        """

    def views(self) -> Sequence[str]:
        """Return the names of the views."""
        return [str(name) for name in self.execute("SHOW VIEWS")["name"].to_pylist()]

    def schemas(self) -> Sequence[str]:
        """Return the names of the schemas."""
        return [str(name) for name in self.execute("SHOW SCHEMAS")["name"].to_pylist()]

    @abstractmethod
    def close(self) -> None:
        """Close connections."""
