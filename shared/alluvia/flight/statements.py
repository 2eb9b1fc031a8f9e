"""Run SQL for callers of Flight: by the query engine and the transactions that HTTP has, with the same limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Any

import pyarrow as pa

from alluvia.access.rights import Rights
from alluvia.api.lake import Lake
from alluvia.api.lake_transaction import LakeTransaction
from alluvia.engine.duck.failures import QueryTooCostly
from alluvia.errors import Conflict, Invalid
from alluvia.flight.bulk_ingest import IngestTarget, as_rows, ingest
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import Catalog
from alluvia.query.engine import Result, columns, run
from alluvia.query.limits import QueryLimits
from alluvia.query.permitted import permitted
from alluvia.sql.binding import parameter_names
from alluvia.sql.grammar.nodes import Query
from alluvia.sql.grammar.statements import SqlStatement
from alluvia.sql.run import TRIES_MAX, execute, execute_in
from alluvia.sql.running import insert_rows

Values = Mapping[str, Any]
ROWS_CHANGED = "rows_"
"""So begin the names of what statements say of the rows that they changed."""


@dataclass(frozen=True, slots=True)
class FlightCaller:
    """Who calls: `key` tells it from others, `rights` is what it may do; None: all that the rules allow.

    `peer` is the connection.
    """

    key: str = ""
    rights: Rights | None = None
    peer: str = ""


@dataclass(frozen=True, slots=True)
class StatementRules:
    """What statements may take, and do.

    `allowed` returns the statements of a text, none of one query, and raises `Forbidden` for one that may not be run.
    `answer_bytes_max` is of the rows that a text answers which is more than one query: they are held until fetched.
    """

    limits: QueryLimits
    answer_bytes_max: int
    allow_writes: bool
    allowed: Callable[[str], Sequence[SqlStatement]]


class OpenTransaction:
    """A transaction between BeginTransaction and EndTransaction. It begins with its first statement."""

    def __init__(self, lake: Lake, peer: str = "") -> None:
        self.peer = peer
        self._lake = lake
        self._lock = Lock()
        self._inner: LakeTransaction | None = None
        self._failed = self._over = False

    @contextmanager
    def using(self) -> Iterator[LakeTransaction]:
        """Let a statement run in it; after one that failed, nothing but a rollback is taken. Raises `Invalid`."""
        with self._lock:
            if self._over:
                raise Invalid("the transaction is over: begin another")
            if self._failed:
                raise Invalid("the transaction failed with an earlier error: roll it back, and begin again")
            if self._inner is None:
                self._inner = self._lake.transaction()
            try:
                yield self._inner
            except BaseException:
                self._failed = True
                raise

    def commit(self) -> None:
        """Commit. Raises `Invalid` where a statement has failed, `Conflict` where what was read has changed since."""
        with self._lock:
            self._over = True
            if self._failed:
                self._discard()
                raise Invalid("the transaction was rolled back, since an earlier statement failed: begin again")
            if self._inner is not None:
                self._inner.commit()

    def roll_back(self) -> None:
        """Discard what was done."""
        with self._lock:
            self._over = True
            self._discard()

    def _discard(self) -> None:
        if self._inner is not None:
            self._inner.rollback()


class Statements:
    """Runs texts on a lake, each for some caller."""

    def __init__(self, lake: Lake, rules: Callable[[], StatementRules]) -> None:
        self._lake = lake
        self._rules = rules

    @property
    def lake(self) -> Lake:
        """Return the lake."""
        return self._lake

    @property
    def rules(self) -> StatementRules:
        """Return what statements may take and do, as it is set now."""
        return self._rules()

    def is_query(self, text: str) -> bool:
        """Whether a text is one query, whose rows can be had as they come. Raises `Forbidden`, `Invalid`."""
        return not self._rules().allowed(text)

    def columns(
        self, text: str, caller: FlightCaller, transaction: OpenTransaction | None, values: Values | None = None
    ) -> pa.Schema:
        """Return the columns of a query, without running it. Parameters may be without values: they are null then."""
        given = values or dict.fromkeys(_parameters(text)) or None
        with self._catalog(caller, transaction) as catalog:
            return columns(catalog, text, self._rules().limits, given)

    def read(
        self,
        text: str,
        values: Values | None,
        caller: FlightCaller,
        transaction: OpenTransaction | None,
        cancelled: Callable[[], bool],
    ) -> Result:
        """Run a query, and return its rows as they come. Its process ends where it is cancelled."""
        limits = replace(self._rules().limits, cancelled=cancelled)
        with self._catalog(caller, transaction) as catalog:
            return run(catalog, text, limits, values)

    def execute(
        self, text: str, sets: Sequence[Values | None], caller: FlightCaller, transaction: OpenTransaction | None
    ) -> pa.Table:
        """Run the statements of a text once for each set of values, all or nothing. Return what the last answers."""
        rules = self._rules()
        rules.allowed(text)
        limits = rules.limits.begun()
        if transaction is not None:
            with transaction.using() as inner:
                return self._run_in(inner, text, sets, caller, limits)
        if len(sets) == 1:

            def ready(answer: pa.Table) -> None:
                self._check_size(answer)

            return execute(self._lake, text, sets[0], limits=limits, ready=ready, rights=caller.rights)
        return self._all_or_nothing(text, sets, caller, limits)

    def ingest(
        self,
        target: IngestTarget,
        rows: pa.RecordBatchReader,
        caller: FlightCaller,
        transaction: OpenTransaction | None,
    ) -> int:
        """Append rows to a table, as they come, all or nothing. Return how many."""
        rules = self._rules()
        rules.allowed("INSERT INTO t DEFAULT VALUES")  # whether anything may be written
        limits = rules.limits.begun()
        if transaction is not None:
            with transaction.using() as inner:
                return ingest(inner, target, rows, caller.rights, limits.check)
        with self._lake.transaction() as inner:
            return ingest(inner, target, rows, caller.rights, limits.check)

    def _all_or_nothing(
        self, text: str, sets: Sequence[Values | None], caller: FlightCaller, limits: QueryLimits
    ) -> pa.Table:
        for tries in range(1, TRIES_MAX + 1):
            inner = self._lake.transaction()
            try:
                results = self._run_in(inner, text, sets, caller, limits)
                limits.check()
                inner.commit()
            except Conflict:
                if tries == TRIES_MAX:
                    raise
            else:
                return results
        raise AssertionError("unreachable: the last try returns or raises")

    def _run_in(
        self,
        inner: LakeTransaction,
        text: str,
        sets: Sequence[Values | None],
        caller: FlightCaller,
        limits: QueryLimits,
    ) -> pa.Table:
        """Run a text in a transaction for each set of values; counts of rows are added up."""
        statements = self._rules().allowed(text)
        together = as_rows(statements, sets)
        if together is not None:
            return insert_rows(self._lake, inner, *together, limits, caller.rights)
        last, changed, counted = pa.table({}), Counter[str](), not _has_query(statements)
        for each in sets:
            last = execute_in(self._lake, inner, text, each, limits=limits, rights=caller.rights)
            self._check_size(last)
            changed.update(_rows_changed(last) if counted else {})
        return _with_counts(last, changed) if len(sets) > 1 else last

    def _check_size(self, answer: pa.Table) -> None:
        most = self._rules().answer_bytes_max
        if answer.nbytes > most:
            raise QueryTooCostly(
                f"the answer has more than {most} bytes: send its last SELECT alone, whose rows are sent as they come"
            )

    @contextmanager
    def _catalog(self, caller: FlightCaller, transaction: OpenTransaction | None) -> Iterator[Catalog]:
        if transaction is None:
            yield permitted(self._lake.catalog, caller.rights)
            return
        with transaction.using() as inner:
            yield permitted(inner.catalog, caller.rights)


def _parameters(text: str) -> Sequence[str]:
    try:
        return parameter_names(text)
    except Invalid:  # a query that only DuckDB can read, which says what is wrong with it
        return ()


def rows_changed(answer: pa.Table, statements: Sequence[SqlStatement]) -> int:
    """Return how many rows statements have changed, by what the last of them said; -1 where it answered rows."""
    return -1 if _has_query(statements) else sum(_rows_changed(answer).values())


def _has_query(statements: Sequence[SqlStatement]) -> bool:
    return any(isinstance(each.node, Query) for each in statements)


def _rows_changed(answer: pa.Table) -> dict[str, int]:
    names = [name for name in answer.column_names if name.startswith(ROWS_CHANGED)]
    return {name: answer[name][0].as_py() or 0 for name in names}


def _with_counts(answer: pa.Table, changed: Mapping[str, int]) -> pa.Table:
    for at, field in enumerate(answer.schema):
        if field.name in changed:
            answer = answer.set_column(at, field, pa.array([changed[field.name]], field.type))
    return answer
