"""Copy a lake to another place, as it is at one moment, while its writers go on (docs/decisions/0073).

A tag keeps the moment. First the data files go over, which the copy's readers do not see yet, then the logs, which name
them. Versions keep their numbers: rollups, and the ids of events that a table knows, refer to them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

from alluvia.access.registry import FOLDER as TOKENS
from alluvia.access.registry import KEYS
from alluvia.clock import datetime_of
from alluvia.delta.lineage import is_dropped
from alluvia.delta.log.checkpoints.putting import parse_last_checkpoint
from alluvia.delta.log.paths import LAST_CHECKPOINT
from alluvia.delta.places import attached_from
from alluvia.delta.properties import EXTERNAL
from alluvia.delta.refs import TAG, Keeper, release
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Corrupt, Invalid, KeyTaken, NotDeleted, ObjectNotFound, TableNotFound, Unavailable
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.backup.backup_plan import TablePlan, plan_table
from alluvia.operations.backup.backup_record import BackupRecord, read_record, write_record
from alluvia.operations.catalog.catalog import WritableCatalog
from alluvia.operations.references.pinned_versions import keep_moment, kept_at
from alluvia.progress import report
from alluvia.scratch import scratch_root
from alluvia.store import Store

TAG_DAYS = 7
"""How long the tag of a killed backup keeps its moment, unless the backup is repeated before."""
_KINDS = ("views", "schemas", "queries", "rollups", "pipelines/sources", "dropped")
SHARED = tuple(f"_alluvia/{kind}/" for kind in _KINDS)
SOURCES = "_alluvia/sources.toml"
_GROUP = 256


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A table that is not in the copy, and why."""

    table: str
    why: str


@dataclass(frozen=True, slots=True)
class BackupReport:
    """The contents of a copy: the lake as it was at `moment`, `tables` with `files` data files of `bytes`.

    `copied_files` and `copied_bytes` of them, logs not counted, are new since the last backup to this place.
    """

    moment: datetime
    tables: int
    files: int
    bytes: int
    copied_files: int
    copied_bytes: int
    left_out: tuple[LeftOut, ...]


def backup_lake(source: WritableCatalog, target: WritableCatalog) -> BackupReport:
    """Copy all tables of a lake as they are at one moment, and views, queries, sources and tokens as they are later.

    Objects that an earlier backup has copied to the same place are not copied again. Nothing is deleted in either
    place, except, in the copy, keys of tokens that the lake has removed. Raises `Corrupt`, naming a table, if the check
    of the copy at the end fails, `Invalid` for a place that holds something else, or was written to, and `Unavailable`.
    """
    record = _check_place(source, target)
    place = sha256(target.store.uri.encode()).hexdigest()[:12]
    expires_ms = source.clock.now_ms() + TAG_DAYS * 86_400_000
    keeper = keep_moment(source, TAG, f"backup-{place}", expires_ms=expires_ms, replaces=True)
    try:
        return _copied(source, target, record, keeper)
    finally:
        with suppress(Unavailable, NotDeleted):  # else it expires
            release(source.store, keeper)


def _check_place(source: WritableCatalog, target: WritableCatalog) -> BackupRecord:
    """Return the record of the earlier backups to a place. Raises `Invalid` for a place that is not one of backups."""
    if source.store.is_branch:
        raise Invalid("backup: it copies the lake itself, not a branch")
    here, there = (f"{store.uri.rstrip('/')}/" for store in (source.store, target.store))
    if here.startswith(there) or there.startswith(here):
        raise Invalid(f"backup: {target.store.uri} and the lake {source.store.uri} overlap: choose another place")
    record = read_record(target.store)
    if record is None:
        if next(iter(target.store.list("")), None) is not None:
            raise Invalid(f"backup: {target.store.uri} holds other things than a backup: choose an empty place")
        record = BackupRecord(source.store.uri)
        write_record(target.store, record)
    if record.source != source.store.uri:
        raise Invalid(f"backup: {target.store.uri} is a backup of {record.source}: choose another place")
    return record


def _copied(source: WritableCatalog, target: WritableCatalog, record: BackupRecord, keeper: Keeper) -> BackupReport:
    plans: list[TablePlan] = []
    left_out: list[LeftOut] = []
    for name in source.tables(rejects=True, dropped=True):
        with suppress(TableNotFound):  # it came later
            plan = _planned(source, name, keeper, record)
            if isinstance(plan, LeftOut):
                left_out.append(plan)
            else:
                plans.append(plan)
    there = {plan.name: _sizes(target.store, plan.root) for plan in plans}
    for plan in plans:
        plan.check(there[plan.name], record)
    new = {key: size for plan in plans for key, size in plan.data.items() if there[plan.name].get(key) != size}
    _copy(source.store, target.store, new, "copying data files")
    record = record.begun({plan.name: plan.version for plan in plans})
    write_record(target.store, record)
    decisions = {key for plan in plans for key in plan.decisions}
    _copy(source.store, target.store, dict.fromkeys(decisions, 0), "copying decisions")
    logs = {key: size for plan in plans for key, size in plan.log.items() if there[plan.name].get(key) != size}
    _copy(source.store, target.store, logs, "copying logs")
    _copy_hints(source.store, target.store, plans)
    _copy_shared(source.store, target.store)
    for plan in plans:
        _verify(target, plan)
    moment_ms = keeper.created_ms
    write_record(target.store, record.done(moment_ms))
    _remove_keys(source.store, target.store)
    data = [plan.data for plan in plans]
    return BackupReport(
        datetime_of(moment_ms),
        sum(not plan.is_dropped for plan in plans),
        sum(map(len, data)),
        sum(sum(each.values()) for each in data),
        len(new),
        sum(new.values()),
        tuple(left_out),
    )


