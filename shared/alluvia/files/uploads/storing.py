"""Store an uploaded file: append its rows to a table, or ingest them where that is one of events.

A key is an application's id in the log (`txn`), kept by its hash for as long as the table, about 100 bytes each. Two
uploads of one key never commit both: the log's conflict rules let only one of them win. The number of the transaction
is of the content's hash, so that a key never stands for two, not even when clean-up has taken the commit. The commit
says what was created besides, so that a repeated upload gets the first answer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import field
from hashlib import blake2b
from itertools import islice
from typing import Any

import pyarrow as pa

from alluvia.commit.handle import TableHandle
from alluvia.delta.log.actions import Txn
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.log import Log, version_at
from alluvia.delta.schema.types import type_name
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import ConcurrentTransaction, Invalid, TableNotFound, VersionExpired, VersionNotFound
from alluvia.events.ingest.values import IngestOutcome
from alluvia.files.limits import Misfit
from alluvia.files.reading_options import YearsOfTwoDigits
from alluvia.files.sent import SentFile, SentRows
from alluvia.files.text_values import as_declared
from alluvia.files.uploads.uploaded_events import store_events, takes_events
from alluvia.lazy_dataclasses import dataclass
from alluvia.nearest_name import did_you_mean
from alluvia.operations.append.append import append, append_evolving
from alluvia.operations.catalog.catalog import NewTable, WritableCatalog
from alluvia.operations.planning.optimistic_retry import Once, check_not_derived
from alluvia.operations.reading.relations import hidden_columns, newest_versions
from alluvia.operations.tables.restore import UPLOAD

INFO = "upload"
"""The field of a commitInfo that says what an upload has created."""
_AHEAD, _BEHIND = 200, 20
"""How many commits are read: after the time that a transaction has, and before it, where a clock has stepped back."""
_NO_CONTENT = 1
"""The number of a key without a content, and of those from before numbers said it."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """What the log says of an upload: the version that has its rows, how many, and the columns that it created.

    `version` and `rows` are None where the commit has expired; `rows` also where it brought other rows too, as a
    restore, a clone and a published branch do.
    """

    version: int | None
    rows: int | None
    columns: Mapping[str, str]


def txn_of(key: str, content: str) -> Once:
    """Return a key that stands for some content as a transaction of the log."""
    number = int.from_bytes(blake2b(content.encode(), digest_size=7).digest()) + 2 if content else _NO_CONTENT
    return Once(f"{UPLOAD}{blake2b(key.encode(), digest_size=16).hexdigest()}", number)


def info_of(content: str, created: Mapping[str, str]) -> dict[str, Any]:
    """Return what the commit of an upload says besides: a hash of its content, and the columns that it created."""
    said = ({"content": content} if content else {}) | ({"columns": dict(created)} if created else {})
    return {INFO: said} if said else {}


def recorded(log: Log, snapshot: Snapshot, txn: Once | None, content: str) -> Recorded | None:
    """Return the outcome of an earlier upload of the same key; None without one.

    Raises `Misfit` for one of another content. One LIST and a few GETs if there was one.
    """
    mark = None if txn is None else snapshot.state.txns.get(txn.app_id)
    if txn is None or mark is None or mark.version < 0:
        return None
    if mark.version not in (txn.number, _NO_CONTENT):
        raise _other()
    commit = _commit_of(log, snapshot, mark)
    if commit is None:
        if mark.version != txn.number:
            raise Misfit("this key was used before, and its content is not known any more: use a new key")
        return Recorded(None, None, {})
    said: Mapping[str, Any] = commit.info.get(INFO) or {}
    if said.get("content", content) != content:
        raise _other()
    rows = sum(add.num_records or 0 for add in commit.adds) if commit.info.get("operation") == "WRITE" else None
    return Recorded(commit.version, rows, said.get("columns", {}))


def _other() -> Misfit:
    return Misfit("this key was used for an upload of other content: use one key for each content")


def _commit_of(log: Log, snapshot: Snapshot, wanted: Txn) -> CommitActions | None:
    """Return the commit with a transaction, looked for around the time that it has; None if it has expired."""
    ahead = _AHEAD
    try:
        first = version_at(log, wanted.last_updated or 0)
    except VersionNotFound:
        first = log.oldest()
    except VersionExpired:
        first, ahead = log.oldest(), _BEHIND
    behind = range(first - 1, max(first - _BEHIND, 0) - 1, -1)
    for version in (*range(first, min(snapshot.version + 1, first + ahead)), *behind):
        commit = log.read_commit(version)
        if commit is not None and any(
            (txn.app_id, txn.version) == (wanted.app_id, wanted.version) for txn in commit.txns
        ):
            return commit
    return None


_COUNTING = threading.Lock()


@dataclass(frozen=True, slots=True)
class Upload:
    """A file for a table, and what may be done with it.

    declared: columns whose types the sender says. key: what identifies it, so that it is stored once; `content` is
    a hash of the content that the key stands for. create: why the table may not be created; None where it may. evolve:
    the table gets the file's new columns. hidden: columns, folded, that messages must not name. before_commit: called
    before each commit, which its exception stops. events_key: what events without ids get theirs from; None: from the
    content.
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
    """The outcome of an upload: the version that has its rows, their number, and the columns that it created.

    notes: which of these are text because an option of reading is missing. version and rows are None of a repeated
    upload whose commit has expired.
    """

    version: int | None
    rows: int | None
    columns: Mapping[str, str]
    repeated: bool = False
    notes: tuple[str, ...] = ()


