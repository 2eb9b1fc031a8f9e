"""Streams: positions in the changes of tables, each of which moves in one commit with what was made of the changes.

A stream is a log of its own, `_alluvia/streams/<name>/`: a table without rows, whose properties say what it follows and
whose metadata domain `alluvia.stream` has its position. So a transaction over several tables moves it with the tables
that it writes, by the same claims and decision, and two transactions that move it conflict (docs/STREAMS.md).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from functools import partial
from typing import Any

import orjson
import pyarrow as pa

from alluvia.commit.changes import Changes
from alluvia.commit.handle import TableHandle
from alluvia.commit.transaction import Commit
from alluvia.commit.versions import oldest_readable
from alluvia.delta.log.actions import DomainMetadata
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import AlluviaError, ConcurrentDomain, Corrupt, Invalid, TableExists, TableNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import NewTable, WritableCatalog
from alluvia.operations.catalog.views import RESERVED
from alluvia.table_names import NAME_RULE, PLAIN_NAME, STREAMS

POSITION = "alluvia.stream"
"""The metadata domain that has the position: the version up to which the changes were read."""
READ_STREAM, MOVE_STREAM = "READ STREAM", "MOVE STREAM"
_DEFINITION = "stream"
_LOG_RETENTION = {"delta.logRetentionDuration": "interval 7 days"}


@dataclass(frozen=True, slots=True)
class StreamState:
    """A stream as it is. `position` is the version of its source up to which it was read, -1 for none.

    `initial_rows`: the first read gives the rows that are in the table then. `appends_only`: only rows that were
    appended are given. `moved_ms` is when it was last read in a transaction, or moved; None if it never was.
    """

    name: str
    source: str
    source_id: str
    position: int
    initial_rows: bool = False
    appends_only: bool = False
    moved_ms: int | None = None


def create_stream(
    catalog: WritableCatalog,
    name: str,
    source: str,
    version: int | None = None,
    timestamp: datetime | str | None = None,
    *,
    initial_rows: bool = False,
    appends_only: bool = False,
    exist_ok: bool = False,
) -> StreamState:
    """Create a stream of the changes after a version of a table, by default the newest.

    Raises `TableNotFound`, `TableExists` where the name is taken, `VersionNotFound`, `VersionExpired`.
    """
    from alluvia.operations.tables.create import create, plan_create

    check_name(name)
    if name in catalog or catalog.find_view(name) is not None:
        raise TableExists(f"there is a table or view {name}: choose another name for the stream")
    if initial_rows and (version is not None or timestamp is not None):
        raise Invalid("initial_rows: the first read gives the rows of that time: leave version and timestamp out")
    if ":" in source:
        raise Invalid(f"{source}: a stream follows a table of its own lake: create it on the branch")
    begin = catalog.handle(source).snapshot(version, timestamp)
    definition = {
        "source": source,
        "sourceId": begin.state.metadata.id,
        "after": begin.version,
        "initialRows": initial_rows,
        "appendsOnly": appends_only,
    }
    properties = {_DEFINITION: orjson.dumps(definition).decode(), **_LOG_RETENTION}
    new = NewTable(pa.schema([("position", pa.int64())]), properties=properties)
    metadata = plan_create(new, catalog.clock.new_id(), catalog.clock.now_ms())
    handle = catalog.log_handle(STREAMS + name)
    try:
        create(handle, metadata, exist_ok=False)
    except TableExists as error:
        if not exist_ok:
            raise TableExists(f"stream {name!r} already exists: choose another name, or pass exist_ok=True") from error
    return stream_of(handle.newest())


def check_name(name: str) -> None:
    """Raise `Invalid` for a text that cannot be a stream's name."""

    if not isinstance(name, str) or not PLAIN_NAME.fullmatch(name) or name.endswith(RESERVED):
        raise Invalid(
            f"stream name {name!r:.100}: use {NAME_RULE}, without a schema. "
            f"The name cannot end with {', '.join(RESERVED)}"
        )


def find_stream(catalog: WritableCatalog, name: str) -> StreamState | None:
    """Return a stream as it is now; None if there is none."""
    if not PLAIN_NAME.fullmatch(name):
        return None
    try:
        return stream_of(catalog.log_handle(STREAMS + name).readable())
    except TableNotFound:
        return None


def the_stream(catalog: WritableCatalog, name: str) -> StreamState:
    """Return a stream as it is now. Raises `TableNotFound`."""
    state = find_stream(catalog, name)
    if state is None:
        raise TableNotFound(f"the lake has no stream {name!r:.100}")
    return state


def list_streams(catalog: WritableCatalog) -> list[StreamState]:
    """Return all streams, in the order of their names. One LIST, and what opening each costs."""
    names = [name for name in catalog.store.list_folders(STREAMS) if PLAIN_NAME.fullmatch(name)]
    return [state for state in catalog.store.map(partial(find_stream, catalog), names) if state is not None]


