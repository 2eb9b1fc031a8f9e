"""What a transaction over several tables does to one of them, kept until it commits. Its own reads see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from alluvia.commit.changes import RESTORE, Changes
from alluvia.commit.commit_offers import Contention
from alluvia.commit.event_window.id_runs import CONTENT_BYTES, FINGERPRINT_BYTES
from alluvia.commit.event_window.window import DedupWindow, event_ids_of, joined_event_ids, parts
from alluvia.commit.handle import TableHandle, TableTransaction
from alluvia.commit.intents import Claim, TableAt, pending
from alluvia.commit.transaction import TRANSACTION_AGE_MS_MAX, Commit, OnLost, Transaction
from alluvia.commit.versions import Versions
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.lineage import is_dropped, undone_versions, with_marks_of
from alluvia.delta.log.actions import AddFile, Metadata, RemoveFile
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.replay import State, replay
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import ConcurrentAppend, Invalid, MetadataChanged
from alluvia.operations.dedup import follow_window, held_events

if TYPE_CHECKING:
    from alluvia.delta.data_files.writer import FileWriter, RowCheck
    from alluvia.operations.transactions.inherited_event_ids import TakenOver


class StagedTable:
    """A table as a transaction sees it: at the version of its cut, with the transaction's own changes on top.

    Operations on it write data files at once, and commit nothing. A table that is to be created has no version before:
    its base is that of a dropped one. `held` are the ids of transactions over several tables that the base holds before
    the table's log does.
    """

    def __init__(self, inner: TableHandle, base: Snapshot, held: frozenset[str]) -> None:
        self.store, self.root, self.name, self.clock = inner.store, inner.root, inner.name, inner.clock
        self.log, self.lock = inner.log, inner.lock
        self.contention = Contention()
        self.inner = inner
        self.base = base
        self.held = held
        self.started = self._start()
        self.staged: list[Changes] = []
        self.scans: list[Scan] = []
        self.checks: list[Callable[[], None]] = []
        """What raises a `Conflict` where it looks at the newest version, once another writer has come first."""
        self.begun = False
        """Whether an operation has begun to write, which may have found nothing to change."""
        self.replaces = False
        """Whether another table was staged in the place of the base, whose events it knows as far as it has them."""
        self._taken_over: TakenOver | None = None
        self._events: dict[bytes, set[bytes]] = {}
        self._moved: frozenset[str] = frozenset()
        self._now = base
        self._versions = Versions(inner.store, inner.root, inner.name)

    @property
    def is_staged(self) -> bool:
        return True

    @property
    def at(self) -> TableAt:
        """Return the base with the claims of the transactions that it holds before the table's log does."""
        claims = pending(self.base.state.domains)
        return TableAt(self.base.state, [claim for claim in claims if claim.transaction_id in self.held])

    @property
    def creates(self) -> bool:
        """Whether the transaction creates the table."""
        return is_dropped(self.base.properties)

    @property
    def drops(self) -> bool:
        """Whether the transaction has dropped the table."""
        return is_dropped(self._now.properties)

    @property
    def committed(self) -> TableHandle:
        return self.inner

    @property
    def window(self) -> DedupWindow | None:
        return self.inner.window

    @window.setter
    def window(self, window: DedupWindow | None) -> None:
        if window is not None:
            self.inner.window = window

    @property
    def attached_place(self) -> str | None:
        return self.inner.attached_place

    @property
    def is_read_only(self) -> bool:
        return self.inner.is_read_only

    def own(self) -> TableHandle:
        return self.inner.own()

    def check_own(self) -> None:
        self.inner.check_own()

    def known_state(self) -> State:
        return self.inner.known_state()

    def as_of(self, state: State) -> Snapshot:
        return self._versions.as_of(state)

    def writer(self, snapshot: Snapshot, check: RowCheck | None = None) -> FileWriter:
        return self.inner.writer(snapshot, check)

    def waiting_events(self) -> Mapping[bytes, set[bytes]]:
        return self._events

    def newest(self, *, dropped: bool = False) -> Snapshot:
        return self._now if dropped else self.as_of(self._now.state)

    def at_hand(self, *, dropped: bool = False) -> Snapshot:
        return self.newest(dropped=dropped)

    def snapshot(self, version: int | None = None, timestamp: datetime | str | None = None) -> Snapshot:
        """Return the table as the transaction sees it, and note that all of it may be read; or an older version."""
        if version is not None or timestamp is not None:
            return self.inner.snapshot(version, timestamp)
        return self.read(Scan(self.newest())).snapshot

    def readable(
        self, version: int | None = None, timestamp: datetime | str | None = None, where: str | None = None
    ) -> Snapshot:
        """Return what `snapshot` returns, and note of the newest version only the rows that match a condition."""
        if where is None or version is not None or timestamp is not None:
            return self.snapshot(version, timestamp)
        from alluvia.operations.reading.scan import predicate_of  # most transactions read by SQL

        newest = self.newest()
        return self.read(Scan(newest, predicate_of(newest, where))).snapshot

    def read(self, scan: Scan) -> Scan:
        """Note what is read of the table."""
        self.scans.append(scan)
        return scan

    def carry_out(self, snapshot: Snapshot) -> bool:  # noqa: ARG002
        """Return False: the snapshot holds what had happened when the transaction began."""
        return False

    def transaction(
        self,
        base: Snapshot,
        age_ms_max: int = TRANSACTION_AGE_MS_MAX,  # noqa: ARG002
        *,
        upkeep: bool = False,  # noqa: ARG002
    ) -> TableTransaction:
        """Return what stages changes instead of committing them."""
        if base.state is not self._now.state:
            raise Invalid(f"table {self.name} is changed by two calls at once in one transaction: make them one by one")
        self.begun = True
        return _Staging(self, self.read(Scan(base)))

    def stage(self, changes: Changes) -> Commit:
        """Put changes on top of the table as it is now. Returns the version that it would be."""
        state = self._now.state
        info = {"timestamp": self.clock.now_ms(), "inCommitTimestamp": self.clock.now_ms()}
        next_one = CommitActions(
            state.version + 1,
            info,
            changes.protocol,
            changes.metadata if changes.metadata_at is None else changes.metadata_at(state.version + 1),
            changes.txns,
            changes.domains,
            changes.adds,
            changes.removes,
        )
        self.staged.append(changes)
        if changes.operation == RESTORE:  # which knows what the version that it goes to did
            self._events.clear()
            self.replaces = False
        events = event_ids_of(CommitActions(0, dict(changes.info)))
        prints, contents = parts(events.prints, FINGERPRINT_BYTES), parts(events.contents, CONTENT_BYTES)
        for fingerprint, content in zip(prints, contents, strict=True):
            self._events.setdefault(fingerprint, set()).add(content)
        self._now = Snapshot(replay(state, [next_one]), self.root, self.name, self.store)
        rows = sum(file.num_records or 0 for file in changes.adds)
        return Commit(state.version + 1, info["timestamp"], rows, len(changes.adds))

    def with_taken_over(self, changes: Changes) -> Changes:
        """Return changes with the ids of the base's events that they put into a table which replaces it."""
        if not self.replaces or not changes.adds or changes.operation == RESTORE:
            return changes
        from alluvia.operations.transactions.inherited_event_ids import TakenOver  # few transactions replace a table

        if self._taken_over is None:
            self._taken_over = TakenOver(self.inner, self.base, self.at.ahead)
        own = event_ids_of(CommitActions(0, dict(changes.info)))
        known = {*self._events, *parts(own.prints, FINGERPRINT_BYTES)}
        state = replace(self._now.state, metadata=changes.metadata or self._now.state.metadata)
        now = Snapshot(state, self.root, self.name, self.store)
        taken = self._taken_over.info(now, changes.adds, known)
        return replace(changes, info={**changes.info, **joined_event_ids([changes.info, taken])}) if taken else changes

    def begin_again(self, changes: Changes) -> Commit:
        """Put changes of the base in the place of all that was staged."""
        self.staged, self._now = [], self.base
        self._events.clear()
        return self.stage(changes)

    def check_move(self, newer: Snapshot, claims: Sequence[Claim]) -> frozenset[str]:
        """Raise a `Conflict` if anything that was read or changed is other in a newer version.

        That version holds `claims` before the table's log does. Returns the files that hold there what was read.
        """
        held = frozenset(claim.transaction_id for claim in claims)
        if (newer.version, held) == (self.base.version, self.held):
            return self._moved
        with self.lock:
            known = self.log.since(self.base.version)
        if known is None:
            known = self.log.read_commits(range(self.base.version + 1, newer.version + 1))
        winners = [commit for commit in known if commit.version <= newer.version]
        winners += [claim.intended(newer.version) for claim in claims if claim.transaction_id not in self.held]
        changes = self.changes(reads=True)
        moved = self.started.check(winners, changes)
        self.check_winners(changes)(winners)
        return moved

    def move_to(self, newer: Snapshot, claims: Sequence[Claim], moved: frozenset[str]) -> None:
        """Go on from a newer version, which was checked; `moved` is what the check returned."""
        held = frozenset(claim.transaction_id for claim in claims)
        if (newer.version, held) == (self.base.version, self.held):
            return
        self._moved = moved
        staged, self.staged = self.staged, []
        self.base = self._now = newer
        self.held = held
        self.started = self._start()
        self._events.clear()
        for each in staged:
            self.stage(each)

    def _start(self) -> Transaction:
        """Begin what commits on the base. Raises `ReadOnly`, and `Unsupported`."""
        self.inner.check_own()
        return Transaction(self.log, self.base.state, held=self.held)

    def changes(self, *, reads: bool) -> Changes:
        """Return all that was staged as one change of the base, with what was read if `reads`."""
        merged = _merged(self.staged)
        scans = self.scans if reads or not self.staged else []
        tests = [each.can_match for each in self.staged if each.can_match is not None]
        tests += [scan.can_match for scan in scans]
        known = [each.predicates for each in self.staged if each.can_match is not None]
        predicates = [one for several in known for one in several or ()] + [scan.predicate for scan in scans]
        there = self.base.files
        read = {*self._moved, *(key for each in self.staged for key in each.files_read)}
        read |= {file.key for scan in scans for file in scan.files}
        return replace(
            merged,
            can_match=_any_of(tests) if tests else None,
            predicates=None if None in known else predicates,
            files_read=frozenset(key for key in read if there.get(key) is not None),
        )

    def check_winners(self, changes: Changes) -> OnLost:
        """Return what raises `Conflict` where commits that came first hold an event that the transaction ingests."""
        undone = undone_versions(self.base.properties)

        def check(winners: Sequence[CommitActions]) -> Changes:
            if self._events:
                metadata = [winner.metadata for winner in winners if winner.metadata is not None]
                if any(undone_versions(each.configuration) != undone for each in metadata):
                    raise MetadataChanged(f"table {self.name} was restored or replaced: start the transaction again")
                known = ((0, self.base.version),)
                if held_events(self.inner, follow_window(self.inner), list(self._events), known, self.base.version):
                    raise ConcurrentAppend(f"another writer ingested the same events into {self.name}: start again")
            for each in self.checks:
                each()
            return changes

        return check


