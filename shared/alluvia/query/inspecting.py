"""Table functions about the lake in a query, such as `files('t')`: their rows, as the caller may see them.

Most comes from the log alone. It is found when the query is planned, goes to a file of the query's own, and is read
there, so that it composes with all of SQL and nothing else can be reached by it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow as pa

from alluvia.arrow_parquet import pq
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.schema.names import fold
from alluvia.delta.skipping.predicate import Predicate, Unknown
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.conditions.constants import Constants
from alluvia.engine.duck.failures import QueryTooCostly
from alluvia.engine.duck.literals import quote_table
from alluvia.engine.queries.parse import Node, integer_literal, text_literal, walk
from alluvia.engine.queries.references import Call, Reference, References
from alluvia.errors import Invalid, TableNotFound
from alluvia.inspection import branches as lake_branches
from alluvia.inspection import change_feed, history, information_schema, lake_tables, partitions, row_groups
from alluvia.inspection import columns as column_rows
from alluvia.inspection import files as file_rows
from alluvia.inspection import tags as lake_tags
from alluvia.inspection.asking import Asked, Rows
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import Catalog
from alluvia.operations.changes.changes import feed_schema
from alluvia.operations.reading.relations import LocalRows, Relation
from alluvia.query.limits import PlannedReads, QueryLimits
from alluvia.query.permitted import visible_schema
from alluvia.query.process.evaluator import ProcessEvaluator
from alluvia.query.process.session import Session
from alluvia.query.scans import TableScan, snapshots


@dataclass(frozen=True, slots=True)
class Inspection:
    """What stands in the place of a call: its columns, and what finds its rows."""

    schema: pa.Schema
    asked: Asked
    name: str
    path: Path
    prefix: str
    bytes_max: int | None
    reports: tuple[TableScan, ...]
    """What finding the rows reads of a table: data files, as a rule none."""
    find: Callable[[Asked], Rows] | None

    def narrowed(self, predicate: Predicate) -> Relation:
        """Return the rows that a query needs, given what its conditions need of them; none where none are wanted."""
        rows = () if self.find is None else self.find(replace(self.asked, predicate=predicate))
        with pq.ParquetWriter(self.path, self.schema, store_schema=False) as writer:
            for batch in rows:
                self.asked.check_time()
                writer.write_batch(batch)
                if self.bytes_max is not None and self.path.stat().st_size > self.bytes_max:
                    raise QueryTooCostly(f"{self.name}() gives more rows than the query may keep on disk: narrow it")
        own = f"{self.prefix}rows"
        views = {f"{self.prefix}result": f"FROM alluvia.{own}"}
        return Relation({own: LocalRows(self.path, self.schema)}, views)


@dataclass(frozen=True, slots=True)
class _Function:
    """A function: its columns, by the table's version if it takes one, and its rows."""

    schema: Callable[[Snapshot], pa.Schema]
    find: Callable[[Asked], Rows]
    sizes: Callable[[Asked], Sequence[int]] = lambda _: ()
    """Returns the bytes that are read of each data file; most functions read none."""
    in_part: bool = False
    """Whether a caller may ask about a table that it sees only in part."""


def _always(schema: pa.Schema) -> Callable[[Snapshot], pa.Schema]:
    return lambda _: schema


_COLUMNS = _Function(_always(column_rows.SCHEMA), column_rows.columns, in_part=True)
OF_TABLES: Mapping[str, _Function] = {
    "changes": _Function(feed_schema, change_feed.feed, change_feed.sizes),
    "columns": _COLUMNS,
    "files": _Function(file_rows.schema_of, file_rows.files),
    "history": _Function(_always(history.SCHEMA), history.history),
    "partitions": _Function(_always(partitions.SCHEMA), partitions.partitions),
    "row_groups": _Function(row_groups.schema_of, row_groups.row_groups, row_groups.sizes),
    "table_columns": _COLUMNS,
}
"""Functions of one table."""
OF_LAKES: Mapping[str, tuple[pa.Schema, Callable[[Asked], Rows]]] = {
    "branches": (lake_branches.SCHEMA, lake_branches.branches),
    "tables": (lake_tables.SCHEMA, lake_tables.tables),
    "tags": (lake_tags.SCHEMA, lake_tags.tags),
    "information_schema.columns": (information_schema.COLUMNS, information_schema.columns),
    "information_schema.schemata": (information_schema.SCHEMATA, information_schema.schemata),
    "information_schema.tables": (information_schema.TABLES, information_schema.tables),
    "information_schema.views": (information_schema.VIEW_TEXTS, information_schema.views),
}
"""Functions about the lake as a whole."""


