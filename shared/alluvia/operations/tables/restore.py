"""Restore a table to an earlier version through the log alone. No data file is read or written."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from alluvia.commit.changes import RESTORE, Changes
from alluvia.commit.event_window.id_runs import EVENT_ID
from alluvia.commit.handle import TableHandle
from alluvia.commit.intents import TableAt
from alluvia.commit.versions import expired_message, kept_versions, oldest_readable
from alluvia.delta.arguments import moment_ago
from alluvia.delta.deletion_vectors.descriptors import stored_vector
from alluvia.delta.lineage import LINEAGE, UNDONE, undone_versions, with_gap, with_undone
from alluvia.delta.log.actions import AddFile, Metadata, Protocol, Txn
from alluvia.delta.log.commit import ENABLED_TIMESTAMP, ENABLED_VERSION, IN_COMMIT_TIMESTAMPS
from alluvia.delta.promoted_fields import promotions_of
from alluvia.delta.properties import OLDEST_READABLE
from alluvia.delta.protocols import features_needed, with_features
from alluvia.delta.schema.column_mapping import restored
from alluvia.delta.schema.former_names import noted
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid, VersionExpired
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.transaction_order import carried_out
from alluvia.operations.planning.optimistic_retry import check_not_append_only, check_not_derived, commit_planned

BACKFILL, UPLOAD = "backfill:", "alluvia-upload-"
"""What the application ids of backfill jobs and of keyed uploads begin with: a restore that takes their rows back lets
them come again."""
HEADS_MAX = 100
"""Up to this many files are looked for one by one; beyond, a listing of the table is cheaper."""
_KEPT = (IN_COMMIT_TIMESTAMPS, ENABLED_VERSION, ENABLED_TIMESTAMP, OLDEST_READABLE, *LINEAGE)


@dataclass(frozen=True, slots=True)
class RestoreReport:
    """What a restore did. `version` is the commit's, or the newest one where the table was as asked for already."""

    version: int
    timestamp_ms: int
    restored_version: int
    files_restored: int = 0
    files_removed: int = 0


@dataclass(frozen=True, slots=True)
class RestorePlan:
    """Files to put back and to remove, and the metadata and protocol to set, None where they stay."""

    adds: tuple[AddFile, ...]
    removes: tuple[AddFile, ...]
    metadata: Metadata | None
    protocol: Protocol | None

    @property
    def empty(self) -> bool:
        """Whether nothing is to be done."""
        return not self.adds and not self.removes and self.metadata is None


def plan_restore(current: Snapshot, target: Snapshot, carried: Collection[int] = ()) -> RestorePlan:
    """Return what makes a snapshot's rows, schema and properties those of an earlier one. Pure.

    The protocol is never taken back, since other files may need it, and neither is column mapping. Times of commits,
    and what vacuum has recorded, are facts and stay. Events that came since that version are not known any more: they
    may come again. `carried` are later versions whose rows the target has, since their transactions had happened.
    """
    wanted = {file.key: file for file in target.files}
    present = {file.key: file for file in current.files}
    before = current.state.metadata
    kept = {name: text for name, text in before.configuration.items() if name in _KEPT}
    configuration = {name: text for name, text in target.properties.items() if name not in (*_KEPT, UNDONE)} | kept
    configuration |= promotions_of(before.configuration, target.properties)
    metadata = replace(target.state.metadata, id=before.id, created_time=before.created_time,
                       configuration=configuration)  # fmt: skip
    metadata = noted(restored(metadata, before), before)
    protocol = with_features(current.protocol, features_needed(metadata.schema_string, metadata.configuration))
    adds = tuple(replace(file, data_change=True) for key, file in wanted.items() if key not in present)
    removes = tuple(file for key, file in present.items() if key not in wanted)
    plain = {name: text for name, text in before.configuration.items() if name != UNDONE}
    if not adds and not removes and metadata == replace(before, configuration=plain):
        return RestorePlan((), (), None, None)
    if EVENT_ID in (*target.schema.names, *current.schema.names):
        metadata = _with_undone(metadata, target, current.version, carried)
    return RestorePlan(
        adds, removes, None if metadata == before else metadata, None if protocol == current.protocol else protocol
    )


def _with_undone(metadata: Metadata, target: Snapshot, last: int, carried: Collection[int]) -> Metadata:
    """Return metadata by which a table restored to a version does not know the events of later ones."""
    undone = undone_versions(target.properties)
    for first_gone, last_gone in _between(target.version + 1, last, carried):
        undone = with_gap(undone, first_gone, last_gone)
    return replace(metadata, configuration=with_undone(metadata.configuration, undone))


def _between(first: int, last: int, without: Collection[int]) -> Iterator[tuple[int, int]]:
    """Yield the ranges of versions from one to another, without some of them."""
    for version in sorted(without):
        if first < version:
            yield first, min(version - 1, last)
        first = version + 1
    if first <= last:
        yield first, last


def restore(
    handle: TableHandle,
    version: int | None = None,
    timestamp: datetime | str | None = None,
    offset: str | int | None = None,
    tag: str | None = None,
) -> RestoreReport:
    """Make the table what it was at a version, or at a moment, in one commit; the versions between stay readable.

    `offset` says how long ago the moment was, as in `1 hour ago`. Raises `VersionNotFound`, `VersionExpired` for a
    version that vacuum has taken files of, and `Invalid` where an append-only table would lose rows.
    """
    if sum(each is not None for each in (version, timestamp, offset, tag)) != 1:
        raise Invalid("restore: give one of version, timestamp, offset and tag")
    if offset is not None:
        timestamp = moment_ago(offset, handle.clock)
    if tag is None:
        return restore_to(handle, handle.snapshot(version, timestamp))
    at = _tagged(handle, tag)
    return restore_to(handle, handle.as_of(at.shown), at.held)


