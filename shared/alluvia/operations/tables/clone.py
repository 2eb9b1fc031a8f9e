"""Clone a table: a new table whose first version has the files of a version of another, copied or shared.

A shallow clone shares them: its first commit names them by absolute URI, where they are, and keepers have the tables
that own them keep them (`operations/references/pinned_versions.py`). What is written to it later lies in its own
folder. It may be made of a clone, whose files are then those of several tables: each of them gets a keeper.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import orjson

from alluvia.commit.handle import TableHandle
from alluvia.commit.intents import CLAIM
from alluvia.commit.transaction import FILE_AGE_MS_MAX
from alluvia.delta.lineage import without_marks
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.commit import ENABLED_TIMESTAMP, ENABLED_VERSION
from alluvia.delta.places import bases_of
from alluvia.delta.properties import CLONE_OF, EXTERNAL, OLDEST_READABLE, PIPELINE, ROLLUP
from alluvia.delta.protocols import check_writable
from alluvia.delta.refs import CLONE, FILES, OWNER, OWNER_ID, Keeper, find_keeper, put_keeper, release
from alluvia.delta.schema.former_names import with_names
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid, TableExists, VersionExpired
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import WritableCatalog, rejects_handle
from alluvia.operations.reading.relations import names_known, newest_versions
from alluvia.operations.references.branch_store import BranchStore
from alluvia.operations.references.clones import copied_files, is_below, shared_files
from alluvia.operations.references.pinned_versions import keep_version
from alluvia.operations.references.tags import tagged
from alluvia.operations.tables.create import check_free, create
from alluvia.operations.tables.drop import drop_table
from alluvia.operations.tables.drop_plan import FirstVersion

_NOT_CLONED = (OLDEST_READABLE, ROLLUP, PIPELINE, EXTERNAL, CLONE_OF, ENABLED_VERSION, ENABLED_TIMESTAMP)


@dataclass(frozen=True, slots=True)
class CloneReport:
    """A clone's version, which version of the source it is made of, and the files, with their bytes, that it has."""

    source: str
    source_version: int
    version: int
    files: int
    bytes: int
    deep: bool


def clone(
    catalog: WritableCatalog,
    source: str,
    name: str,
    version: int | None = None,
    timestamp: datetime | str | None = None,
    tag: str | None = None,
    *,
    deep: bool = False,
) -> CloneReport:
    """Make a table of a version of another, the newest by default or that of a number, a time or a tag; in one commit.

    A shallow clone takes some ten requests, however large the table is. A deep one takes a PUT for each file besides,
    which S3 copies itself within a bucket. Raises `TableExists`, `TableNotFound`, `VersionNotFound`, `VersionExpired`,
    and `Invalid` for a shallow clone of an attached table, whose files cannot be kept from here. `TableExists` comes
    after what is wrong with the source, so that it says that the name alone is in the way.
    """
    origin, target = catalog.handle(source), catalog.handle(name).own()
    rejects = rejects_handle(catalog, name)
    if ":" in source:
        origin.check_own()
    if [version, timestamp, tag].count(None) < 2:
        raise Invalid("version, timestamp, tag: give one of them")
    newest = newest_versions(catalog, source)
    if not deep:
        _check_sharable(origin, newest[0])
    check_free(target)
    clone_id = catalog.clock.new_id()
    if origin.attached_place is not None:
        if tag is not None:
            raise Invalid(f"tag: table {source!r} is attached, and its tags are in its own lake: give the version")
        return _copied(origin.snapshot(version, timestamp), newest, target, rejects, clone_id)
    tagged_one = None if tag is None else tagged(origin, tag)
    if tagged_one is not None:
        version = tagged_one.version
    keeper_name = f"{name.replace('/', '.')[:27]}.{clone_id}"
    begun_ms = catalog.clock.now_ms()
    keeper, snapshot = keep_version(
        origin, CLONE, keeper_name, version, timestamp, details={OWNER: name, OWNER_ID: clone_id}
    )
    snapshot = tagged_one or snapshot  # a tag of the lake may hold transactions before the log does
    keepers = [keeper]
    needed = False
    try:
        if deep:
            return _copied(snapshot, newest, target, rejects, clone_id)
        adds = shared_files(snapshot, catalog.store)
        _keep_bases(origin, snapshot, keepers)
        if len(keepers) > 1 and not any(is_below(add, origin) for add in adds):  # all that it has is others'
            release(catalog.store, keepers.pop(0))
        bases = [{"table": each.table, "keeper": each.name} for each in keepers]
        properties = {CLONE_OF: orjson.dumps(bases).decode()}
        check_writable(snapshot.state.protocol, snapshot.state.metadata)
        needed = True  # even where the answer to the commit is lost
        try:
            report = _committed(snapshot, newest, target, rejects, clone_id, properties, adds, begun_ms)
        except TableExists:
            needed = False
            raise
        _check_kept(target, rejects, keepers, begun_ms)
        return report
    finally:
        if not needed:
            for each in keepers:
                release(catalog.store, each)


