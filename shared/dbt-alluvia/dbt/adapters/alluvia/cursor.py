"""The part of Python's DB-API that dbt uses, over a lake."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from threading import Event
from typing import Any

import pyarrow as pa

from alluvia.api.served_lake import ServedLake
from alluvia.query.limits import QueryLimits
from alluvia.query.parameters import Parameters
from dbt.adapters.alluvia.credentials import AnyLake

_COUNTS = ("rows_inserted", "rows_updated", "rows_deleted")


class LakeSession:
    """The lake, as one thread of dbt uses it. Each text is a transaction, so there is nothing to commit."""

    def __init__(self, lake: AnyLake, timeout_seconds: float | None) -> None:
        self._lake = lake
        self._timeout_seconds = timeout_seconds
        self._cancelled = Event()

    def cursor(self) -> LakeCursor:
        """Return what runs one text."""
        return LakeCursor(self)

    def run(self, text: str, parameters: Parameters | None = None) -> pa.Table:
        """Run a text, as one transaction. Raises `alluvia.errors`."""
        if isinstance(self._lake, ServedLake):
            return self._lake.sql(text, parameters)
        limits = QueryLimits(self._timeout_seconds, cancelled=self._cancelled.is_set)
        return self._lake.sql(text, parameters, limits=limits)

    def cancel(self) -> None:
        """End what runs in this process. A server ends a query by itself, once its time is up."""
        self._cancelled.set()

    def commit(self) -> None:
        """Do nothing: a text has committed when it answers."""

    def rollback(self) -> None:
        """Do nothing: a text that fails leaves nothing behind."""

    def close(self) -> None:
        """Do nothing: the lake is shared by all threads."""


class LakeCursor:
    """The answer of a text."""

    def __init__(self, session: LakeSession) -> None:
        self._session = session
        self._answer = pa.table({})
        self._fetched = 0

    def execute(self, text: str, bindings: Sequence[Any] | Mapping[str, Any] | None = None) -> None:
        """Run a text, with the values of its `?` or `$name`."""
        self._answer = self._session.run(text, bindings or None)
        self._fetched = 0

    @property
    def description(self) -> list[tuple[Any, ...]]:
        """Return the name and the type of each column."""
        return [(field.name, str(field.type), *[None] * 5) for field in self._answer.schema]

    @property
    def answer(self) -> pa.Table:
        """Return all rows."""
        return self._answer

    @property
    def rows_affected(self) -> int | None:
        """Return how many rows a statement wrote, updated and deleted; None for one that says nothing of rows."""
        said = [name for name in _COUNTS if name in self._answer.column_names]
        return sum(self._answer[name][0].as_py() for name in said) if said and len(self._answer) == 1 else None

    def fetchmany(self, size: int) -> list[tuple[Any, ...]]:
        """Return the next rows, at most `size` of them."""
        part = self._answer.slice(self._fetched, size)
        self._fetched += len(part)
        return list(zip(*(column.to_pylist() for column in part.columns), strict=True))

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return the rows that are left."""
        return self.fetchmany(len(self._answer))

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row; None at the end."""
        return next(iter(self.fetchmany(1)), None)

    def close(self) -> None:
        """Drop the rows."""
        self._answer = pa.table({})