def restore_to(handle: TableHandle, target: Snapshot, held: frozenset[str] = frozenset()) -> RestoreReport:
    """Make the table what a version of it was, in one commit. Raises what `restore` does.

    `held` are the transactions that the target has although a later version carries them out (`TableAt.held`): one
    GET more for each version after the target, if there are any.
    """
    done: list[RestorePlan] = []

    def plan(snapshot: Snapshot) -> Changes | None:
        check_not_derived(snapshot, "restore")
        # Vacuum commits before it deletes, so no file goes between this look and our commit.
        oldest = oldest_readable(snapshot.state)
        if target.version < oldest and target.version not in kept_versions(handle, oldest):
            raise VersionExpired(expired_message(handle.name, target.version, oldest))
        carried = _carried_out(handle, target, held)
        restoring = plan_restore(snapshot, target, carried)
        done[:] = [restoring]
        if restoring.empty:
            return None
        if restoring.removes:
            check_not_append_only(snapshot, "restore")
        check_present(handle, target, restoring.adds)
        restoring = replace(restoring, adds=tuple(_held(handle, target, restoring.adds)))
        return _changes(handle, snapshot, target, restoring, carried)

    commit, snapshot, _ = commit_planned(handle, plan)
    if commit is None:
        return RestoreReport(snapshot.version, snapshot.timestamp_ms, target.version)
    return RestoreReport(commit.version, commit.timestamp_ms, target.version, len(done[0].adds), len(done[0].removes))


def _held(handle: TableHandle, target: Snapshot, adds: Sequence[AddFile]) -> Sequence[AddFile]:
    from alluvia.operations.references.clones import held  # lakes without branches do without

    return held(handle, target, adds)


def _carried_out(handle: TableHandle, target: Snapshot, held: frozenset[str]) -> list[int]:
    """Return the versions after the target that carry out transactions which it holds."""
    if not held:
        return []
    commits = handle.log.following(target.version)
    return [int(each.done) for one, each in carried_out(commits).items() if one in held]


def _tagged(handle: TableHandle, tag: str) -> TableAt:
    from alluvia.operations.references.tags import tagged_at  # most restores do without

    return tagged_at(handle, tag)


def _jobs_undone(current: Mapping[str, Txn], target: Mapping[str, Txn], now_ms: int) -> list[Txn]:
    """Return what makes the recorded backfills and uploads those of the target. Others record their own position."""
    jobs = {app_id: txn for app_id, txn in current.items() if app_id.startswith((BACKFILL, UPLOAD))}
    wanted = {app_id: target[app_id].version if app_id in target else -1 for app_id in jobs}
    return [Txn(app_id, wanted[app_id], now_ms) for app_id, txn in jobs.items() if txn.version != wanted[app_id]]


def _changes(
    handle: TableHandle, snapshot: Snapshot, target: Snapshot, plan: RestorePlan, carried: Collection[int]
) -> Changes:
    now_ms = handle.clock.now_ms()

    def metadata_at(version: int) -> Metadata | None:
        if plan.metadata is None or UNDONE not in plan.metadata.configuration:
            return plan.metadata
        return _with_undone(plan.metadata, target, version - 1, carried)

    return Changes(
        RESTORE,
        {"version": str(target.version)},
        adds=plan.adds,
        removes=[file.removed(now_ms, data_change=True) for file in plan.removes],
        metadata=plan.metadata,
        metadata_at=metadata_at,
        protocol=plan.protocol,
        txns=_jobs_undone(snapshot.state.txns, target.state.txns, now_ms),
        can_match=lambda _: True,
        # What stays was looked at as well: it must still be there.
        files_read=frozenset(snapshot.files.keys()),
        domains_read=frozenset({OLDEST_READABLE}),
        metrics={
            "numRestoredFiles": len(plan.adds),
            "restoredFilesSize": sum(file.size for file in plan.adds),
            "removedFilesSize": sum(file.size for file in plan.removes),
            "tableSizeAfterRestore": sum(file.size for file in target.files),
            "numOfFilesAfterRestore": len(target.files),
        },
    )


def check_present(handle: TableHandle, target: Snapshot, files: Iterable[AddFile]) -> None:
    """Raise `VersionExpired` unless all restored files and their deletion vectors are in the store."""
    keys = _keys(target, files)
    if len(keys) <= HEADS_MAX:
        infos = dict(zip(keys, handle.store.map(handle.store.head, keys), strict=True))
    else:
        listed = {info.key: info for info in handle.store.list(handle.root)}
        infos = {key: listed.get(key) or handle.store.head(key) for key in keys}
    for key, info in infos.items():
        if info is None:
            msg = f"version {target.version} of {handle.name} cannot be restored: its data file {keys[key]} is gone"
            raise VersionExpired(msg)


def _keys(target: Snapshot, files: Iterable[AddFile]) -> Mapping[str, str]:
    """Return the keys of the objects that files need, with the data file that each is for."""
    path_by_key: dict[str, str] = {}
    for file in files:
        path_by_key[target.key(file)] = file.path
        stored = None if file.deletion_vector is None else stored_vector(file.deletion_vector)
        if stored is not None:
            path_by_key[target.locate(stored.path)] = file.path
    return path_by_key