class _Staging:
    """A transaction on a staged table. Until it commits, which says what it has read, that may be all of the table."""

    def __init__(self, handle: StagedTable, read: Scan) -> None:
        self._handle = handle
        self._read = read

    def commit(self, changes: Changes, on_lost: OnLost | None = None, *, backs_off: bool = True) -> Commit | None:  # noqa: ARG002
        self._handle.scans.remove(self._read)
        return self._handle.stage(self._handle.with_taken_over(changes))

    def check(self, winners: Sequence[CommitActions], changes: Changes) -> frozenset[str]:
        return self._handle.started.check(winners, changes)


def _any_of(tests: Sequence[Callable[[AddFile], bool]]) -> Callable[[AddFile], bool]:
    return lambda file: any(test(file) for test in tests)


def _merged(staged: Sequence[Changes]) -> Changes:
    """Return changes made one after another as one: files that come and go in between are in none of them."""
    if len(staged) == 1:
        return staged[0]
    adds: dict[str, AddFile] = {}
    removes: dict[str, RemoveFile] = {}
    metrics: dict[str, int] = {}
    infos: list[Mapping[str, Any]] = []
    for each in staged:
        for remove in each.removes:
            if adds.pop(remove.key, None) is None:
                removes[remove.key] = remove
        for add in each.adds:
            if removes.pop(add.key, None) is None:
                adds[add.key] = add
        for name, number in each.metrics.items():
            metrics[name] = metrics.get(name, 0) + number
        infos = [] if each.operation == RESTORE else [*infos, each.info]
    named = [each.operation for each in staged]
    return Changes(
        "TRANSACTION" if staged else "READ",
        {"operations": ", ".join(named)} if named else {},
        list(adds.values()),
        list(removes.values()),
        next((each.metadata for each in reversed(staged) if each.metadata is not None), None),
        next((each.protocol for each in reversed(staged) if each.protocol is not None), None),
        [txn for each in staged for txn in each.txns],
        list({domain.domain: domain for each in staged for domain in each.domains}.values()),
        joined_event_ids(infos),
        # Change files say what one operation changed, so those of several do not add up: readers compare the files.
        metrics=metrics,
        domains_read=frozenset(name for each in staged for name in each.domains_read),
        metadata_at=_metadata_at(staged),
    )


def _metadata_at(staged: Sequence[Changes]) -> Callable[[int], Metadata | None] | None:
    """Return the last metadata by version, with the marks that depend on it."""
    marking = next((each.metadata_at for each in reversed(staged) if each.metadata_at is not None), None)
    last = next((each for each in reversed(staged) if each.metadata is not None), None)
    if marking is None or last is None or last.metadata_at is not None:
        return marking

    def metadata_at(version: int) -> Metadata | None:
        assert last is not None  # noqa: S101 - for the type checker
        assert last.metadata is not None  # noqa: S101
        marked = marking(version)
        before = {} if marked is None else marked.configuration
        return replace(last.metadata, configuration=with_marks_of(last.metadata.configuration, before))

    return metadata_at
