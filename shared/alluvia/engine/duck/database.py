"""What relations need of a DuckDB database, whichever process it is in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from alluvia.engine.duck.stored_types import DuckType

if TYPE_CHECKING:
    import pyarrow as pa
    from duckdb import DuckDBPyConnection


class Database(Protocol):
    """A database of this process, or one of another."""

    def execute(self, query: str, parameters: Sequence[Any] = ..., /) -> Any:
        """Run a statement; `fetchall` of what it returns gives its rows."""

    def register(self, view_name: str, python_object: pa.Table, /) -> Any:
        """Give the database an Arrow table under a name."""

    def unregister(self, view_name: str, /) -> Any:
        """Take it back."""

    def columns(self, source: str, /) -> list[tuple[str, DuckType]] | None:
        """Return the columns of a relation, which is SQL; None where DuckDB finds that a name in it means nothing."""


class OwnDatabase:
    """A database of this process, by its connection."""

    def __init__(self, connection: DuckDBPyConnection) -> None:
        self._connection = connection
        self.execute = connection.execute
        self.register = connection.register
        self.unregister = connection.unregister

    def columns(self, source: str) -> list[tuple[str, DuckType]] | None:
        """Return the columns of a relation; None where it does not bind."""
        import duckdb

        try:
            rows = self._connection.execute(f"DESCRIBE FROM {source}").fetchall()
        except duckdb.BinderException:
            return None
        return [(name, self._connection.type(kind)) for name, kind, *_ in rows]
