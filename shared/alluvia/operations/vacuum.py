"""Vacuum: delete what no retained version needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa

from alluvia.errors import (
    ConcurrentDomain,
    Invalid,
    MetadataChanged,
    NotDeleted,
    TransactionExpired,
    Unavailable,
    VersionExpired,
    VersionNotFound,
)
from alluvia.lazy_dataclasses import dataclass
from alluvia.log.actions import DomainMetadata, RemoveFile
from alluvia.log.features import GUARD
from alluvia.log.paths import LOG_FOLDER
from alluvia.log.segment import read_listing
from alluvia.log.time_travel import version_at
from alluvia.operations.checkpoint import checkpoint, tombstones_after_ms
from alluvia.operations.drop import old_hints
from alluvia.operations.kept_files import KeptFiles
from alluvia.operations.log_cleanup import expired_log, named_sidecars
from alluvia.operations.old_decisions import delete_old_decisions
from alluvia.operations.vacuum_keys import Needed, needed
from alluvia.operations.vacuum_note import forget_note, read_note, write_note
from alluvia.operations.vacuum_plan import Cutoffs, Listed, LogPlan, VacuumPlan, listed, plan_log, plan_vacuum
from alluvia.operations.vacuum_report import VacuumReport, VacuumTally
from alluvia.store import ListedPage, ObjectInfo
from alluvia.table.changes import Changes
from alluvia.table.claims import pending
from alluvia.table.decisions import DECISIONS
from alluvia.table.event_window.index import WINDOW_FOLDER
from alluvia.table.handle import TableHandle, oldest_readable
from alluvia.table.lineage import is_dropped
from alluvia.table.offers import OFFERS
from alluvia.table.properties import CLONE_OF, OLDEST_READABLE
from alluvia.table.protocols import check_writable, has_domains
from alluvia.table.snapshot import Snapshot

ORPHAN_AGE_MS_MIN = 24 * 60 * 60 * 1000
"""A file that no commit names is kept at least this long: longer than any transaction may take to commit it."""
LOG_AGE_MS_MIN = 24 * 60 * 60 * 1000
"""Commits are kept this long at least, whatever the property says: longer than a handle follows the log from one
version, and a transaction lasts, which could otherwise write a version that has come and gone."""
OFFER_AGE_MS_MIN = 60 * 60 * 1000
PLAN_AGE_MS_MAX = 12 * 60 * 60 * 1000
"""A plan older than this is not executed: files added and removed since may be in no checkpoint any more."""
PLANS_MAX = 5
BLOCK_KEYS = 32_000
"""Objects that are in memory at once, 100 bytes each."""
DELETE_TRIES = 3
TRIES_MAX = 100
VACUUM = "VACUUM"


def vacuum(
    handle: TableHandle,
    retention: timedelta | None = None,
    *,
    dry_run: bool = False,
    time_limit: timedelta | None = None,
    names_max: int | None = None,
) -> VacuumReport:
    """Delete data files that were removed longer ago than `retention` (the table's own by default), orphans, old log.

    Orphans, files that no commit names, are kept for at least a day, because a transaction may be about to name them.
    Before anything is deleted, a commit records the oldest version that stays readable. Before orphans are deleted,
    there is always such a commit, so that a transaction that means to name one loses a race and learns that it is too
    old. One LIST request per 1,000 objects, one DELETE per 1,000 deleted ones.

    It works through the listing in blocks of `BLOCK_KEYS`, so memory does not grow with the number of objects, except
    for the names of what was deleted, at most `names_max` of each kind. After each block it notes in the lake how far
    it has come; a run that ends early, by a crash or after `time_limit`, is continued by the next one. Raises `Invalid`
    for a negative retention, and `Unavailable` if planning alone takes half a day. Before all else, transactions that
    claim the table are carried out or aborted.
    """
    tally = VacuumTally(names_max)
    until_ms = None if time_limit is None else handle.clock.now_ms() + int(time_limit / timedelta(milliseconds=1))
    after: str | None = None
    too_slow = 0
    while too_slow < PLANS_MAX:
        run = _Run(handle, retention, after, dry_run=dry_run, noted=after is not None)
        block = run.first
        while True:
            try:
                run.do(block, tally)
            except _TooOldError:
                too_slow += 1
                break
            if block.last:
                run.finish()
                return tally.report(run.oldest, dry_run=dry_run, complete=True)
            after = block.end
            run.note(after)
            if until_ms is not None and handle.clock.now_ms() >= until_ms:
                return tally.report(run.oldest, dry_run=dry_run, complete=False)
            if not run.is_young:
                break
            block = run.next_block(after)
    msg = f"vacuum of {handle.name} took longer than {PLAN_AGE_MS_MAX // 3_600_000} hours to plan, {PLANS_MAX} times"
    raise Unavailable(msg)


class _TooOldError(Exception):
    """A plan must not be carried out any more."""


@dataclass(frozen=True, slots=True)
class _Block:
    """Consecutive objects of the listing, with keys below the root, and whether they are the last."""

    objects: Listed
    last: bool
    end: str


class _Run:
    """One vacuum from its listing on, for half a day at most: cut-offs, and what of the log they need."""

    def __init__(
        self, handle: TableHandle, retention: timedelta | None, after: str | None, *, dry_run: bool, noted: bool
    ) -> None:
        self._handle = handle
        self._dry_run = dry_run
        self._noted = noted
        self._needed: Needed | None = None
        self._windows: list[ObjectInfo] = []
        self._decisions: list[ObjectInfo] = []
        self.began_ms = handle.clock.now_ms()
        # The listing comes first: whatever it holds that was ever committed, the version read after it knows.
        self._pages = handle.store.list_pages(handle.root, None if after is None else handle.root + after)
        self.first = self.next_block("")
        self._whole = self.first.last and after is None
        self._log_files = self._listed_log()
        snapshot = handle.newest(dropped=True) if dry_run else settled(handle, VACUUM)
        check_writable(snapshot.state.protocol, snapshot.state.metadata)
        self.oldest = oldest_readable(snapshot.state)
        self._snapshot: Snapshot | None = snapshot
        self._dropped = is_dropped(snapshot.properties)
        self._cutoffs = _cutoffs(snapshot, retention, self.began_ms)
        self._in_effect = False
        self._kept = KeptFiles(handle)
        self._forgotten = _forgotten_removes(
            handle, snapshot, self._log_files, self._cutoffs.removed, 0 if self._whole else PLAN_AGE_MS_MAX
        )
        if not self.first.last and after is None and not dry_run:
            self._go_on()

    @property
    def is_young(self) -> bool:
        """Whether another block may be planned with these cut-offs."""
        return self._handle.clock.now_ms() - self.began_ms <= PLAN_AGE_MS_MAX // 2

    def _go_on(self) -> None:
        """Continue where an earlier run has ended, if it got further than the first block."""
        noted = read_note(self._handle)
        self._noted = noted is not None
        if noted is not None and noted > self.first.end:
            self._pages = self._handle.store.list_pages(self._handle.root, self._handle.root + noted)
            self.first = self.next_block(noted)
            self._snapshot = None

    def next_block(self, after: str) -> _Block:
        """Read the next objects."""
        objects = listed(self._next_pages(), self._handle.root)
        self._windows += objects.below(WINDOW_FOLDER)
        self._decisions += objects.below(DECISIONS)
        end = objects.keys[-1].as_py()[len(self._handle.root) :] if len(objects.keys) else after
        return _Block(objects, len(objects.keys) < BLOCK_KEYS, end)

    def _next_pages(self) -> Iterator[ListedPage]:
        count = 0
        while count < BLOCK_KEYS and (page := next(self._pages, None)) is not None:
            count += len(page.keys)
            yield page

    def do(self, block: _Block, tally: VacuumTally) -> None:
        """Delete what is useless of a block, with the last one also of the log. Raises `_TooOldError`."""
        handle = self._handle
        if block.last and not self._whole:
            self._log_files = self._listed_log()
            self._snapshot = None
        snapshot = self._snapshot or handle.newest(dropped=True)
        self._snapshot = None  # the next block will have been listed after it
        self._dropped = is_dropped(snapshot.properties)
        live = self._needed_by(snapshot)
        plan = plan_vacuum(live, block.objects, self._cutoffs)
        if len(plan.data_files) and not self._in_effect:
            removed = _in_effect(handle, snapshot, self._log_files, self._cutoffs.removed)
            self._cutoffs, self._in_effect = replace(self._cutoffs, removed=removed), True
            plan = plan_vacuum(live, block.objects, self._cutoffs)
        log_plan = self._planned_log() if block.last else LogPlan()
        oldest = _oldest_after(handle, snapshot, self._log_files, plan, log_plan, self._cutoffs)
        known = oldest_readable(snapshot.state)
        # A clone deletes nothing that others own, but they must learn which of its versions need it no more.
        shares = CLONE_OF in snapshot.properties
        gives_up = shares and oldest > known
        if plan.objects.num_rows or log_plan.objects or shares:
            planned = plan, log_plan
            plan, log_plan = self._spared(plan, log_plan, live, oldest, known)
            if plan is not planned[0] or log_plan is not planned[1]:
                oldest = _oldest_after(handle, snapshot, self._log_files, plan, log_plan, self._cutoffs)
        self.oldest = max(self.oldest, oldest)
        failed: list[str] = []
        if not self._dry_run and (plan.objects.num_rows or log_plan.objects or log_plan.hints or gives_up):
            self._kept.pin(oldest, known)
            # Who restores a version that a keeper has kept until now loses a race.
            named = len(plan.data_files) or len(plan.orphans)
            record_oldest(handle, oldest, fence=bool(named or log_plan.hints or log_plan.id_files))
            plan, log_plan = self._spared(plan, log_plan, live, oldest, known)
            newest = handle.newest(dropped=True)
            if handle.clock.now_ms() - self.began_ms > PLAN_AGE_MS_MAX:
                raise _TooOldError
            plan = plan.without(self._needed_by(newest))
            failed = delete_all(handle, [*plan.objects["key"].to_pylist(), *(info.key for info in log_plan.objects)])
            if not self._dropped:
                failed += delete_all(handle, log_plan.hints)
        if not self._dry_run:
            delete_old_offers(handle, block.objects.below(OFFERS))
        tally.add(plan, log_plan, failed)

    def _spared(
        self, plan: VacuumPlan, log_plan: LogPlan, live: Needed, oldest: int, known: int
    ) -> tuple[VacuumPlan, LogPlan]:
        """Look for keepers of versions below `oldest`, and return the plans without what they need."""
        found = self._kept.look(oldest, known)
        if log_plan.objects and found:
            log_plan = self._planned_log()
        return plan.spared(self._kept.live, live) if len(self._kept.live) else plan, log_plan

    def finish(self) -> None:
        """Clean up after the last block."""
        if self._dry_run:
            return
        handle = self._handle
        delete_old_decisions(handle, self._decisions)
        self._kept.clean_up()
        handle.store.sweep(handle.root, self._cutoffs.orphans)
        if self._dropped:
            checkpoint(handle, dropped=True)
        if self._noted:
            forget_note(handle)

    def note(self, after: str) -> None:
        """Record how far this vacuum has come."""
        if not self._dry_run:
            write_note(self._handle, after)
            self._noted = True

    def _needed_by(self, snapshot: Snapshot) -> Needed:
        if self._needed is None or self._needed.version != snapshot.version:
            self._needed = None
            pa.default_memory_pool().release_unused()  # what it took to decode the log, before and after
            self._needed = needed(snapshot, self._forgotten)
            pa.default_memory_pool().release_unused()
        return self._needed

    def _listed_log(self) -> list[ObjectInfo]:
        """Return the files of the log, with keys below the root."""
        if self._whole:
            return self.first.objects.below(LOG_FOLDER)
        root = self._handle.root
        return [replace(i, key=i.key[len(root) :]) for i in self._handle.store.list(root + LOG_FOLDER)]

    def _planned_log(self) -> LogPlan:
        files, cutoffs = self._log_files, self._cutoffs
        kept = self._kept.log_files(files)
        expired = [info for info in expired_log(files, cutoffs.log) if info.key not in kept]
        named = named_sidecars(self._handle.log, files, expired, cutoffs.log)
        return plan_log(files, self._windows, old_hints(files, cutoffs.orphans), cutoffs, named, kept)


def delete_old_offers(handle: TableHandle, listed: Sequence[ObjectInfo]) -> None:
    """Delete offers, listed by their keys below the table's root, that nobody waits for: an owner can do without."""
    before_ms = handle.clock.now_ms() - OFFER_AGE_MS_MIN
    handle.store.delete([handle.root + info.key for info in listed if info.modified_ms < before_ms])


def delete_all(handle: TableHandle, keys: Sequence[str]) -> list[str]:
    """Delete objects by their keys below the table's root; return those that the store refused every time."""
    store, root = handle.store, handle.root
    wanted: Sequence[str] = [root + key for key in keys]
    for _ in range(DELETE_TRIES):
        try:
            store.delete(wanted)
        except NotDeleted as error:
            wanted = error.keys
        else:
            return []
    return [key[len(root) :] for key in wanted]


def _cutoffs(snapshot: Snapshot, retention: timedelta | None, now_ms: int) -> Cutoffs:
    settings = snapshot.settings
    retention_ms = settings.file_retention_ms if retention is None else _milliseconds(retention)
    return Cutoffs(
        removed=now_ms - retention_ms if retention_ms else max(now_ms, snapshot.timestamp_ms) + 1,
        orphans=now_ms - max(retention_ms, ORPHAN_AGE_MS_MIN),
        ids=now_ms - ORPHAN_AGE_MS_MIN - settings.dedup_window_ms,
        log=now_ms - max(settings.log_retention_ms, LOG_AGE_MS_MIN) if settings.cleans_log else 0,
        now=now_ms,
    )


def _forgotten_removes(
    handle: TableHandle, snapshot: Snapshot, log_files: Sequence[ObjectInfo], since_ms: int, ahead_ms: int
) -> list[RemoveFile]:
    """Return the removes since a moment that checkpoints have dropped: those older than the table's own retention.

    `ahead_ms` is how much longer there may be new checkpoints. None, and no request, unless more is asked for than the
    table's own retention keeps.
    """
    if tombstones_after_ms(snapshot, handle.clock.now_ms() + ahead_ms) <= since_ms:
        return []
    commits = handle.log.read_commits(_put_since(log_files, since_ms))
    return [remove for commit in commits for remove in commit.removes]


def _in_effect(handle: TableHandle, snapshot: Snapshot, log_files: Sequence[ObjectInfo], before_ms: int) -> int:
    """Return the moment, by what commits say, before which removals had taken effect at another.

    A commit that was made then may have been put hours later: files that it removed were live until then. One GET,
    where a commit was put since.
    """
    young = _put_since(log_files, before_ms) if _is_exact(snapshot) else []
    commit = handle.log.read_commit(young[0]) if young else None
    return before_ms if commit is None else min(before_ms, commit.timestamp_ms)


def _put_since(log_files: Sequence[ObjectInfo], since_ms: int) -> list[int]:
    times = {info.key.removeprefix(LOG_FOLDER): info.modified_ms for info in log_files}
    return [version for version, file in sorted(read_listing(times).commits.items()) if times[file.name] >= since_ms]


def _is_exact(snapshot: Snapshot) -> bool:
    """Whether tombstones have the times of the commits that made them: nobody writes the table but this library."""
    return snapshot.settings.in_commit_timestamps and GUARD in (snapshot.protocol.writer_features or ())


def _oldest_after(
    handle: TableHandle,
    snapshot: Snapshot,
    log_files: Sequence[ObjectInfo],
    plan: VacuumPlan,
    log_plan: LogPlan,
    cutoffs: Cutoffs,
) -> int:
    """Return the oldest version that can be read once the plans are done.

    Our commits give a tombstone their own timestamp, so the time of the last removal names its version. Where others
    write too, their tombstones say less: then whatever is older than the retention has expired. A checkpoint drops
    tombstones that are older than the table's retention, so an orphan may have been part of a version up to then. Of a
    shallow clone, whatever is older than the retention has expired: it may need files that others delete.
    """
    oldest = oldest_readable(snapshot.state)
    data_files, orphans = len(plan.data_files), len(plan.orphans)
    if log_plan.log_files:
        gone = {info.key for info in log_plan.log_files} | log_plan.spared
        left = read_listing(info.key.removeprefix(LOG_FOLDER) for info in log_files if info.key not in gone).commits
        oldest = max(oldest, min(left, default=snapshot.version))
    moments = [] if plan.removed_ms is None else [plan.removed_ms]
    if orphans and handle.log.checkpoint_version is not None:
        moments.append(tombstones_after_ms(snapshot, handle.clock.now_ms()))
    if (not _is_exact(snapshot) and (data_files or orphans)) or CLONE_OF in snapshot.properties:
        moments.append(cutoffs.removed)
    return max(oldest, _version_at(handle, max(moments))) if moments else oldest


def _version_at(handle: TableHandle, moment_ms: int) -> int:
    """Return the version that was current at a moment; 0 before the oldest that the log still holds."""
    try:
        return version_at(handle.log, moment_ms)
    except (VersionExpired, VersionNotFound):
        return 0


def _milliseconds(retention: object) -> int:
    if not isinstance(retention, timedelta):
        raise Invalid(f"retention: expected a timedelta, such as timedelta(days=7), got {retention!r:.100}")
    if retention < timedelta(0):
        raise Invalid(f"retention: {retention} is negative; set how long to keep removed files")
    return int(retention / timedelta(milliseconds=1))


def settled(handle: TableHandle, operation: str) -> Snapshot:
    """Return the newest version of a table, after all transactions that claimed it were carried out or aborted.

    A commit does that: where there are claims, it records once more what is on record. It waits for a few seconds
    before it aborts a transaction.
    """
    snapshot = handle.newest(dropped=True)
    if not pending(snapshot.state.domains):
        return snapshot
    record_oldest(handle, 0, fence=True, operation=operation)
    return handle.newest(dropped=True)


def record_oldest(handle: TableHandle, oldest: int, *, fence: bool, operation: str = VACUUM) -> None:
    """Commit the oldest version that stays readable, so that a reader of an older one learns it by name.

    With `fence`, commit in any case: a writer that slept since long before then finds its version taken. Where another
    vacuum, or a change of the table, comes first, this looks again.
    """
    for tries in range(1, TRIES_MAX + 1):
        snapshot = handle.newest(dropped=True)
        known = oldest_readable(snapshot.state)
        if oldest <= known and not fence:
            return
        try:
            handle.transaction(snapshot, upkeep=True).commit(_record(snapshot, max(oldest, known), operation))
        except (ConcurrentDomain, MetadataChanged, TransactionExpired):
            if tries == TRIES_MAX:
                raise
        else:
            return


def _record(snapshot: Snapshot, oldest: int, operation: str) -> Changes:
    changes = Changes(operation, {"oldestReadableVersion": str(oldest)})
    if has_domains(snapshot.protocol):
        changes.domains = [DomainMetadata(OLDEST_READABLE, str(oldest))]
    else:
        metadata = snapshot.state.metadata
        configuration = {**metadata.configuration, OLDEST_READABLE: str(oldest)}
        changes.metadata = replace(metadata, configuration=configuration)
    return changes