def _check_sharable(origin: TableHandle, newest: Snapshot) -> None:
    """Raise `Invalid` where a shallow clone cannot have its files kept."""
    if isinstance(origin.store, BranchStore):
        raise Invalid(
            "clone: a shallow clone cannot be made on a branch: make a deep one (deep=True, --deep or DEEP CLONE)"
        )
    if EXTERNAL in newest.properties:
        raise Invalid(
            f"table {origin.name!r} is external, and nothing keeps its files: make a deep clone, which copies them"
        )
    if origin.attached_place is not None:
        raise Invalid(
            f"table {origin.name!r} is attached from {origin.attached_place}, where nothing keeps files for this lake: "
            "make a deep clone, which copies them"
        )


def _copied(
    snapshot: Snapshot, newest: Sequence[Snapshot], target: TableHandle, rejects: TableHandle | None, clone_id: str
) -> CloneReport:
    check_writable(snapshot.state.protocol, snapshot.state.metadata)
    begun_ms = target.clock.now_ms()
    copies = copied_files(snapshot, target)
    return _committed(snapshot, newest, target, rejects, clone_id, None, copies, begun_ms)


def _keep_bases(origin: TableHandle, snapshot: Snapshot, keepers: list[Keeper]) -> None:
    """Put a keeper besides each that the source, itself a clone, has, and add it to `keepers`.

    What theirs keeps could not go as long as it was there. If it still is when ours has been put, no vacuum has missed
    both. Raises `VersionExpired`.
    """
    store, own = origin.store, keepers[0]
    for table, name in bases_of(snapshot.properties):
        theirs = find_keeper(store, table, CLONE, name)
        if theirs is None:  # no version that can be read of the source needs it any more
            continue
        details = {**own.details, **{name: text for name, text in theirs.details.items() if name == FILES}}
        keeper = replace(own, table=table, table_id=theirs.table_id, version=theirs.version, details=details)
        if not put_keeper(store, origin.clock, keeper):
            raise Invalid(f"there is a {keeper} already")
        keepers.append(keeper)
        if find_keeper(store, table, CLONE, name) is None:
            raise VersionExpired(f"version {snapshot.version} of {snapshot.name} has just expired: try again")


def _check_kept(target: TableHandle, rejects: TableHandle | None, keepers: Sequence[Keeper], begun_ms: int) -> None:
    """Drop a clone that came so late that vacuum took it for one that never would. Raises `VersionExpired` then."""
    if target.clock.now_ms() - begun_ms <= FILE_AGE_MS_MAX:
        return
    if all(find_keeper(target.store, each.table, CLONE, each.name) is not None for each in keepers):
        return
    drop_table(target, rejects)
    raise VersionExpired(f"making the clone {target.name} took so long that nothing kept its files: try again")


def _committed(
    snapshot: Snapshot,
    newest: Sequence[Snapshot],
    target: TableHandle,
    rejects: TableHandle | None,
    clone_id: str,
    shared: Mapping[str, str] | None,
    adds: Sequence[AddFile],
    begun_ms: int | None = None,
) -> CloneReport:
    """Commit the first version of a clone; `shared` are the properties of one that shares its files.

    Its files were copied, or are kept, since `begun_ms`. `newest` are the source's newest versions, by which columns
    have names that they had not yet in the one cloned.
    """
    before, now_ms = snapshot.state, target.clock.now_ms()
    kept = {name: text for name, text in without_marks(snapshot.properties).items() if name not in _NOT_CLONED}
    named = with_names({**kept, **(shared or {})}, names_known(newest))
    metadata = replace(before.metadata, id=clone_id, configuration=named, created_time=now_ms)
    first = FirstVersion(
        "CLONE",
        {"source": snapshot.name, "sourceVersion": str(snapshot.version), "isShallow": str(shared is not None).lower()},
        adds,
        before.protocol,
        before.txns,
        {name: each for name, each in before.domains.items() if name != OLDEST_READABLE and not name.startswith(CLAIM)},
        begun_ms=begun_ms,
    )
    create(target, metadata, exist_ok=False, rejects=rejects, first=first)
    made = target.newest()
    size = sum(file.size for file in adds)
    return CloneReport(snapshot.name, snapshot.version, made.version, len(adds), size, shared is None)