def store(catalog: WritableCatalog, upload: Upload) -> Stored | IngestOutcome:
    """Store a file in one commit, or do nothing if one of its key is stored; into a table of events as ingestion does.

    A missing table is created, with the declared columns or those that the whole file has. Raises `Misfit`
    and `TooLarge`, when nothing was stored, `TableNotFound`, and what an append raises.
    """
    handle = catalog.handle(upload.table)
    snapshot = _newest(handle)
    if snapshot is not None and takes_events(snapshot.schema):
        return _events(catalog, upload, snapshot)
    if snapshot is not None:
        check_not_derived(snapshot, "upload")
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
                rows.check(as_declared(schema, upload.declared))
            snapshot = _create(catalog, handle, upload, schema)
            if (done := _repeated(handle, snapshot, upload)) is not None:
                return done
        else:
            known = {*snapshot.schema.names}
            created = _typed(pa.schema([each for each in schema if each.name not in known]))
        return _append(handle, upload, rows, schema, created)


def _events(catalog: WritableCatalog, upload: Upload, snapshot: Snapshot) -> IngestOutcome:
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
    earlier = recorded(handle.log, snapshot, upload.txn, upload.content)
    return None if earlier is None else Stored(earlier.version, earlier.rows, earlier.columns, repeated=True)


def _schema(catalog: WritableCatalog, upload: Upload, rows: SentRows, snapshot: Snapshot | None) -> pa.Schema:
    """Return the columns that the rows are read into. Raises `Misfit` for those that are missing or too many.

    Of columns that the sender has not declared, the table or the rows say the type.
    """
    declared = upload.declared or pa.schema([])
    is_whole = _is_whole(rows, upload.declared)
    if snapshot is None:
        return declared if is_whole else _as_said(rows.schema(_types(declared)), declared)
    table = snapshot.schema
    known = _types(table)
    hidden = hidden_columns(snapshot, newest_versions(catalog, snapshot.name), upload.hidden) if upload.hidden else ()
    check_declared(declared, table, hidden)
    if upload.evolve:
        given = declared if is_whole else _as_said(rows.schema(_types(declared) | known), declared)
        return pa.schema([*table, *(each for each in given if each.name not in known)])
    names = declared.names if is_whole else rows.names
    extra = [name for name in names or () if name not in known]
    if extra:
        near = did_you_mean(extra[0], known)
        raise Misfit(f"column {extra[0]!r:.100} is not in the table: {near or 'leave it out, or add it with evolve'}")
    if not is_whole and rows.names is not None:
        _check_complete(rows.names, table, hidden)
    return table