def _planned(source: WritableCatalog, name: str, keeper: Keeper, record: BackupRecord) -> TablePlan | LeftOut:
    """Return what to copy of a table, or why it is left out. Raises `TableNotFound` where the moment has none."""
    handle = source.handle(name).own()
    at = kept_at(handle, keeper)
    place = attached_from(at.state.metadata)
    if place is not None:
        return LeftOut(name, f"attached from {place}: attach it to the copy")
    snapshot = Snapshot(at.shown, handle.root, handle.name, handle.store)
    if EXTERNAL in snapshot.properties:
        return LeftOut(name, "external: its files are outside the lake, so create it again in the copy")
    sizes = _sizes(source.store, handle.root)
    plan = plan_table(snapshot, at, sizes, record.newest(name), dropped=is_dropped(snapshot.properties))
    if plan is None:
        return LeftOut(name, "a shallow clone: its files are other tables', so make a deep clone of it")
    return plan


def _sizes(store: Store, prefix: str) -> dict[str, int]:
    """Return the sizes of the objects below a prefix by their keys."""
    return {info.key: info.size for info in store.list(prefix)}


def _copy(source: Store, target: Store, sizes: Mapping[str, int], what: str) -> None:
    """Copy objects, in order of their keys: of a log, commits come in the order of their versions."""
    with TemporaryDirectory(dir=scratch_root()) as folder:

        def copy(numbered: tuple[int, str]) -> None:
            number, key = numbered
            path = Path(folder, str(number))
            try:
                source.get_file(key, path)
                target.put_new_file(key, path)
            except KeyTaken as error:
                raise Invalid(
                    f"backup: {key} is another object in {target.uri}: its table was created again, or the copy was "
                    "written to. Choose an empty place"
                ) from error
            finally:
                path.unlink(missing_ok=True)

        keys, done = sorted(sizes), 0
        runs = source if source.parallel else target
        for start in range(0, len(keys), _GROUP):
            group = keys[start : start + _GROUP]
            runs.map(copy, list(enumerate(group, start)))
            done += sum(sizes[key] for key in group)
            report(what, done, sum(sizes.values()), "bytes")


def _copy_hints(source: Store, target: Store, plans: Sequence[TablePlan]) -> None:
    """Copy the hints at the newest checkpoints, if these are in the copy."""

    def copy(plan: TablePlan) -> None:
        key = plan.root + LAST_CHECKPOINT
        with suppress(ObjectNotFound):
            data = source.get(key)
            hint = parse_last_checkpoint(data)
            if hint is not None and hint.version <= plan.version:
                target.put(key, data)

    (source if source.parallel else target).map(copy, plans)


def _copy_shared(source: Store, target: Store) -> None:
    """Copy what belongs to the lake and not to a table, over older forms of it. Those of tokens never change."""
    for prefix in (*SHARED, SOURCES):
        there = _sizes(target, prefix)
        for key in _sizes(source, prefix):
            data = source.get(key)
            if key not in there or target.get(key) != data:
                target.put(key, data)
    there = _sizes(target, TOKENS)
    new = {key: size for key, size in _sizes(source, TOKENS).items() if key not in there}
    _copy(source, target, new, "copying tokens")


def _remove_keys(source: Store, target: Store) -> None:
    """Delete keys of tokens that the lake has removed, so that their tokens are not valid in the copy either."""
    gone = sorted(_sizes(target, KEYS).keys() - _sizes(source, KEYS).keys())
    if gone:
        target.delete(gone)


def _verify(target: WritableCatalog, plan: TablePlan) -> None:
    """Raise `Corrupt` unless the copy of a table is what was to be copied, and all of its files are there."""
    sizes = _sizes(target.store, plan.root)
    missing = [key for key, size in {**plan.data, **plan.log}.items() if sizes.get(key) != size]
    if missing:
        raise Corrupt(f"backup: {target.store.uri} lacks {missing[0]}, or it has another size: run the backup again")
    newest = target.handle(plan.name).newest(dropped=True)
    files = _identities(newest)
    if (newest.version, files) != (plan.version, plan.files):
        raise Corrupt(
            f"backup: table {plan.name} in {target.store.uri} is not the one that was copied: it has version "
            f"{newest.version} with {len(files)} files, and not {plan.version} with {len(plan.files)}"
        )


def _identities(snapshot: Snapshot) -> Sequence[tuple[str, int]]:
    return sorted((file.path, file.size) for file in snapshot.state.files)
