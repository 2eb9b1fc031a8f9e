"""Run one SELECT over a lake's tables: we resolve snapshots and prune files, DuckDB runs the query.

Each query gets its own database, with one view per table reference, over exactly the files left after pruning. Then the
database is confined (see `duck.confine`), and only then does the user's text run.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Self, TypeVar

import pyarrow as pa

from alluvia.duck.failures import QueryTooCostly, UnreadableFile, out_of_memory
from alluvia.duck.relation import RowPlaces
from alluvia.errors import Invalid
from alluvia.expressions.constants import Constants
from alluvia.expressions.parse import Statement, parse
from alluvia.expressions.references import Reference, References, find_references, names_in_use, shows_tables
from alluvia.expressions.rewrite import Rewritten, rewrite
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog import Catalog
from alluvia.operations.folding import FINAL
from alluvia.operations.relations import Files, Inputs, LocalRows, Relation
from alluvia.query.derived import find_derived
from alluvia.query.describe import describes, in_our_terms
from alluvia.query.evaluation import evaluation
from alluvia.query.fetching import EARLY_FILES, asks_no_rows, may_end_early
from alluvia.query.formats import Format, render
from alluvia.query.identity import Identity, identity_of
from alluvia.query.limits import PlannedReads, QueryLimits
from alluvia.query.parameters import Parameters, arrow_row, check_given, named_values
from alluvia.query.processes import LargeResults, Watch
from alluvia.query.scans import TableScan, newest_snapshots, plan_scans, report, scan_table
from alluvia.query.session import Session
from alluvia.query.streaming import StreamReading
from alluvia.query.views import expand
from alluvia.store.metering import metered_here
from alluvia.table.scan import Scan
from alluvia.table.snapshot import Snapshot

if TYPE_CHECKING:
    from alluvia.query.inspecting import Inspection


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
        self._finalizer = weakref.finalize(self, close)  # also where nobody reads the rows to their end

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
        found = self.read_within(limit_bytes)
        if found is None:
            raise QueryTooCostly(out_of_memory(limit_bytes))
        return found

    def read_within(self, limit_bytes: int | None) -> pa.Table | None:
        """Return all rows; None, and the query ends, if they take more memory than a limit."""
        found: list[pa.RecordBatch] = []
        held = 0
        for batch in self:
            found.append(batch)
            held += batch.nbytes
            if limit_bytes is not None and held > limit_bytes:
                return None
        return pa.Table.from_batches(found, self.schema)

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

    def stream(session: Session, opened: _Opened) -> Result:
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

    def rendered(session: Session, opened: _Opened) -> Rendered:
        text, position = opened.rewritten.text, opened.rewritten.position
        with closing(session):
            found = session.render(text, query, position, form.name, limit_bytes, large)
        made_of = partial(identity_of, catalog.rights, opened.statement, opened.named)
        return Rendered(*found, opened.reports, made_of, opened.read)

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

    def described(session: Session, opened: _Opened) -> pa.Schema:
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
    answer: Callable[[Session, _Opened], _Answer],
    of_result: Callable[[Result], _Answer],
    parameters: Parameters | None,
    places: RowPlaces | None = None,
    *,
    dry_run: bool = False,
    without_rows: bool = False,
) -> _Answer:
    """Plan a query and have it answered; once more for each kind of file that DuckDB turns out not to read."""
    watch = Watch(limits.deadline(), limits.held_bytes_max, limits.cancelled)
    values = arrow_row(named_values(parameters)) if parameters else None
    unreadable: set[str | None] = set()
    while True:
        session = Session(catalog.store, limits, watch, lambda path: None in unreadable or path in unreadable, values)
        try:
            statement = parse(query, session.analyse)
            if shows_tables(statement.root) and not statement.explain:
                session.close()
                names = pa.table({"name": pa.array(catalog.tables(), pa.string())})
                return of_result(_of_table(scan_table(()) if dry_run else names))
            columns_only = without_rows or asks_no_rows(statement.root)
            opened = _open(
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
                found = list(batches)
            if not statement.explain:
                return of_result(Result(schema, in_our_terms(root, opened.scans, found, session.check_time), reports))
            plan = "\n".join(str(text) for batch in found for text in batch.column(1).to_pylist())
            return of_result(_of_table(scan_table(reports, plan), reports))
        except UnreadableFile as error:
            session.close()
            if None in unreadable or error.path in unreadable:
                raise error.otherwise from None  # all that it may be about was read: the query failed of its own
            # Our own reader knows more kinds of Parquet, or what is wrong and with which file.
            unreadable.add(error.path)
        except BaseException:
            session.close()
            raise


@dataclass(frozen=True, slots=True)
class _Opened:
    """What a session was given: the query without views, the scans of tables, what namings cost, the text to run.

    `named` has the version of each naming of a table; None where the query names relations that are made of others.
    `read` has every version that is read.
    """

    statement: Statement
    scans: dict[Reference, Scan]
    reports: tuple[TableScan, ...]
    rewritten: Rewritten
    named: Mapping[Reference, Snapshot] | None
    read: tuple[Snapshot, ...]


def _open(
    catalog: Catalog,
    statement: Statement,
    session: Session,
    limits: QueryLimits,
    values: pa.Table | None,
    places: RowPlaces | None,
    *,
    dry_run: bool,
    without_rows: bool,
) -> _Opened:
    """Give a session what a query names, but not in a dry run; tables without a file where no row is asked for."""
    given = {} if values is None else {name: values[name][0] for name in values.column_names}
    if given:
        check_given(statement.root, given)
    references = find_references(statement.root, parameters=bool(given))
    with ThreadPoolExecutor(1) as pool:  # the newest versions are looked up while DuckDB starts
        looking = pool.submit(metered_here(newest_snapshots), catalog, references)
        now_us = session.begin()
    newest = looking.result()
    expanded = expand(catalog, statement, references, newest, session.analyse, parameters=bool(given))
    if expanded.views:  # which name other tables: all are read at one moment
        statement, references = expanded.statement, expanded.references
        newest = newest_snapshots(catalog, references)
    constants = Constants(now_us, names_in_use(statement.root), given, session.plan)
    reads = PlannedReads(limits, catalog.rights)
    with_rows = not (dry_run or without_rows or statement.explain)
    derived = _derived(
        catalog, statement, references, constants, newest, session, limits, reads, dry_run=dry_run, with_rows=with_rows
    )
    schemas = {one: schema for one, (schema, _) in derived.items()}
    plan = plan_scans(catalog, references, constants, newest, schemas)
    scans = plan.scans
    inputs: dict[str, Files | LocalRows] = {}
    views: dict[str, str] = {}
    names: dict[Reference, str] = {}
    reports: list[TableScan] = []
    for number, reference in enumerate(references.tables):
        if reference in derived:
            relation = derived[reference][1].narrowed(plan.needed[reference])
            relation = _emptied(relation) if without_rows else relation
            inputs |= relation.inputs
            views |= relation.views
            names[reference] = relation.name
            for each in (each for each in relation.inputs.values() if isinstance(each, Files)):
                catalog.note_read(Scan(each.snapshot))
            reports += _reports(derived[reference][1], relation)
        else:
            names[reference] = f"scan_{number}"
            catalog.note_read(scans[reference])
            scan = scans[reference]
            shown, located = plan.shown.get(reference), places if number == 0 else None
            files = Files(scan.snapshot, () if without_rows else scan.files, shown=shown, places=located)
            inputs[names[reference]] = files
            reports.append(report(reference.shown, files))
    read = [each for each in inputs.values() if isinstance(each, Files)]
    if catalog.rights is not None and (dry_run or statement.explain):
        what = "a dry run" if dry_run else "EXPLAIN"
        catalog.rights.check_sees_all(what, [each.snapshot.name for each in read])
    if not dry_run:
        reads.add(inputs)
    rewritten = replace(rewrite(statement, names, session.analyse), outer=expanded.position)
    if not dry_run:
        session.open(inputs, views, fetched_max=_fetched_max(statement))
    named = _tables_named(references, scans, {reference: relation for reference, (_, relation) in derived.items()})
    return _Opened(statement, scans, tuple(reports), rewritten, named, tuple(reads.snapshots))


def _derived(
    catalog: Catalog,
    statement: Statement,
    references: References,
    constants: Constants,
    newest: Mapping[str, Snapshot],
    session: Session,
    limits: QueryLimits,
    reads: PlannedReads,
    *,
    dry_run: bool,
    with_rows: bool,
) -> dict[Reference, tuple[pa.Schema, Relation | Inspection]]:
    """Return what stands in the place of names and calls that are no tables, with its columns."""
    evaluate = _nothing_evaluated if dry_run else evaluation(catalog.store, limits, reads.add)
    streams = StreamReading(catalog, session.folder, limits, reads, dry_run=dry_run, with_rows=with_rows)
    found: dict[Reference, tuple[pa.Schema, Relation | Inspection]] = {
        **find_derived(catalog, references, constants, newest, evaluate, streams)
    }
    if any(reference.call is not None for reference in references.tables):
        from alluvia.query.inspecting import find_inspections  # which other queries do not need

        root = statement.root
        found |= find_inspections(
            catalog, root, references, constants, newest, session, limits, reads, with_rows=with_rows
        )
    return found


def _reports(found: Relation | Inspection, relation: Relation) -> list[TableScan]:
    """Return what a relation costs that stands in the place of what was found."""
    before = () if isinstance(found, Relation) else found.reports
    return [
        *before,
        *(report(each.snapshot.name, each) for each in relation.inputs.values() if isinstance(each, Files)),
    ]


def _emptied(relation: Relation) -> Relation:
    """Return a relation without files."""
    inputs: Inputs = {
        name: replace(each, files=(), paths=()) if isinstance(each, Files) else each
        for name, each in relation.inputs.items()
    }
    return replace(relation, inputs=inputs)


def _nothing_evaluated(relation: Relation, take: Callable[[pa.Schema, Iterator[pa.RecordBatch]], _Answer]) -> _Answer:  # noqa: ARG001
    raise Invalid("a dry run reads no rows, and it depends on rows which files this takes: send it without dry_run")


def _tables_named(
    references: References, scans: Mapping[Reference, Scan], relations: Mapping[Reference, Relation | Inspection]
) -> Mapping[Reference, Snapshot] | None:
    """Return the version of the one table that each naming reads; None where one reads more than that."""
    found = {}
    for reference in references.tables:
        if reference in scans:
            found[reference] = scans[reference].snapshot
            continue
        relation = relations[reference]
        inputs = list(relation.inputs.values()) if isinstance(relation, Relation) else []
        if len(inputs) != 1 or not isinstance(inputs[0], Files) or not str(reference.table).endswith(FINAL):
            return None
        found[reference] = inputs[0].snapshot
    return found


def _fetched_max(statement: Statement) -> int | None:
    """Return how many files are worth fetching before a query runs; None for any number."""
    if statement.explain:
        return 0
    return EARLY_FILES if may_end_early(statement.root) else None


def _of_table(table: pa.Table, reports: tuple[TableScan, ...] = ()) -> Result:
    return Result(table.schema, iter(table.to_batches()), reports)
