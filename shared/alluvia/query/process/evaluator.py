"""Compute expressions over a table's rows in a query's process, which is killed at a limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from threading import Lock
from typing import Self, TypeVar

import pyarrow as pa

from alluvia.engine.duck.failures import Context, EngineError, QueryTooCostly, UnreadableFile, out_of_memory, translate
from alluvia.engine.queries.shown_names import VIEW_SCHEMA
from alluvia.operations.reading.relations import Evaluate, Inputs, Relation
from alluvia.processes.pool import Watch
from alluvia.query.limits import QueryLimits
from alluvia.query.process.ends import within
from alluvia.query.process.processes import Engine
from alluvia.query.process.session import Session
from alluvia.store import Store

T = TypeVar("T")


def evaluation(
    store: Store, limits: QueryLimits | None = None, check: Callable[[Inputs], None] = lambda _: None
) -> Evaluate:
    """Return a function that computes relations over a store's files, each checked first, and within the limits."""

    allowed = limits or QueryLimits()

    def evaluate(relation: Relation, take: Callable[[pa.Schema, Iterator[pa.RecordBatch]], T]) -> T:
        check(relation.inputs)
        watch = Watch(allowed.deadline(), allowed.held_bytes_max, allowed.cancelled)
        unreadable: set[str | None] = set()
        while True:
            session = Session(store, allowed, watch, lambda path: None in unreadable or path in unreadable)
            with closing(session):
                try:
                    session.begin()
                    session.open(relation.inputs, relation.views)
                    text = f"FROM {VIEW_SCHEMA}.{relation.name}"
                    return take(*session.run(text, "", lambda position: position))
                except UnreadableFile as error:
                    if None in unreadable or error.path in unreadable:
                        raise error.otherwise from None
                    unreadable.add(error.path)

    return evaluate


class ProcessEvaluator:
    """An `Evaluator` with limits. Its process starts with the first computation; `close` it in the end."""

    def __init__(self, limits: QueryLimits) -> None:
        self._limits = limits
        self._lock = Lock()
        self._engine: Engine | None = None
        self._now_us = 0
        self._over: QueryTooCostly | None = None

    @property
    def now_us(self) -> int:
        """Return what `now()` gives, in µs since the Unix epoch."""
        with self._using():
            return self._now_us

    def compute(self, query: str, rows: pa.Table) -> pa.Table:
        """Return the rows of a query over the relation `rows`. Raises `EngineError`; `QueryTooCostly` at a limit."""
        with self._using() as engine:
            computed = engine.compute(query, rows, self._limits.held_bytes_max)
            if computed is None:
                raise QueryTooCostly(out_of_memory(self._limits.memory_bytes))
            return computed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End what runs, and give the process back."""
        if self._engine is not None:
            self._engine.close()

    @contextmanager
    def _using(self) -> Iterator[Engine]:
        """Yield the process, to one thread at a time. A process that went over a limit stays closed."""
        with self._lock:
            if self._over is not None:
                raise self._over
            try:
                with within(self._limits):
                    yield self._engine or self._open()
            except QueryTooCostly as error:
                self._over = error
                raise

    def _open(self) -> Engine:
        self._engine = Engine(Watch(self._limits.deadline(), self._limits.held_bytes_max, self._limits.cancelled))
        memory = self._limits.memory_bytes
        options = {"threads": "1", "temp_directory": "", **({} if memory is None else {"memory_limit": f"{memory}B"})}
        try:
            self._engine.open(options)
            self._engine.confine(())
            self._now_us = self._engine.now_us
        except EngineError as error:
            raise translate(error.details, Context("", memory_limit_bytes=memory)) from None
        return self._engine
