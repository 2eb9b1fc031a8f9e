"""What a query reads: for each table that it names, a version and the files left after pruning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

import pyarrow as pa

from alluvia.delta.data_files.scan import Scan
from alluvia.delta.schema.names import places_by_name
from alluvia.delta.skipping.predicate import Predicate
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.conditions.constants import Constants
from alluvia.engine.conditions.operands import to_datetime
from alluvia.engine.conditions.predicates import all_of, table_predicate
from alluvia.engine.queries.functions import LAKE_FUNCTIONS, NOW_FUNCTIONS, TABLE_FUNCTIONS, TODAY_FUNCTIONS
from alluvia.engine.queries.references import At, Reference, References
from alluvia.engine.queries.scopes import filters_by_table
from alluvia.errors import Forbidden, Invalid, TableNotFound, VersionNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.nearest_name import did_you_mean
from alluvia.operations.catalog.catalog import Catalog
from alluvia.operations.catalog.schemas import has_schema
from alluvia.operations.reading.relations import Files, ShownPart
from alluvia.query.limits import dollars, requests_of
from alluvia.query.permitted import visible
from alluvia.store.uris import missing_folder
from alluvia.table_names import schema_of

NAMES_SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class TableScan:
    """What one naming of a table cost: files and bytes of the version, and what was left to read of them.

    `requests` for the files that are left, and their price, are estimates: see `query.limits`.
    """

    table: str
    version: int
    files_total: int
    files_pruned: int
    files_read: int
    bytes_total: int
    bytes_read: int
    requests: int

    @property
    def dollars(self) -> float:
        """Return the price on AWS."""
        return dollars(self.requests, self.bytes_read)


@dataclass(frozen=True, slots=True)
class ScanPlan:
    """What is read for each naming of a table, and `shown` of it if not all may be seen.

    `needed` is, of names that stand for other relations, what the query's conditions need of their rows.
    """

    scans: dict[Reference, Scan]
    needed: dict[Reference, Predicate]
    shown: dict[Reference, ShownPart]


def report(table: str, read: Files) -> TableScan:
    """Return what a naming of a table cost; `table` is what the query calls it."""
    files_total, bytes_total = read.snapshot.totals
    return TableScan(
        table=table,
        version=read.snapshot.version,
        files_total=files_total,
        files_pruned=files_total - len(read.files),
        files_read=len(read.files),
        bytes_total=bytes_total,
        bytes_read=sum(file.size for file in read.files),
        requests=requests_of(read.files),
    )


def plan_scans(
    catalog: Catalog,
    references: References,
    constants: Constants,
    newest: Mapping[str, Snapshot] | None = None,
    derived: Mapping[Reference, pa.Schema] | None = None,
) -> ScanPlan:
    """Return the versions and files to read, for each naming of a table in the query.

    A table named twice without a version is read at one and the same, that of `newest` if it is there. `derived` has
    the columns of names that stand for other relations than tables. Raises `TableNotFound`, naming the tables that
    there are, `VersionNotFound`, `VersionExpired` or `Invalid`.
    """
    tables = [reference for reference in references.tables if reference not in (derived or {})]
    read = snapshots(catalog, tables, constants, dict(newest or {}))
    seen = {reference: visible(catalog, snapshot, constants.now_us) for reference, snapshot in read.items()}
    shown = {reference: each.shown for reference, each in seen.items() if each is not None}
    schemas = {
        reference: shown[reference].schema(snapshot) if reference in shown else snapshot.schema
        for reference, snapshot in read.items()
    } | dict(derived or {})
    columns = [places_by_name(schema) for schema in schemas.values()]
    times = {name for name in NOW_FUNCTIONS | TODAY_FUNCTIONS if any(name in each for each in columns)}
    constants = Constants(constants.now_us, constants.taken | times, constants.parameters, constants.run)
    filters = filters_by_table(references, schemas)
    predicates = {
        reference: table_predicate(reference, filters.get(reference, ()), schema, constants)
        for reference, schema in schemas.items()
    }
    scans = {
        reference: Scan(snapshot, all_of((predicates[reference], *([each.predicate] if each else []))))
        for (reference, snapshot), each in zip(read.items(), seen.values(), strict=True)
    }
    return ScanPlan(scans, {reference: predicates[reference] for reference in derived or {}}, shown)


def snapshots(
    catalog: Catalog, references: Sequence[Reference], constants: Constants, newest: dict[str, Snapshot]
) -> dict[Reference, Snapshot]:
    """Return the version of a table that each naming means; `newest`, by name, gets those that it looks up."""
    by_reference: dict[Reference, Snapshot] = {}
    for reference in references:
        name, at = reference.table, reference.at
        if name is None:
            raise TableNotFound(_unknown(catalog, reference))
        try:
            if at == At():
                if name not in newest:
                    newest[name] = catalog.handle(name).snapshot()
                by_reference[reference] = newest[name]
            elif at.version is not None:
                by_reference[reference] = catalog.handle(name).snapshot(version=at.version)
            elif at.tag is not None:
                by_reference[reference] = _tagged(catalog, name, at.tag)
            else:
                by_reference[reference] = catalog.handle(name).snapshot(
                    timestamp=_moment(catalog, reference, constants)
                )
        except TableNotFound as error:
            message = _unknown(catalog, reference)
            raise (Invalid(message) if reference.may_be_function else TableNotFound(message)) from error
    return by_reference


def _tagged(catalog: Catalog, name: str, tag: str) -> Snapshot:
    from alluvia.operations.references.tags import tagged  # most queries do without

    return tagged(catalog.handle(name), tag)


def _moment(catalog: Catalog, reference: Reference, constants: Constants) -> datetime:
    node, ago_ms = reference.at.moment, reference.at.ago_ms
    at_us = None if node is None else constants.moment_us(node)
    if ago_ms is not None:
        at_us = constants.now_us - ago_ms * 1000
    if at_us is None:
        if reference.is_function and reference.table not in catalog.tables():
            raise Invalid(_unknown(catalog, reference))
        raise Invalid(
            f"the version of {reference.shown} must be a timestamp, as in {reference.shown}('2026-01-31 12:00:00'), "
            f"or a number, as in {reference.shown}(version => 3)"
        )
    try:
        return to_datetime(at_us)
    except OverflowError as error:
        raise VersionNotFound(f"{reference.shown} has no version at that time") from error


def _unknown(catalog: Catalog, reference: Reference) -> str:
    if reference.table is not None and catalog.find_view(reference.table) is not None:
        return f"{reference.shown} is a view, which has no versions: name versions of tables in its query"
    names = catalog.tables()
    listed = ", ".join(names[:NAMES_SHOWN_MAX]) + (", …" if len(names) > NAMES_SHOWN_MAX else "")
    folder = "" if names or catalog.rights is not None else missing_folder(catalog.store.uri)
    yet = "yet" if catalog.rights is None else "that this caller may read"
    empty = f"there is no folder {folder}" if folder else f"it holds no tables {yet}"
    holds = f"the tables are: {listed}" if names else empty
    if reference.may_be_function:
        if reference.table in LAKE_FUNCTIONS:
            return f"{reference.shown}() needs the name of a table as text first; {holds}"
        allowed = ", ".join(sorted({*TABLE_FUNCTIONS, *LAKE_FUNCTIONS}))
        if near := did_you_mean(reference.table or reference.shown, (*TABLE_FUNCTIONS, *LAKE_FUNCTIONS, *names)):
            return f"there is no table function {reference.shown}(): {near}"
        return f"{reference.shown}() is neither a table of the lake ({holds}) nor an allowed table function ({allowed})"
    near = did_you_mean(reference.shown, names) or _without_place(catalog, reference)
    if reference.table is None and reference.shown in names:
        near = "write it without quotes around the dot"
    return f"the lake has no table {reference.shown!r}{f': {near}' if near else f'; {holds}'}"


def _without_place(catalog: Catalog, reference: Reference) -> str:
    """Say that the first part of a name is neither a schema nor a branch; empty if it is one, or if there is none."""
    schema = schema_of(reference.table or "")
    if not reference.otherwise or has_schema(catalog.store, schema):
        return ""
    try:
        catalog.handle(reference.otherwise[0])
    except TableNotFound as error:
        expired = not str(error).startswith("there is no branch")
        return str(error) if expired else f"there is no schema or branch {schema!r} (SHOW SCHEMAS lists the schemas)"
    except Forbidden:  # there is a table or a branch, which the caller may not see
        return ""
    return ""


def scan_table(reports: Sequence[TableScan], plan: str | None = None) -> pa.Table:
    """Return a row for each table named, and a last one for all. EXPLAIN has DuckDB's plan in it."""
    columns: dict[str, pa.Array] = {
        "table": pa.array([*(one.table for one in reports), None], pa.string()),
        "version": pa.array([*(one.version for one in reports), None], pa.int64()),
    }
    for name in ("files_total", "files_pruned", "files_read", "bytes_total", "bytes_read", "requests", "dollars"):
        numbers = [getattr(one, name) for one in reports]
        kind = pa.float64() if name == "dollars" else pa.int64()
        columns[name] = pa.array([*numbers, sum(numbers)], kind)
    if plan is not None:
        columns["plan"] = pa.array([*(None for _ in reports), plan], pa.string())
    return pa.table(columns)
