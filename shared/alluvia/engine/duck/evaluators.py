"""Where expressions over rows are computed: in this process, unless `evaluating` has said where else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from alluvia.engine.duck.arrow_values import arrow_table
from alluvia.engine.duck.database import evaluator
from alluvia.engine.duck.failures import EngineError, details_of

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

ROWS = "rows"
"""What queries know the rows by that they compute on."""


class Evaluator(Protocol):
    """Computes queries over some rows, as often as it is asked. For all of them it is the same time."""

    @property
    def now_us(self) -> int:
        """Return what `now()` gives, in µs since the Unix epoch."""

    def compute(self, query: str, rows: pa.Table) -> pa.Table:
        """Return the rows of a query over the relation `rows`. Raises `EngineError`, and `QueryTooCostly` at a limit.

        Safe for use from several threads.
        """


class OwnEvaluator:
    """Computes in this process, without limits. For use by one thread at a time."""

    def __init__(self) -> None:
        self._connection = evaluator()
        [(self.now_us,)] = self._connection.execute("BEGIN").execute("SELECT epoch_us(now())").fetchall()

    def compute(self, query: str, rows: pa.Table) -> pa.Table:
        """Return the rows of a query over the relation `rows`. Raises `EngineError`."""
        from alluvia.engine.duck.native import duckdb  # loaded late: most conditions and values do not need it

        try:
            with registered(ROWS, rows.to_reader(), self._connection):  # a table takes twice as long
                return arrow_table(self._connection, query)
        except duckdb.Error as error:
            raise EngineError(details_of(error)) from None


@contextmanager
def registered(name: str, rows: object, connection: DuckDBPyConnection) -> Iterator[None]:
    """Register rows under a name during a block. An error in the block ends the transaction."""
    connection.register(name, rows)
    try:
        yield
    except Exception:
        connection.execute("ROLLBACK")  # DuckDB 2.0 unregisters nothing in a failed transaction
        raise
    finally:
        connection.unregister(name)


_making: ContextVar[Callable[[], Evaluator]] = ContextVar("alluvia_making_evaluators", default=OwnEvaluator)


@contextmanager
def evaluating(evaluator: Evaluator) -> Iterator[None]:
    """Have an evaluator compute all expressions that are read in the block."""
    with _made_by(lambda: evaluator):
        yield


@contextmanager
def at_one_time() -> Iterator[None]:
    """Have one evaluator compute all expressions that are read in the block, so that all see one time.

    It is made, and loads DuckDB, for the first expression that needs one.
    """
    with _made_by(cache(_making.get())):
        yield


@contextmanager
def _made_by(make: Callable[[], Evaluator]) -> Iterator[None]:
    token = _making.set(make)
    try:
        yield
    finally:
        _making.reset(token)


def current_evaluator() -> Evaluator:
    """Return what computes expressions here: that of `evaluating`, or one of this process."""
    return _making.get()()
