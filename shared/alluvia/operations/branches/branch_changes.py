"""What a branch has changed, table by table: what it began with, what it is now, and the difference as one commit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain
from operator import itemgetter

from alluvia.commit.changes import Changes
from alluvia.commit.commit_records import table_at
from alluvia.commit.conflicts import harmless_change
from alluvia.commit.event_window.window import joined_event_ids
from alluvia.commit.intents import CLAIM
from alluvia.commit.reads import decode_reads
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.lineage import Gaps, in_gap, is_dropped, undone_versions, version_gaps, with_marks_of, with_undone
from alluvia.delta.log.actions import AddFile, DomainMetadata, Metadata, Protocol, Txn
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.replay import State
from alluvia.delta.properties import OLDEST_READABLE, ROLLUP
from alluvia.delta.protocols import with_features
from alluvia.delta.snapshot import Snapshot
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.catalog.catalog import WritableCatalog
from alluvia.operations.catalog.lake_snapshot import LakeSnapshot
from alluvia.operations.references.branch_store import NOT_THERE, BranchStore

CREATED, DROPPED, REPLACED, CHANGED = "created", "dropped", "replaced", "changed"
PUBLISH = "PUBLISH"


@dataclass(frozen=True, slots=True)
class BranchedTable:
    """A table that a branch has written: its state at the base, None if it did not exist, and now.

    `base` holds the transactions `held` before the log of the lake does. `commits` are the branch's own.
    """

    name: str
    base: State | None
    tip: State
    held: frozenset[str]
    commits: Sequence[CommitActions]

    @property
    def kind(self) -> str | None:
        """What the branch has done to the table as a whole; None for nothing that remains."""
        was, is_there = self.base is not None, not is_dropped(self.tip.metadata.configuration)
        if not was or not is_there:
            return CREATED if is_there else DROPPED if was else None
        assert self.base is not None  # noqa: S101 - for the type checker
        if self.base.metadata.id != self.tip.metadata.id:
            return REPLACED
        changed = self.adds or self.removed or self.metadata != self.base.metadata or self.txns or self.domains
        return CHANGED if changed else None

    @property
    def is_rollup(self) -> bool:
        """Whether the table is kept up to date with a query, which a refresh on the lake does there."""
        return ROLLUP in self.tip.metadata.configuration

    @property
    def adds(self) -> list[AddFile]:
        """Return the files that the branch has and the base has not."""
        known = None if self.base is None else self.base.files
        return [file for file in self.tip.files if known is None or known.get(file.key) is None]

    @property
    def removed(self) -> list[AddFile]:
        """Return the files that the base has and the branch has not."""
        return [] if self.base is None else [file for file in self.base.files if self.tip.files.get(file.key) is None]

    @property
    def metadata(self) -> Metadata:
        """Return the branch's metadata, without what is about versions that only the branch has."""
        if self.base is None:
            return replace(self.tip.metadata, configuration=with_marks_of(self.tip.metadata.configuration, {}))
        configuration = with_marks_of(self.tip.metadata.configuration, self.base.metadata.configuration)
        return replace(self.tip.metadata, configuration=with_undone(configuration, self.undone))

    @property
    def undone(self) -> Gaps:
        """Return which versions of the base hold events that the branch's table does not know, in order."""
        if self.base is None:
            return ()
        before, configuration = self.base.version, self.tip.metadata.configuration
        ranges = undone_versions(configuration)
        if self.base.metadata.id != self.tip.metadata.id:  # replaced, also by a drop and a new one
            ranges = tuple(sorted({*ranges, *version_gaps(configuration)}, key=itemgetter(1)))
        return tuple((first, min(last, before)) for first, last in ranges if first <= before)

    @property
    def txns(self) -> list[Txn]:
        """Return what applications have recorded on the branch."""
        known = {} if self.base is None else self.base.txns
        return [txn for app_id, txn in self.tip.txns.items() if known.get(app_id) != txn]

    @property
    def domains(self) -> list[DomainMetadata]:
        """Return the metadata domains that the branch has set or removed, but for its own claims and vacuums."""
        known = {} if self.base is None else self.base.domains
        changed = [domain for name, domain in self.tip.domains.items() if known.get(name) != domain]
        gone = [replace(domain, removed=True) for name, domain in known.items() if name not in self.tip.domains]
        return [each for each in chain(changed, gone)
                if each.domain != OLDEST_READABLE and not each.domain.startswith(CLAIM)]  # fmt: skip

    @property
    def event_infos(self) -> list[CommitActions]:
        """Return the branch's commits whose events count: those to this table, but for what restores have undone."""
        start = 0
        for at, commit in enumerate(self.commits):
            if commit.metadata is not None and commit.metadata.id != self.tip.metadata.id:
                start = at + 1
        undone = undone_versions(self.tip.metadata.configuration)
        return [commit for commit in self.commits[start:] if not in_gap(undone, commit.version)]

    def reads(self) -> tuple[Callable[[AddFile], bool] | None, frozenset[str]]:
        """Return which files others may not have added, and not removed, for the branch's changes to hold.

        That is what its commits have read, where all of them that rest on rows have said so, and else all rows.
        """
        assert self.base is not None  # noqa: S101 - others are created
        every: tuple[Callable[[AddFile], bool], frozenset[str]] = (lambda _: True), frozenset(self.base.files.keys())
        metadata, scans, files = self.base.metadata, [], set[str]()
        for commit in self.commits:
            metadata = commit.metadata or metadata
            if not harmless_change(self.base.metadata, metadata):
                return every
            if not commit.changes_rows or commit.info.get("isBlindAppend", False):
                continue
            recorded = decode_reads(commit.info)
            if recorded is None:
                return every
            snapshot = Snapshot(replace(self.base, metadata=metadata), f"{self.name}/", self.name)
            scans += [Scan(snapshot, predicate) for predicate in recorded.predicates]
            files |= recorded.files
        known = frozenset(key for key in files if self.base.files.get(key) is not None)
        return (lambda file: any(scan.can_match(file) for scan in scans)) if scans else None, known

    def changes(self, marker: Txn, branch: str, now_ms: int, *, reads: bool) -> Changes:
        """Return the difference as one change of the base, with a marker that says what it was published from. Pure.

        It rests on what the branch has read, if `reads` count. They do in any case where the branch has restored an
        older version of the base: events that this brings back may have come again on the lake.
        """
        base = self.base
        assert base is not None  # noqa: S101 - others are created
        changes_rows = any(commit.changes_rows for commit in self.commits)
        metadata = None if self.metadata == base.metadata else self.metadata
        restored = undone_versions(self.metadata.configuration) != undone_versions(base.metadata.configuration)
        can_match, files_read = self.reads() if reads or restored else (None, frozenset[str]())
        return Changes(
            PUBLISH,
            {"branch": branch},
            adds=[replace(file, data_change=changes_rows) for file in self.adds],
            removes=[file.removed(now_ms, data_change=changes_rows) for file in self.removed],
            metadata=metadata,
            protocol=None if self.tip.protocol == base.protocol else self.tip.protocol,
            txns=[*self.txns, marker],
            domains=self.domains,
            info=joined_event_ids([commit.info for commit in self.event_infos]),
            can_match=can_match,
            files_read=files_read,
        )

    def _protocol(self, begin: Protocol | None) -> Protocol | None:
        """Return a protocol with what the branch's files may need, whatever the table's properties say now."""
        tip, before = self.tip.protocol, None if self.base is None else self.base.protocol
        features = dict.fromkeys((*(tip.reader_features or ()), *(tip.writer_features or ())))
        protocol = with_features(begin or before or tip, list(features))
        return None if begin is None and protocol == before else protocol

    def filled(self, begin: Changes, marker: Txn) -> Changes:
        """Return what begins a table, with all that the branch has put into it. Pure."""
        txns = {txn.app_id: txn for txn in (*begin.txns, *self.tip.txns.values(), marker)}
        own = [each for each in self.tip.domains.values()
               if each.domain != OLDEST_READABLE and not each.domain.startswith(CLAIM)]  # fmt: skip
        return replace(
            begin,
            adds=[*begin.adds, *(replace(file, data_change=True) for file in self.tip.files)],
            protocol=self._protocol(begin.protocol),
            txns=list(txns.values()),
            domains=list({each.domain: each for each in (*begin.domains, *own)}.values()),
            info=joined_event_ids([commit.info for commit in self.event_infos]),
        )


def branched_tables(branch: WritableCatalog, store: BranchStore) -> list[BranchedTable]:
    """Return the tables that a branch has written, all as they are at one moment, in the order of their names.

    Costs nothing for others: a LIST of the branch's folder, two for each table that it has written, and its log.
    """
    handles = [branch.handle(name) for name in store.written()]
    now = LakeSnapshot.of_tables(branch.store, handles)
    tables = []
    for handle in handles:
        version, base, held = store.base(handle.name), None, frozenset[str]()
        if version != NOT_THERE:
            with handle.lock:
                state = handle.log.at(version)
            begin = table_at(handle.log, state)
            held = begin.held
            base = None if is_dropped(state.metadata.configuration) else begin.shown
        tip = now.table(handle.name)
        own = handle.log.read_commits(range(version + 1, tip.version + 1))
        tables.append(BranchedTable(handle.name, base, tip.shown, held, [*own, *tip.ahead]))
    return tables
