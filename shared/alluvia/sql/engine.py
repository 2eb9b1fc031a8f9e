"""Running one SELECT over a lake's tables: snapshots and pruning are ours, the query itself is DuckDB's.

A query gets a database of its own, with a view for each naming of a table, over exactly the files that its conditions
leave; then the database is shut (see `duck.confine`), and only then does the user's text run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self

import pyarrow as pa

from alluvia.sql.constants import Constants
from alluvia.sql.failures import UnreadableFile
from alluvia.sql.parse import Statement, parse
from alluvia.sql.references import References, find_references, names_in_use, shows_tables
from alluvia.sql.rewrite import rewrite
from alluvia.sql.scans import Lake, TableScan, newest_snapshots, plan_scans, scan_table
from alluvia.sql.session import Limits, Session
from alluvia.table.snapshot import Snapshot

__all__ = ["Limits", "Result", "run"]


class Result:
    """A query's rows, as they come. Use it in a `with` block, or close it, when not all rows are read."""

    def __init__(
        self,
        schema: pa.Schema,
        batches: Iterator[pa.RecordBatch],
        tables: tuple[TableScan, ...] = (),
        close: Callable[[], None] = lambda: None,
    ) -> None:
        self.schema = schema
        self.tables = tables
        """What each naming of a table in the query cost, in order."""
        self._batches = batches
        self._close = close

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows; raises `Invalid` or `Unavailable` where the query fails half-way."""
        try:
            yield from self._batches
        finally:
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def read_all(self) -> pa.Table:
        """Return all rows."""
        return pa.Table.from_batches(list(self), self.schema)

    def close(self) -> None:
        """Stop the query, if it still runs, and free what it holds."""
        self._close()


def run(lake: Lake, query: str, limits: Limits | None = None) -> Result:
    """Run one SELECT, EXPLAIN of one, or SHOW TABLES.

    Raises `Invalid` with DuckDB's message for a query that is wrong or not allowed, its subclass `QueryTooCostly` at a
    limit, `TableNotFound`, `VersionNotFound`, `VersionExpired`; `Unavailable` and `Corrupt` for the lake's own trouble.
    """
    statement = parse(query)
    if shows_tables(statement.root) and not statement.explain:
        return _of_table(pa.table({"name": pa.array(lake.tables(), pa.string())}))
    references = find_references(statement.root)
    unreadable: set[str | None] = set()
    while True:
        with ThreadPoolExecutor(1) as pool:  # the newest versions are looked up while DuckDB starts
            looking = pool.submit(newest_snapshots, lake, references)
            session = Session(lake.store, limits or Limits(), _copied(unreadable))
        try:
            return _run(lake, statement, references, session, looking.result())
        except UnreadableFile as error:
            session.close()
            if None in unreadable:
                raise
            # Our own reader knows more kinds of Parquet, or what is wrong and with which file.
            unreadable.add(None if unreadable else error.path)
        except BaseException:
            session.close()
            raise


def _copied(unreadable: set[str | None]) -> Callable[[str], bool]:
    """Return whether DuckDB cannot read a file: one is named, or (None) any may be one."""
    return lambda path: None in unreadable or path in unreadable


def _run(
    lake: Lake, statement: Statement, references: References, session: Session, newest: Mapping[str, Snapshot]
) -> Result:
    constants = Constants(session.begin(), names_in_use(statement.root))
    scans = plan_scans(lake, references, constants, newest)
    views = {scan.reference: f"scan_{number}" for number, scan in enumerate(scans)}
    rewritten = rewrite(statement, views)
    session.open(scans, list(views.values()))
    schema, batches = session.run(rewritten.text, statement.text, rewritten.position)
    reports = tuple(scan.report() for scan in scans)
    if not statement.explain:
        return Result(schema, batches, reports, session.close)
    plan = "\n".join(str(text) for batch in batches for text in batch.column(1).to_pylist())
    session.close()
    return _of_table(scan_table(scans, plan), reports)


def _of_table(table: pa.Table, reports: tuple[TableScan, ...] = ()) -> Result:
    return Result(table.schema, iter(table.to_batches()), reports)