def find_inspections(
    catalog: Catalog,
    root: Node,
    references: References,
    constants: Constants,
    newest: Mapping[str, Snapshot],
    session: Session,
    limits: QueryLimits,
    reads: PlannedReads,
    *,
    with_rows: bool,
) -> dict[Reference, tuple[pa.Schema, Inspection]]:
    """Return what stands in the place of each call in a query, with its columns.

    Raises `Invalid`, `TableNotFound` and `Forbidden`.
    """
    inspections: dict[Reference, tuple[pa.Schema, Inspection]] = {}
    named = names_of(root)
    read = dict(newest)
    for number, reference in enumerate(references.tables):
        call = reference.call
        if call is None:
            continue
        prefix = f"inspected_{number}_"
        path = session.folder / f"{prefix}rows.parquet"
        sizes: Sequence[int] = ()
        if call.function in OF_LAKES:
            schema, find = OF_LAKES[call.function]
            asked = Asked(catalog, view_columns=partial(_view_columns, catalog, limits))
        else:
            function = OF_TABLES[call.function]
            asked = _of_table(catalog, call, reference, constants, read, session, limits)
            schema, find, sizes = function.schema(asked.snapshot), function.find, function.sizes(asked)
            if with_rows:
                reads.add_sizes(asked.snapshot, sizes)
        columns = None
        if named is not None and fold(reference.alias) not in named:  # which would be all of them, as a struct
            columns = frozenset(each for each in schema.names if fold(each) in named)
        asked = replace(asked, columns=columns, seen=partial(visible_schema, catalog), check_time=session.check_time)
        finder = find if with_rows else None
        inspections[reference] = (
            schema,
            Inspection(schema, asked, call.function, path, prefix, limits.spill_bytes, _reports(asked, sizes), finder),
        )
    return inspections


def _of_table(
    catalog: Catalog,
    call: Call,
    reference: Reference,
    constants: Constants,
    read: dict[str, Snapshot],
    session: Session,
    limits: QueryLimits,
) -> Asked:
    """Return what a call asks about a table, if the caller may know."""
    function, arguments = call.function, call.arguments
    snapshot = _snapshot(catalog, reference, constants, read)
    if catalog.rights is not None and not OF_TABLES[function].in_part:
        catalog.rights.check_sees_all(f"{function}()", (snapshot.name,))
    asked = Asked(
        catalog,
        snapshot,
        _where(arguments.get("where"), snapshot, constants.now_us, session, limits),
        {name: _number(name, node) for name, node in arguments.items() if name in ("limit", "from")},
        {name: _flag(name, node) for name, node in arguments.items() if name == "expired"},
    )
    catalog.note_read(Scan(snapshot, asked.where))
    return asked


def _reports(asked: Asked, sizes: Sequence[int]) -> tuple[TableScan, ...]:
    """Return what finding the rows reads of the table, for a caller that may know how large it is."""
    table, rights = asked.table, asked.catalog.rights
    if table is None or (rights is not None and rights.restriction(table.name)):
        return ()
    files, size = table.totals
    read, read_bytes = len(sizes), sum(sizes)
    files, size = max(files, read), max(size, read_bytes)  # changes may have been made to files that are gone
    return (TableScan(table.name, table.version, files, files - read, read, size, read_bytes, read),)


def _view_columns(catalog: Catalog, limits: QueryLimits, name: str) -> pa.Schema:
    from alluvia.query.engine import columns  # which loads this module for a call

    return columns(catalog, f"FROM {quote_table(name)}", limits)


def names_of(root: Node) -> frozenset[str] | None:
    """Return all names, folded, that a query may know columns by; None where it takes all columns of something."""
    names: set[str] = set()
    for node in walk(root):
        if node.get("class") == "STAR" or node.get("type") == "SHOW_REF" or node.get("ref_type") == "NATURAL":
            return None
        for key in ("column_names", "using_columns", "unpivot_names", "column_name_alias"):
            names.update(map(fold, node.get(key) or ()))
        if node.get("column_name_alias") or node.get("type") == "PIVOT" or node.get("class") == "POSITIONAL_REFERENCE":
            return None
    return frozenset(names)


def _snapshot(catalog: Catalog, reference: Reference, constants: Constants, read: dict[str, Snapshot]) -> Snapshot:
    table = replace(reference, call=None, is_function=False)
    try:
        return snapshots(catalog, [table], constants, read)[table]
    except TableNotFound:
        if reference.call is not None and reference.table and catalog.find_view(reference.table) is not None:
            raise Invalid(
                f"{reference.shown} is a view: {reference.call.function}() takes a table, such as one that it reads"
            ) from None
        raise


def _where(node: Node | None, snapshot: Snapshot, now_us: int, session: Session, limits: QueryLimits) -> Predicate:
    """Return what a condition, given as text, needs of rows, as of the query's time."""
    if node is None:
        return Unknown()
    text = text_literal(node)
    if text is None:
        raise Invalid("where: expected a condition as text, as in files('t', 'ts >= ''2026-01-31''')")
    from alluvia.engine.conditions.condition import pruning_predicate
    from alluvia.engine.duck.evaluators import evaluating

    with ProcessEvaluator(limits) as evaluator, evaluating(evaluator):
        return pruning_predicate(text, snapshot.schema, now_us, session.analyse, session.plan)


def _number(name: str, node: Node) -> int:
    number = integer_literal(node)
    if number is None:
        raise Invalid(f"{name}: expected a whole number")
    return number


def _flag(name: str, node: Node) -> bool:
    """Return what `true` or `false` means, which the parser makes a cast of a text."""
    text = text_literal(node.get("child")) if node.get("class") == "CAST" else None
    if text not in ("t", "f"):
        raise Invalid(f"{name}: expected true or false")
    return text == "t"
