"""Vacuum: delete what no retained version needs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta

import pyarrow as pa

from alluvia.commit.commit_offers import OFFERS
from alluvia.commit.commit_records import DECISIONS
from alluvia.commit.event_window.index import WINDOW_FOLDER
from alluvia.commit.handle import TableHandle
from alluvia.commit.versions import oldest_readable
from alluvia.delta.lineage import is_dropped
from alluvia.delta.log.paths import LOG_FOLDER
from alluvia.delta.properties import CLONE_OF
from alluvia.delta.protocols import check_writable
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Unavailable
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.checkpointing import checkpoint
from alluvia.operations.retention.log_cleanup import (
    VACUUM,
    broken_checkpoints,
    expired_log,
    named_sidecars,
    record_oldest,
    settled,
)
from alluvia.operations.retention.old_commit_records import delete_old_decisions
from alluvia.operations.retention.referenced_files import KeptFiles
from alluvia.operations.retention.table_objects import OwnObjects, TableObjects
from alluvia.operations.retention.vacuum_cutoffs import cutoffs_of, forgotten_removes, in_effect, oldest_after
from alluvia.operations.retention.vacuum_keys import Needed, needed
from alluvia.operations.retention.vacuum_plan import Listed, LogPlan, VacuumPlan, listed, plan_log, plan_vacuum
from alluvia.operations.retention.vacuum_report import VacuumReport, VacuumTally, forget_note, read_note, write_note
from alluvia.operations.tables.drop import old_hints
from alluvia.store import ListedPage, ObjectInfo

OFFER_AGE_MS_MIN = 60 * 60 * 1000
PLAN_AGE_MS_MAX = 12 * 60 * 60 * 1000
"""A plan older than this is not executed: files added and removed since may be in no checkpoint any more."""
PLANS_MAX = 5
BLOCK_KEYS = 32_000
"""Objects that are in memory at once, 100 bytes each."""


def vacuum(
    handle: TableHandle,
    retention: timedelta | None = None,
    *,
    dry_run: bool = False,
    time_limit: timedelta | None = None,
    names_max: int | None = None,
    objects: TableObjects | None = None,
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
    claim the table are carried out or aborted. `objects` lists and deletes, in this process by default.
    """
    tally = VacuumTally(names_max)
    until_ms = None if time_limit is None else handle.clock.now_ms() + int(time_limit / timedelta(milliseconds=1))
    after: str | None = None
    too_slow = 0
    while too_slow < PLANS_MAX:
        run = _Run(handle, objects or OwnObjects(handle), retention, after, dry_run=dry_run)
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
        self,
        handle: TableHandle,
        objects: TableObjects,
        retention: timedelta | None,
        after: str | None,
        *,
        dry_run: bool,
    ) -> None:
        self._handle = handle
        self._objects = objects
        self._dry_run = dry_run
        self._noted = after is not None
        self._needed: Needed | None = None
        self._windows: list[ObjectInfo] = []
        self._decisions: list[ObjectInfo] = []
        self.began_ms = handle.clock.now_ms()
        # The listing comes first: whatever it holds that was ever committed, the version read after it knows.
        self._pages = objects.pages(after)
        self.first = self.next_block("")
        self._whole = self.first.last and after is None
        self._log_files = self._listed_log()
        snapshot = handle.newest(dropped=True) if dry_run else settled(handle, VACUUM)
        check_writable(snapshot.state.protocol, snapshot.state.metadata)
        self.oldest = oldest_readable(snapshot.state)
        self._snapshot: Snapshot | None = snapshot
        self._dropped = is_dropped(snapshot.properties)
        self._cutoffs = cutoffs_of(snapshot, retention, self.began_ms)
        self._in_effect = False
        self._kept = KeptFiles(handle)
        self._forgotten = forgotten_removes(
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
            self._pages = self._objects.pages(noted)
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
            removed = in_effect(handle, snapshot, self._log_files, self._cutoffs.removed)
            self._cutoffs, self._in_effect = replace(self._cutoffs, removed=removed), True
            plan = plan_vacuum(live, block.objects, self._cutoffs)
        log_plan = self._planned_log() if block.last else LogPlan()
        oldest = oldest_after(handle, snapshot, self._log_files, plan, log_plan, self._cutoffs)
        known = oldest_readable(snapshot.state)
        # A clone deletes nothing that others own, but they must learn which of its versions need it no more.
        shares = CLONE_OF in snapshot.properties
        gives_up = shares and oldest > known
        if plan.objects.num_rows or log_plan.objects or shares:
            planned = plan, log_plan
            plan, log_plan = self._spared(plan, log_plan, live, oldest, known)
            if plan is not planned[0] or log_plan is not planned[1]:
                oldest = oldest_after(handle, snapshot, self._log_files, plan, log_plan, self._cutoffs)
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
            failed = self._objects.delete([*plan.objects["key"].to_pylist(), *(info.key for info in log_plan.objects)])
            if not self._dropped:
                failed += self._objects.delete(log_plan.hints)
        if not self._dry_run:
            delete_old_offers(handle, block.objects.below(OFFERS))
        tally.add(plan, log_plan, failed)

    def _spared(
        self, plan: VacuumPlan, log_plan: LogPlan, live: Needed, oldest: int, known: int
    ) -> tuple[VacuumPlan, LogPlan]:
        """Look for keepers of versions below `oldest`, and return the plans without what they need."""
        added = self._kept.look(oldest, known)
        if log_plan.objects and added:
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
        broken = broken_checkpoints(self._handle.log, files, cutoffs.log)
        expired = [info for info in expired_log(files, cutoffs.log, broken) if info.key not in kept]
        named = named_sidecars(self._handle.log, files, expired, cutoffs.log)
        return plan_log(files, self._windows, old_hints(files, cutoffs.orphans), cutoffs, named, kept, broken)


def delete_old_offers(handle: TableHandle, listed: Sequence[ObjectInfo]) -> None:
    """Delete offers, listed by their keys below the table's root, that no writer waits for."""
    before_ms = handle.clock.now_ms() - OFFER_AGE_MS_MIN
    handle.store.delete([handle.root + info.key for info in listed if info.modified_ms < before_ms])