def check_declared(declared: Iterable[pa.Field], table: pa.Schema, hidden: Collection[str] = ()) -> None:
    """Raise `Misfit` for a declared column that has another type in a table; messages do not say the hidden ones'."""
    types = _types(table)
    for each in declared:
        if (there := types.get(each.name, each.type)) != each.type:
            said = "another type" if each.name in hidden else type_name(there)
            raise Misfit(f"schema: column {each.name} is {said} in the table, not {type_name(each.type)}")


def _is_whole(rows: SentRows, declared: pa.Schema | None) -> bool:
    """Whether a sender has declared all columns of a file. Raises `Misfit` for some and one that the file lacks."""
    if declared is None:
        return False
    names = set(rows.names or ())
    if rows.names is None or names <= set(declared.names):
        return True
    other = next((name for name in declared.names if name not in names), None)
    if other is not None:
        near = did_you_mean(other, rows.names) or f"it has {', '.join(rows.names)}"
        raise Misfit(f"schema: the file has no column {other!r:.100}: {near:.300}")
    return False


def _types(schema: pa.Schema) -> dict[str, pa.DataType]:
    return {each.name: each.type for each in schema}


def _as_said(schema: pa.Schema, declared: pa.Schema) -> pa.Schema:
    """Return a schema with the columns as they are declared, where they are."""
    known = {each.name: each for each in declared}
    return pa.schema([known.get(each.name, each) for each in schema])


def _check_complete(names: list[str], table: pa.Schema, hidden: Collection[str]) -> None:
    given = set(names)
    missing = [name for name in table.names if name not in given]
    shown = next((name for name in missing if name not in hidden), None)
    if missing:
        which = "a column" if shown is None else f"the column {shown!r:.100}"
        raise Misfit(
            f"the file lacks {which} of the table: add it, or declare a schema of the file's columns, for nulls"
        )


def _create(catalog: WritableCatalog, handle: TableHandle, upload: Upload, schema: pa.Schema) -> Snapshot:
    with _COUNTING:
        if upload.tables_max is not None:
            folders = sum(1 for _ in islice(catalog.store.list_folders(""), upload.tables_max))
            if folders == upload.tables_max:
                raise TableNotFound(
                    f"there is no table {upload.table!r}, and uploads create none: the lake has {folders} tables or "
                    "more, the limit of ALLUVIA_CREATE_TABLES_MAX"
                )
        catalog.create(upload.table, NewTable(schema), exist_ok=True)
    return handle.newest()


def _append(
    handle: TableHandle, upload: Upload, rows: SentRows, schema: pa.Schema, created: Mapping[str, str]
) -> Stored:
    years = YearsOfTwoDigits(upload.file.options)

    def batches() -> Iterator[pa.RecordBatch]:
        for table in rows.tables(as_declared(schema, upload.declared)):
            years.see(table)
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
    names = None if rows.names is None else set(rows.names)
    read = [each.type for each in schema if names is None or each.name in names]
    notes = (*rows.notes, *upload.file.options.unused(read), *years.notes())
    return Stored(commit.version, commit.rows or 0, created, notes=notes)


def fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Return rows in all columns of a schema; those that they lack are null."""
    if table.schema.equals(schema, check_metadata=True):
        return table
    given = dict(zip(table.column_names, table.columns, strict=True))
    columns = [given[each.name] if each.name in given else pa.nulls(len(table), each.type) for each in schema]
    return pa.Table.from_arrays(columns, schema=schema)


def _typed(schema: pa.Schema) -> dict[str, str]:
    return {each.name: type_name(each.type) for each in schema}
