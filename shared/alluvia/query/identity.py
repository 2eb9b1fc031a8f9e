"""The identity of an answer: the versions that a query reads, and the rights that change what its caller sees.

Two runs with the same identity answer the same. Before a run it says whether an answer is still good; the run itself
computes it again from the versions that were in fact read, so that no answer is kept under other versions.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from hashlib import sha256

import orjson

from alluvia.access.rights import Rights
from alluvia.commit.intents import CLAIM
from alluvia.delta.snapshot import Snapshot
from alluvia.engine.conditions.constants import Constants
from alluvia.engine.queries.parse import Analysis, Statement
from alluvia.engine.queries.pivots import open_pivots
from alluvia.engine.queries.references import At, Reference, names_in_use, shows_tables
from alluvia.engine.queries.reproducible import condition_varies, query_varies, varies
from alluvia.errors import Forbidden, TableNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import Catalog
from alluvia.processes.pool import Watch
from alluvia.query.derived import final_snapshot
from alluvia.query.describe import describes
from alluvia.query.known_texts import parsed, references_of
from alluvia.query.limits import QueryLimits
from alluvia.query.parameters import Parameters, check_given, named_values
from alluvia.query.process.session import Session
from alluvia.query.resolving import newest_snapshots, resolve
from alluvia.query.scans import snapshots
from alluvia.query.views import expand
from alluvia.version import __version__


@dataclass(frozen=True, slots=True)
class TableRead:
    """One mention of a table in a query: the version that it means, and the restriction on it."""

    table: str
    table_id: str
    version: int
    where: tuple[str, ...] = ()
    hide: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Identity:
    """What an answer is made of. `text` is the query with its views put in place; `reads` are in the text's order."""

    text: str
    reads: tuple[TableRead, ...]

    def key(self, query: str, parameters: Parameters | None, form: str) -> str:
        """Return what stands for the answer in a form to a query as it was sent: 64 hexadecimal digits."""
        reads = [(each.table, each.table_id, each.version, each.where, each.hide) for each in self.reads]
        # As Python writes them, so that no two types, and no null and NaN, look alike.
        values = repr(dict(sorted(parameters.items())) if isinstance(parameters, Mapping) else parameters)
        return sha256(orjson.dumps([_engine(), form, query, values, self.text, reads])).hexdigest()


@cache
def _engine() -> str:
    """Return the versions of this library and of DuckDB: others may answer otherwise."""
    from importlib.metadata import version  # loads the parser of e-mail

    return f"{__version__}/{version('duckdb')}"


def identity_of(
    rights: Rights | None, statement: Statement, read: Mapping[Reference, Snapshot] | None
) -> Identity | None:
    """Return what the answer to a query without views is made of; None if it may differ each time.

    `read` has the version of each naming of a table, in the order of the text, and nothing else that is read.
    """
    if read is None or statement.explain or describes(statement.root) or varies(statement.root):
        return None
    reads = []
    for reference, snapshot in read.items():
        limits = None if rights is None else rights.restriction(snapshot.name)
        where, hide = ((), ()) if limits is None else (limits.where, tuple(sorted(limits.hide)))
        # A transaction that is being carried out changes what a version holds, and a column may be hidden in an old
        # version, or on a branch, because of what it is called now, or in the lake.
        is_old = reference.at != At() or bool(snapshot.origin)
        if _is_unsettled(snapshot) or ((where or hide) and is_old) or any(map(condition_varies, where)):
            return None
        if reference.table != snapshot.name and query_varies(snapshot.settings.merge_query):
            return None
        # Copies of a table have its id. Where an attached one is, its root tells.
        table_id = f"{snapshot.state.metadata.id}{snapshot.origin} {snapshot.root}"
        reads.append(TableRead(snapshot.name, table_id, snapshot.version, where, hide))
    return Identity(statement.text, tuple(reads))


def identify(
    catalog: Catalog, query: str, limits: QueryLimits | None = None, parameters: Parameters | None = None
) -> Identity | None:
    """Return what the answer to a query would be made of now; None if it may differ each time.

    No data file is read: one GET for each table that is warm. Raises what running the query raises for its text, its
    parameters, and tables and versions that are not there.
    """
    limits = (limits or QueryLimits()).begun()

    def analyse(text: str) -> Analysis:
        session = Session(catalog.store, limits, Watch(limits.deadline(), limits.held_bytes_max, limits.cancelled))
        try:
            return session.analyse(text)
        finally:
            session.close()

    if open_pivots(query):  # its columns are values of rows
        return None
    statement = parsed(query, analyse)
    if shows_tables(statement.root):
        return None
    values = named_values(parameters)
    if values:
        check_given(statement.root, values)
    references = references_of(statement, parameters=bool(values))
    references, newest = resolve(catalog, references)
    expanded = expand(catalog, statement, references, newest, analyse, parameters=bool(values))
    if expanded.views:
        newest = newest_snapshots(catalog, expanded.references)
    calls = any(each.call is not None or each.at.ago_ms is not None for each in expanded.references.tables)
    if calls or varies(expanded.statement.root):
        return None
    constants = Constants(0, names_in_use(expanded.statement.root))
    read: dict[Reference, Snapshot] = {}
    known = dict(newest)
    try:
        for reference in expanded.references.tables:
            final = None if reference.table in newest else final_snapshot(catalog, reference, constants, known)
            read[reference] = final or snapshots(catalog, [reference], constants, known)[reference]
    except (TableNotFound, Forbidden):  # or a relation that is made of other tables: the run knows
        return None
    return identity_of(catalog.rights, expanded.statement, read)


def _is_unsettled(snapshot: Snapshot) -> bool:
    return any(name.startswith(CLAIM) for name in snapshot.state.domains)