def drop_stream(catalog: WritableCatalog, name: str) -> Commit:
    """Drop a stream. Raises `TableNotFound`."""
    from alluvia.operations.tables.drop import drop_table

    the_stream(catalog, name)
    return drop_table(catalog.log_handle(STREAMS + name))


def move_stream(
    catalog: WritableCatalog, name: str, version: int | None = None, timestamp: datetime | str | None = None
) -> StreamState:
    """Have a stream go on after a version of its source, by default the newest. Raises `Conflict` after a lost race."""
    stream = the_stream(catalog, name)
    handle = catalog.log_handle(STREAMS + name)
    source = source_of(catalog, stream)
    newest = source.newest()
    check_same(stream, newest)
    wanted = newest.version if version is None and timestamp is None else version
    if wanted is None:
        wanted = source.snapshot(timestamp=timestamp).version
    if not isinstance(wanted, int) or isinstance(wanted, bool) or not -1 <= wanted <= newest.version:
        raise Invalid(
            f"version: expected a version of {stream.source} up to {newest.version}, or -1 for all of its changes, got "
            f"{wanted!r:.100}"
        )
    handle.carry_out(handle.newest())
    transaction = handle.transaction(handle.newest())
    with conflicts_named(handle.name):
        transaction.commit(moved(stream, wanted, MOVE_STREAM, catalog.clock.now_ms()))
    return the_stream(catalog, name)


def moved(stream: StreamState, to: int, operation: str, now_ms: int) -> Changes:
    """Return the commit to a stream's log that moves it."""
    body = orjson.dumps({"after": to, "movedMs": now_ms}).decode()
    return Changes(
        operation,
        {"source": stream.source, "after": str(stream.position), "to": str(to)},
        domains=[DomainMetadata(POSITION, body)],
        domains_read=frozenset({POSITION}),
    )


def stream_of(snapshot: Snapshot) -> StreamState:
    """Return what a version of a stream's log says. Raises `Corrupt`."""
    name = snapshot.name.removeprefix(STREAMS)
    try:
        definition: dict[str, Any] = orjson.loads(snapshot.properties[_DEFINITION])
        domain = snapshot.state.domains.get(POSITION)
        position: dict[str, Any] = {} if domain is None else orjson.loads(domain.configuration)
        return StreamState(
            name,
            str(definition["source"]),
            str(definition["sourceId"]),
            int(position.get("after", definition["after"])),
            initial_rows=bool(definition["initialRows"]) and not position,
            appends_only=bool(definition["appendsOnly"]),
            moved_ms=int(position["movedMs"]) if position else None,
        )
    except (ValueError, KeyError, TypeError) as error:
        raise Corrupt(f"the log of stream {name} cannot be read: only this library may write it") from error


def source_of(catalog: WritableCatalog, stream: StreamState) -> TableHandle:
    """Return the table that a stream follows. Raises `TableNotFound`, naming both.

    Transactions that have happened are first carried out there, if this process may write: so their rows are not left
    to a read that comes when somebody else has done it.
    """
    handle = catalog.handle(stream.source)
    try:
        newest = handle.newest()
    except TableNotFound as error:
        raise TableNotFound(f"stream {stream.name} has lost its table: {error}") from error
    with suppress(AlluviaError):
        handle.carry_out(newest)
    return handle


def check_same(stream: StreamState, newest: Snapshot) -> None:
    """Raise `Invalid` where the table that a stream follows is another one now."""
    if newest.state.metadata.id != stream.source_id:
        raise Invalid(
            f"stream {stream.name} follows the table {stream.source}, which has been dropped or replaced: drop the "
            "stream and create it again, to follow the table that has this name now"
        )


def oldest_changes(source: TableHandle) -> int:
    """Return the oldest version whose changes can surely be read. One LIST."""
    newest = source.newest()
    return max(min(source.log.listing().commits, default=newest.version + 1), oldest_readable(newest.state) + 1)


def stale_after_ms(stream: StreamState, source: TableHandle, newest: Snapshot) -> int | None:
    """Return from when on retention may take what a stream has not given, in ms; None while it has given all.

    One GET at most.
    """
    if newest.version <= stream.position or stream.initial_rows:
        return None
    commit = source.log.read_commit(stream.position + 1)
    since_ms = 0 if commit is None else commit.timestamp_ms
    return since_ms + min(newest.settings.file_retention_ms, newest.settings.log_retention_ms)


@contextmanager
def conflicts_named(name: str) -> Iterator[None]:
    """Have a conflict about the position of the stream whose log has a name say so; other names say nothing."""
    try:
        yield
    except ConcurrentDomain as error:
        if not name.startswith(STREAMS):
            raise
        raise ConcurrentDomain(
            f"stream {name.removeprefix(STREAMS)} was read or moved by another transaction meanwhile, which has these "
            "changes: start the transaction again"
        ) from error
