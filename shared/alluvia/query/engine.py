"""Run one SELECT over a lake's tables: we resolve snapshots and prune files, DuckDB runs the query.

Each query gets its own database, with one view per table reference, over exactly the files left after pruning
(`opening.py`). Then the database is confined (see `duck.confine`), and only then does the user's text run.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Self, TypeVar

import pyarrow as pa

from alluvia.delta.data_files.scan import Scan
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.duck.failures import QueryTooCostly, UnreadableFile, out_of_memory
from alluvia.engine.duck.relation import RowPlaces
from alluvia.engine.queries.pivots import OpenPivot, open_pivots
from alluvia.engine.queries.references import shows_tables
from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import Catalog
from alluvia.processes.pool import Watch
from alluvia.query.describe import describes, in_our_terms, shown_comments
from alluvia.query.formats import Format
from alluvia.query.identity import Identity, identity_of
from alluvia.query.limits import QueryLimits
from alluvia.query.opening import Opened, open_session
from alluvia.query.parameter_times import naming_parameter
from alluvia.query.parameters import Parameters, arrow_row, named_values
from alluvia.query.permitted import pinned
from alluvia.query.process.fetching import asks_no_rows
from alluvia.query.process.processes import LargeResults
from alluvia.query.process.session import Session
from alluvia.query.rendering import render
from alluvia.query.scans import TableScan, scan_table


class Result:
    """A query's rows, as they come. Use it in a `with` block, or close it, when not all rows are read."""

    def __init__(
        self,
        schema: pa.Schema,
        batches: Iterator[pa.RecordBatch],
        tables: tuple[TableScan, ...] = (),
        close: Callable[[], None] = lambda: None,
        scans: Sequence[Scan] = (),
    ) -> None:
        self.schema = schema
        self.tables = tables
        """What each naming of a table in the query cost, in order."""
        self.scans = scans
        """What is read of the tables that the query names, in order."""
        self._batches = batches
        self._finalizer = weakref.finalize(self, close)  # also where the rows are not read to their end

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; raises `Invalid` or `Unavailable` where the query fails half-way."""
        try:
            yield from self._batches
        finally:
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def read_all(self, limit_bytes: int | None = None) -> pa.Table:
        """Return all rows. Raises `QueryTooCostly` if they take more memory than the limit."""
        table = self.read_within(limit_bytes)
        if table is None:
            raise QueryTooCostly(out_of_memory(limit_bytes))
        return table

    def read_within(self, limit_bytes: int | None) -> pa.Table | None:
        """Return all rows; None, and the query ends, if they take more memory than a limit."""
        read: list[pa.RecordBatch] = []
        held = 0
        for batch in self:
            read.append(batch)
            held += batch.nbytes
            if limit_bytes is not None and held > limit_bytes:
                return None
        return pa.Table.from_batches(read, self.schema)

    def close(self) -> None:
        """Stop the query, if it still runs, and free what it holds."""
        self._finalizer()


@dataclass(frozen=True, slots=True)
class Rendered:
    """A query's rows as bytes, how many, and what each naming of a table in it cost, in order.

    There is no body where they were large and went elsewhere. `identity` tells what they are made of: nothing that is
    known, where they may differ each time. `read` has each version of a table that was read.
    """

    body: bytes
    rows: int
    tables: tuple[TableScan, ...]
    identity: Callable[[], Identity | None] = lambda: None
    read: tuple[Snapshot, ...] = ()


def run(
    catalog: Catalog,
    query: str,
    limits: QueryLimits | None = None,
    parameters: Parameters | None = None,
    places: RowPlaces | None = None,
    *,
    dry_run: bool = False,
) -> Result:
    """Run one SELECT, EXPLAIN of one, or SHOW TABLES. `parameters` are a list for `?`, or a dict for `$name`.

    With `places`, the table that is named first has two more columns: the number of each row's file among the files of
    the first of the result's `scans`, and the row's position in it. With `dry_run`, the answer is what the query would
    read, and no data file is opened: a row for each table named, and one for all (see `scans.scan_table`).
    Raises `Invalid` with DuckDB's message for a query that is wrong or not allowed, its subclass `QueryTooCostly` at a
    limit, `TableNotFound`, `VersionNotFound`, `VersionExpired`; `Unavailable` and `Corrupt` for the lake's own trouble.
    """

    def stream(session: Session, opened: Opened) -> Result:
        schema, batches = session.run(opened.rewritten.text, query, opened.rewritten.position)
        return Result(schema, batches, opened.reports, session.close, list(opened.scans.values()))

    return _attempt(
        catalog, query, limits or QueryLimits(), stream, lambda result: result, parameters, places, dry_run=dry_run
    )


def run_rendered(
    catalog: Catalog,
    query: str,
    form: Format,
    limit_bytes: int,
    limits: QueryLimits | None = None,
    parameters: Parameters | None = None,
    large: LargeResults | None = None,
    *,
    dry_run: bool = False,
) -> Rendered:
    """Run a query as `run` does and return its rows in a form. Raises `ResultTooLarge` where they exceed the limit.

    Rows of tables that are `large` go elsewhere, in parts. What that raises comes out of here.
    """

    def rendered(session: Session, opened: Opened) -> Rendered:
        text, position = opened.rewritten.text, opened.rewritten.position
        with closing(session):
            rendered_rows = session.render(text, query, position, form.name, limit_bytes, large)
        made_of = partial(identity_of, catalog.rights, opened.statement, opened.named)
        return Rendered(*rendered_rows, opened.reports, made_of, opened.read)

    def of_result(result: Result) -> Rendered:
        most = limit_bytes if large is None else min(limit_bytes, large.after_bytes)
        return Rendered(*render(result.schema, result, form, most), result.tables)

    return _attempt(catalog, query, limits or QueryLimits(), rendered, of_result, parameters, dry_run=dry_run)


def columns(
    catalog: Catalog, query: str, limits: QueryLimits | None = None, parameters: Parameters | None = None
) -> pa.Schema:
    """Return the columns that a query would have, without opening a data file. Raises what `run` does for its text.

    Values of parameters may be None: only their types make a difference, and only to columns that are made of them.
    """

    def described(session: Session, opened: Opened) -> pa.Schema:
        with closing(session):
            return session.described(opened.rewritten.text, query, opened.rewritten.position)

    return _attempt(
        catalog, query, limits or QueryLimits(), described, lambda result: result.schema, parameters, without_rows=True
    )


_Answer = TypeVar("_Answer")


def _attempt(
    catalog: Catalog,
    query: str,
    limits: QueryLimits,
    answer: Callable[[Session, Opened], _Answer],
    of_result: Callable[[Result], _Answer],
    parameters: Parameters | None,
    places: RowPlaces | None = None,
    *,
    dry_run: bool = False,
    without_rows: bool = False,
) -> _Answer:
    """Plan a query and have it answered; once more for each kind of file that DuckDB turns out not to read."""
    pivots = open_pivots(query)
    if pivots and not dry_run:
        catalog, limits = pinned(catalog), limits.begun()
        query = _with_values(catalog, query, pivots, limits)
    watch = Watch(limits.deadline(), limits.held_bytes_max, limits.cancelled)
    values = arrow_row(named_values(parameters)) if parameters else None
    unreadable: set[str | None] = set()
    while True:
        session = Session(catalog.store, limits, watch, lambda path: None in unreadable or path in unreadable)
        try:
            statement = session.parse(query)
            if shows_tables(statement.root) and not statement.explain:
                session.close()
                names = pa.table({"name": pa.array(catalog.tables(), pa.string())})
                return of_result(_of_table(scan_table(()) if dry_run else names))
            columns_only = without_rows or asks_no_rows(statement.root)
            opened = open_session(
                catalog, statement, session, limits, values, places, dry_run=dry_run, without_rows=columns_only
            )
            root, reports = opened.statement.root, opened.reports
            if dry_run:
                session.close()
                return of_result(_of_table(scan_table(reports)))
            if not statement.explain and not describes(root):
                return answer(session, opened)
            with closing(session):
                schema, batches = session.run(opened.rewritten.text, query, opened.rewritten.position)
                plans = list(batches)
            if not statement.explain:
                comments = partial(shown_comments, catalog, statement.root)
                rows = in_our_terms(root, opened.scans, plans, session.check_time, session.shown, comments)
                return of_result(Result(schema, rows, reports))
            plan = "\n".join(str(text) for batch in plans for text in batch.column(1).to_pylist())
            return of_result(_of_table(scan_table(reports, plan), reports))
        except UnreadableFile as error:
            session.close()
            if None in unreadable or error.path in unreadable:
                raise error.otherwise from None  # all that it may be about was read: the query failed of its own
            # Our own reader knows more kinds of Parquet, or what is wrong and with which file.
            unreadable.add(error.path)
        except Invalid as error:
            session.close()
            raise naming_parameter(error, values) from error
        except BaseException:
            session.close()
            raise


def _with_values(catalog: Catalog, query: str, pivots: Sequence[OpenPivot], limits: QueryLimits) -> str:
    """Return a query whose PIVOTs name their values, which the tables of the catalog have now."""
    for pivot in reversed(pivots):
        with run(catalog, pivot.values_query, limits) as result:
            values = [str(value) for batch in result for value in batch.column(0).to_pylist()]
        query = f"{query[: pivot.start]}{pivot.condition(values)}{query[pivot.end :]}"
    return query


def _of_table(table: pa.Table, reports: tuple[TableScan, ...] = ()) -> Result:
    return Result(table.schema, iter(table.to_batches()), reports)
