"""Store an uploaded file: append its rows to a table, or ingest them where that is one of events."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import field
from itertools import islice

import pyarrow as pa

from alluvia.commit.handle import TableHandle
from alluvia.delta.schema.types import type_name
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import ConcurrentTransaction, Invalid, TableNotFound
from alluvia.files.misfit import Misfit
from alluvia.files.sent import SentFile, SentRows
from alluvia.files.uploads.event_rows import StoredEvents, store_events, takes_events
from alluvia.files.uploads.keys import info_of, recorded, txn_of
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.append.append import append
from alluvia.operations.append.append_evolving import append_evolving
from alluvia.operations.catalog.catalog import WritableCatalog
from alluvia.operations.planning.optimistic_retry import Once, check_not_rollup
from alluvia.operations.reading.relations import hidden_columns, newest_versions

_COUNTING = threading.Lock()


@dataclass(frozen=True, slots=True)
class Upload:
    """A file for a table, and what may be done with it.

    declared: the columns, where the sender says them. key: what identifies it, so that it is stored once; `content` is
    a hash of what the key stands for. create: why the table may not be created; None where it may. evolve: the table
    gets the file's new columns. hidden: columns, folded, that messages must not name. before_commit: called before each
    commit, which its exception stops. events_key: what events without ids get theirs from; None: from the content.
    """

    table: str
    file: SentFile
    declared: pa.Schema | None = None
    key: str | None = None
    content: str = ""
    create: str | None = None
    evolve: bool = False
    tables_max: int | None = None
    hidden: frozenset[str] = field(default_factory=frozenset)
    before_commit: Callable[[], None] = lambda: None
    events_key: str | None = None

    @property
    def txn(self) -> Once | None:
        """Return the key as a transaction of the log."""
        return None if self.key is None else txn_of(self.key, self.content)


@dataclass(frozen=True, slots=True)
class Stored:
    """What an upload did: the version that has its rows, how many these are, and the columns that it created.

    version and rows are None of a repeated upload whose commit has expired.
    """

    version: int | None
    rows: int | None
    columns: Mapping[str, str]
    repeated: bool = False


def store(catalog: WritableCatalog, upload: Upload) -> Stored | StoredEvents:
    """Store a file in one commit, or do nothing if one of its key is stored; into a table of events as ingestion does.

    A table that is not there is created, with the declared columns or those that the whole file has. Raises `Misfit`
    and `TooLarge`, when nothing was stored, `TableNotFound`, and what an append raises.
    """
    handle = catalog.handle(upload.table)
    snapshot = _newest(handle)
    if snapshot is not None and takes_events(snapshot.schema):
        return _events(catalog, upload, snapshot)
    if snapshot is not None:
        check_not_rollup(snapshot, "upload")
        if (done := _repeated(handle, snapshot, upload)) is not None:
            return done
    elif upload.create is not None:
        raise TableNotFound(f"there is no table {upload.table!r}, and {upload.create}")
    with upload.file.rows() as rows:
        schema = _schema(catalog, upload, rows, snapshot)
        created: Mapping[str, str] = {}
        if snapshot is None:
            created = _typed(schema)
            if upload.declared is not None or upload.file.kind == "parquet":  # else inference has read every row
                rows.check(schema)
            snapshot = _create(catalog, handle, upload, schema)
            if (done := _repeated(handle, snapshot, upload)) is not None:
                return done
        else:
            created = _typed(pa.schema([each for each in schema if each.name not in snapshot.schema.names]))
        return _append(handle, upload, rows, schema, created)


def _events(catalog: WritableCatalog, upload: Upload, snapshot: Snapshot) -> StoredEvents:
    if upload.evolve or upload.declared is not None:
        raise Invalid(
            f"schema, evolve: {snapshot.name} is a table of events, which takes any fields: leave them out; columns "
            "are added with evolve"
        )
    return store_events(catalog, upload.table, upload.file, upload.events_key, upload.before_commit)


def _newest(handle: TableHandle) -> Snapshot | None:
    try:
        return handle.newest()
    except TableNotFound:
        return None


def _repeated(handle: TableHandle, snapshot: Snapshot, upload: Upload) -> Stored | None:
    found = recorded(handle.log, snapshot, upload.txn, upload.content)
    return None if found is None else Stored(found.version, found.rows, found.columns, repeated=True)


def _schema(catalog: WritableCatalog, upload: Upload, rows: SentRows, snapshot: Snapshot | None) -> pa.Schema:
    """Return the columns that the rows are read into. Raises `Misfit` for those that are missing or too many."""
    declared = upload.declared
    if declared is not None:
        _check_names(rows, declared)
    if snapshot is None:
        return rows.schema({}) if declared is None else declared
    table = snapshot.schema
    known = {each.name: each.type for each in table}
    hidden = hidden_columns(snapshot, newest_versions(catalog, snapshot.name), upload.hidden) if upload.hidden else ()
    for each in declared or ():
        if each.name in known and known[each.name] != each.type:
            there = "another type" if each.name in hidden else type_name(known[each.name])
            raise Misfit(f"schema: column {each.name} is {there} in the table, not {type_name(each.type)}")
    if upload.evolve:
        given = rows.schema(known) if declared is None else declared
        return pa.schema([*table, *(each for each in given if each.name not in known)])
    names = rows.names if declared is None else declared.names
    extra = [name for name in names or () if name not in known]
    if extra:
        raise Misfit(f"column {extra[0]!r:.100} is not in the table: leave it out, or add it with evolve")
    if declared is None and rows.names is not None:
        _check_complete(rows.names, table, hidden)
    return table


def _check_names(rows: SentRows, declared: pa.Schema) -> None:
    if rows.names is None:
        return
    extra = [name for name in rows.names if name not in declared.names]
    if extra:
        raise Misfit(f"schema: the file has the column {extra[0]!r:.100}, which the schema does not declare")


def _check_complete(names: list[str], table: pa.Schema, hidden: Collection[str]) -> None:
    missing = [name for name in table.names if name not in names]
    shown = next((name for name in missing if name not in hidden), None)
    if missing:
        which = "a column" if shown is None else f"the column {shown!r:.100}"
        raise Misfit(f"the file lacks {which} of the table: add it, or declare a schema without it, for nulls")


def _create(catalog: WritableCatalog, handle: TableHandle, upload: Upload, schema: pa.Schema) -> Snapshot:
    with _COUNTING:
        if upload.tables_max is not None:
            folders = sum(1 for _ in islice(catalog.store.list_folders(""), upload.tables_max))
            if folders == upload.tables_max:
                raise TableNotFound(
                    f"there is no table {upload.table!r}, and uploads create none: the lake has {folders} tables or "
                    "more, the limit of ALLUVIA_CREATE_TABLES_MAX"
                )
        catalog.create(upload.table, schema, (), (), None, exist_ok=True)
    return handle.newest()


def _append(
    handle: TableHandle, upload: Upload, rows: SentRows, schema: pa.Schema, created: Mapping[str, str]
) -> Stored:
    def batches() -> Iterator[pa.RecordBatch]:
        for table in rows.tables(schema):
            yield from fitted(table, schema).to_batches()

    reader = pa.RecordBatchReader.from_batches(schema, batches())
    info = info_of(upload.content if upload.key else "", created)
    way = append_evolving if upload.evolve else append
    try:
        commit = way(handle, reader, upload.txn, info, upload.before_commit)
    except ConcurrentTransaction:
        done = _repeated(handle, handle.newest(), upload)
        if done is None:
            raise
        return done
    except Invalid as error:
        if type(error) is not Invalid:  # it has a status of its own
            raise
        raise Misfit(str(error)) from error
    done = None if commit.files else _repeated(handle, handle.newest(), upload)
    if done is not None and (done.rows or done.version != commit.version):
        return done  # another one of the key was faster
    return Stored(commit.version, commit.rows or 0, created)


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows in all columns of a schema; those that they lack are null."""
    if table.schema.equals(schema):
        return table
    columns = [
        table[each.name] if each.name in table.column_names else pa.nulls(len(table), each.type) for each in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def _typed(schema: pa.Schema) -> dict[str, str]:
    return {each.name: type_name(each.type) for each in schema}
