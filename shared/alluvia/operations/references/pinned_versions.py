"""Keep versions: put a keeper so that no vacuum misses it, and find what a keeper means.

Vacuum records in the table's log which versions it gives up; then it lists the keepers, and spares what they need; then
it deletes. An operation that keeps an older version does the reverse: puts the keeper, then looks whether the version
was given up. So one of the two sees the other (docs/decisions/0044-tags-and-keepers.md). Until its owner has looked,
a keeper is pending: vacuum counts it, and readers do not.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime

from alluvia.clock import Clock
from alluvia.commit.commit_records import table_at
from alluvia.commit.handle import ReadableTable, TableHandle
from alluvia.commit.intents import TableAt
from alluvia.commit.versions import expired_message, oldest_readable, other_table_message
from alluvia.delta.refs import (
    BRANCH,
    TAG,
    Keeper,
    check_keeper_name,
    find_pin,
    find_tagged,
    keepers_of,
    kept_version,
    put_keeper,
    put_over,
    release,
)
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import (
    AlluviaError,
    CommitUnknown,
    Invalid,
    TableNotFound,
    TransactionExpired,
    Unavailable,
    VersionExpired,
    VersionNotFound,
)
from alluvia.operations.catalog.catalog import Catalog
from alluvia.operations.references.branch_store import BranchStore, delete_folder
from alluvia.store import Store

PENDING_AGE_MS_MAX = 60 * 60 * 1000
"""A pending keeper that is older was left by a process that has died: vacuum deletes it."""
_PUT_MS_MAX = 1000
"""A keeper of the moment at which it is put is put again if that took longer: the store may count from its start."""
_TRIES_MAX = 5


def keep_version(
    handle: TableHandle,
    kind: str,
    name: str,
    version: int | None = None,
    timestamp: datetime | str | None = None,
    *,
    expires_ms: int | None = None,
    by: str | None = None,
    details: Mapping[str, str] | None = None,
    replaces: bool = False,
) -> tuple[Keeper, Snapshot]:
    """Keep a version of a table, the newest by default, and return it with its keeper.

    Five requests, more where there are new commits, or transactions to carry out. Raises `VersionNotFound`,
    `VersionExpired` and `TableNotFound`, and `Invalid` for a name that is taken unless it `replaces` that keeper;
    nothing is kept then.
    """
    check_keeper_name(kind, name)
    snapshot = handle.snapshot(version, timestamp)
    if version is None and timestamp is None and handle.carry_out(snapshot):  # readers see what has happened
        snapshot = handle.newest()
    if kind == TAG and isinstance(handle.store, BranchStore) and snapshot.version < handle.store.base(handle.name):
        raise Invalid(
            f"tag {name}: version {snapshot.version} of {handle.name} is older than the branch, which does not keep "
            "it: tag it on the lake"
        )
    keeper = Keeper(
        kind,
        name,
        handle.name,
        handle.clock.new_id(),
        snapshot.state.metadata.id,
        snapshot.version,
        created_ms=handle.clock.now_ms(),
        expires_ms=expires_ms,
        by=by,
        details=details or {},
        pending=True,
    )
    put_keeper(handle.store, handle.clock, keeper)
    with _pending(handle.store, keeper):
        _check_there(handle, keeper)
        return _confirmed(handle.store, handle.clock, keeper, replaces=replaces), snapshot


def keep_moment(
    catalog: Catalog,
    kind: str,
    name: str,
    at_ms: int | None = None,
    *,
    expires_ms: int | None = None,
    by: str | None = None,
    details: Mapping[str, str] | None = None,
    replaces: bool = False,
) -> Keeper:
    """Keep all tables of a lake as they are now, with one PUT, or as they were at a moment.

    Returns once nothing more can be committed that counts as of this moment: a store over a network tells times in
    seconds. A moment in the past must still be readable in all tables that were there: as many requests as it takes to
    open them. Raises `VersionExpired`, naming a table, and `Invalid` for a name that is taken and for a time to come.
    """
    check_keeper_name(kind, name)
    clock = catalog.clock
    now_ms = clock.now_ms()
    if at_ms is not None and at_ms > now_ms:
        raise Invalid(f"{kind} {name}: the moment is in the future: leave it out to keep the lake as it is now")
    if at_ms is not None and isinstance(catalog.store, BranchStore) and at_ms < catalog.store.moment_ms:
        raise Invalid(f"{kind} {name}: the moment is older than the branch, which does not keep it: use the lake")
    keeper = Keeper(
        kind,
        name,
        id=clock.new_id(),
        moment_ms=at_ms,
        created_ms=now_ms,
        expires_ms=expires_ms,
        by=by,
        details=details or {},
    )
    if at_ms is None:
        return _kept_now(catalog, keeper, replaces=replaces)
    waiting = replace(keeper, pending=True)
    put_keeper(catalog.store, clock, waiting)
    with _pending(catalog.store, waiting):
        for table in catalog.tables(rejects=True, dropped=True):
            _check_there(catalog.handle(table), waiting)
        return _confirmed(catalog.store, clock, waiting, replaces=replaces)


def kept_at(handle: ReadableTable, keeper: Keeper) -> TableAt:
    """Return a table as a keeper keeps it, with transactions that had happened at its moment, also if it was dropped.

    A keeper of the lake costs two LISTs, and a HEAD if it has just been put, besides what reading a version costs.
    Raises `TableNotFound` for a table that did not exist at the moment, `VersionExpired`, and `VersionNotFound` where
    the version is not of the same table any more.
    """
    if keeper.version is not None:
        with handle.lock:
            state = handle.log.at(keeper.version)
        if state.metadata.id != keeper.table_id:
            raise VersionNotFound(other_table_message(handle.name, keeper.version))
        return TableAt(state)
    keeper = _stored(handle.store, keeper)
    oldest = oldest_readable(handle.newest(dropped=True).state)
    pin = find_pin(handle.store, handle.name, keeper)
    stored_ms = handle.log.stored_ms()
    version = kept_version(keeper, {} if pin is None else {keeper.id: pin}, stored_ms, oldest)
    if version is None:
        raise _not_there(handle, keeper, stored_ms)
    with handle.lock:
        state = handle.log.at(version)
    return table_at(handle.log, state, keeper.moment)


@contextmanager
def _pending(store: Store, keeper: Keeper) -> Iterator[None]:
    """Delete a pending keeper at the end, unless what takes its place may still come: then it holds for its hour."""
    try:
        yield
    except (CommitUnknown, Unavailable):
        raise
    except AlluviaError:
        release(store, keeper)
        raise
    release(store, keeper)


def _kept_now(catalog: Catalog, keeper: Keeper, *, replaces: bool) -> Keeper:
    clock = catalog.clock
    for _ in range(_TRIES_MAX):
        began_ms = clock.now_ms()
        keeper = replace(keeper, id=clock.new_id(), created_ms=began_ms)
        _put(catalog.store, clock, keeper, replaces=replaces)
        took_ms = clock.now_ms() - began_ms
        clock.sleep(1.0 if catalog.store.parallel else 0.001)
        if took_ms <= _PUT_MS_MAX:
            return keeper
        replaces = True  # its own
    release(catalog.store, keeper)
    raise Unavailable(f"{keeper}: the store took more than a second to write it, {_TRIES_MAX} times: try again")


def _confirmed(store: Store, clock: Clock, waiting: Keeper, *, replaces: bool) -> Keeper:
    """Put a pending keeper under its name."""
    keeper = replace(waiting, pending=False)
    _put(store, clock, keeper, replaces=replaces)
    if clock.now_ms() - keeper.created_ms > PENDING_AGE_MS_MAX // 2:
        release(store, keeper)
        raise TransactionExpired(f"{keeper}: this process was paused for too long while it wrote it: try again")
    return keeper


def _put(store: Store, clock: Clock, keeper: Keeper, *, replaces: bool) -> None:
    for _ in range(_TRIES_MAX):
        if put_keeper(store, clock, keeper):
            return
        tagged = find_tagged(store, keeper.table, keeper.kind, keeper.name)
        if tagged is None:  # released just now
            continue
        known, tag = tagged
        if known.id == keeper.id:
            return
        if not replaces and known.is_live(clock.now_ms()):
            raise Invalid(f"there is a {known} already: delete it first, or replace it")
        if known.kind == BRANCH and not known.is_live(clock.now_ms()):
            delete_folder(store, known.id)
        if put_over(store, keeper, tag):
            return
    raise Unavailable(f"{keeper}: other callers changed it first, {_TRIES_MAX} times: try again")


def _check_there(handle: ReadableTable, keeper: Keeper) -> None:
    """Raise `VersionExpired` if what a keeper keeps of a table was given up before vacuum could know of it."""
    oldest = oldest_readable(handle.newest(dropped=True).state)
    if handle.attached_place is not None or (keeper.version is not None and keeper.version >= oldest):
        return  # what is elsewhere has its own lake's retention
    kept = keepers_of(handle.store, handle.root, handle.name)
    others = [each for each in kept.live(handle.clock.now_ms()) if not each.pending]
    moments = keeper.table is None or any(each.table is None for each in others)
    stored_ms = handle.log.stored_ms() if moments else {}
    version = kept_version(keeper, kept.pins, stored_ms, oldest)
    if version is None:
        if not _began_later(keeper, stored_ms):
            raise _not_there(handle, keeper, stored_ms)
    elif version < oldest and version not in {kept_version(each, kept.pins, stored_ms, oldest) for each in others}:
        raise VersionExpired(expired_message(handle.name, version, oldest))


def _began_later(keeper: Keeper, stored_ms: Mapping[int, int]) -> bool:
    """Whether the store took a table's first commit after the moment of a keeper of the lake."""
    return 0 in stored_ms and stored_ms[0] > keeper.moment


def _not_there(handle: ReadableTable, keeper: Keeper, stored_ms: Mapping[int, int]) -> TableNotFound | VersionExpired:
    if _began_later(keeper, stored_ms):
        return TableNotFound(f"there was no table {handle.name!r} yet at the moment of {keeper}")
    oldest = min((version for version, ms in stored_ms.items() if ms > keeper.moment), default=0)
    return VersionExpired(
        f"table {handle.name}: its version at the moment of {keeper} has expired; the oldest version that is left is "
        f"{oldest}"
    )


def _stored(store: Store, keeper: Keeper) -> Keeper:
    """Return a keeper of the moment at which it was put with that moment."""
    if keeper.moment_ms is not None or keeper.stored_ms:
        return keeper
    info = store.head(keeper.key)
    if info is None:
        raise VersionNotFound(f"{keeper} was deleted by another caller meanwhile")
    return replace(keeper, stored_ms=info.modified_ms)
