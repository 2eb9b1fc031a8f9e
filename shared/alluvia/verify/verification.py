"""Verifying a table: its log in order, then what the newest version names, then, if asked for, every row of it.

It reads and never writes. One LIST request per 1,000 objects, one GET for each file of the log; data files are opened
in full mode only, one GET each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from alluvia.commit.event_window.id_runs import EVENT_ID
from alluvia.commit.event_window.index import index_name
from alluvia.commit.handle import ReadableTable
from alluvia.commit.versions import oldest_readable
from alluvia.delta.data_files.writer import RowCheck
from alluvia.delta.lineage import in_gap, is_dropped, version_gaps
from alluvia.delta.log.features import GUARD
from alluvia.delta.log.paths import LAST_CHECKPOINT, LOG_FOLDER, commit_name, version_prefix
from alluvia.delta.log.replay import State
from alluvia.delta.properties import Properties, read_properties
from alluvia.delta.protocols import check_readable
from alluvia.delta.schema.serialization import arrow_schema
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Corrupt, Invalid, ObjectNotFound, TableNotFound, Unsupported
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.planning.layout import row_check
from alluvia.store import ObjectInfo
from alluvia.verify.claim_checks import Claimed, check_claims, check_decisions, check_kept
from alluvia.verify.commit_checks import check_commits, check_hint, check_names, hint_elsewhere, missing_commits
from alluvia.verify.data_files import RowRules
from alluvia.verify.file_checks import (
    DAY_MS,
    LOOKS_MAX,
    Place,
    Retention,
    check_changes,
    check_live_files,
    check_log_entries,
    check_tombstones,
    find_orphans,
)
from alluvia.verify.leaves import stored_leaves
from alluvia.verify.log_walk import LogWalk, Walk, note_absent
from alluvia.verify.objects import Objects, sort_objects
from alluvia.verify.reading import FileReader, Reading, total_of
from alluvia.verify.replaying import Replay
from alluvia.verify.report import Findings, VerifyReport
from alluvia.verify.window_checks import check_id_files, window_rules, wrong_index

Progress = Callable[[str, int, int], None]
"""Told what is being read, `log` or `files`, how much of it is done, and how much there is."""
_INVARIANTS = '"delta.invariants"'


def verify(
    handle: ReadableTable, *, full: bool = False, progress: Progress | None = None, reader: FileReader | None = None
) -> VerifyReport:
    """Verify a table, no matter who wrote it, and report all that is wrong with it; damage never raises.

    Quick mode looks at the log and at a listing; full mode reads every row of the newest version as well, by
    `reader` if there is one. Raises
    `TableNotFound`, `Unsupported` for a table that needs a feature which this library cannot read, `Unavailable`.
    """
    return _Verification(handle, full, progress or _silent, reader).run()


def _silent(_what: str, _done: int, _total: int) -> None:
    """Tell nobody."""


@dataclass(slots=True)
class _Contents:
    """What the newest version holds, as far as it could be told."""

    files: int = 0
    rows: int | None = None
    bytes: int = 0
    orphans: Sequence[ObjectInfo] = ()
    oldest: int = 0


class _Verification:
    def __init__(self, handle: ReadableTable, full: bool, progress: Progress, reader: FileReader | None) -> None:
        self._reader = reader
        self._handle = handle
        self._store = handle.store
        self._full = full
        self._progress = progress
        self._now_ms = handle.clock.now_ms()
        self._findings = Findings()

    def run(self) -> VerifyReport:
        objects = sort_objects(self._store.list(self._handle.root), self._handle.root)
        if not objects.log:
            raise TableNotFound(f"there is no table {self._handle.name!r}")
        if objects.newest < 0:
            self._findings.add("log-empty", "the log holds no commit and no checkpoint")
            return self._report(objects, Walk(), _Contents())
        self._look_again(objects)
        check_names(objects, self._findings)
        structs_from = 0 if self._full else objects.newest_checkpoint
        findings, root = self._findings, self._handle.root
        walk = LogWalk(self._store, root, objects, findings, self._now_ms, self._progress, structs_from).run()
        self._check_hint(objects, walk)
        check_decisions(self._handle, objects, findings)
        replay = walk.replay
        check_commits(objects, self._recorded(replay), findings)
        for lacking in walk.lacking:
            if lacking.version >= self._recorded(replay):
                findings.add("checkpoint-lacks-tombstone", lacking.message, version=lacking.version, file=lacking.file)
        claimed = Claimed() if replay is None or walk.newest != objects.newest else self._take_claims(replay)
        snapshot = None if replay is None else self._snapshot(replay)
        if replay is None or snapshot is None:
            return self._report(objects, walk, _Contents())
        return self._report(objects, walk, self._check_contents(objects, walk, replay, snapshot, claimed))

    def _report(self, objects: Objects, walk: Walk, contents: _Contents) -> VerifyReport:
        return VerifyReport(
            table=self._handle.name,
            full=self._full,
            version=objects.newest if objects.newest >= 0 else None,
            oldest_version=None if walk.oldest is None else max(walk.oldest, contents.oldest),
            versions=len(objects.commits),
            checkpoints=sum(map(len, objects.checkpoints.values())),
            files=contents.files,
            rows=contents.rows,
            bytes=contents.bytes,
            orphans=len(contents.orphans),
            orphan_bytes=sum(info.size for info in contents.orphans),
            findings=self._findings.worst_first(),
            found=dict(self._findings.found),
        )

    def _take_claims(self, replay: Replay) -> Claimed:
        """Check the claims that stand, and apply what has happened."""
        claimed = check_claims(self._handle, replay.domains, replay.version, self._findings)
        for commit in claimed.happened:
            note_absent(replay.take(commit), commit.version, "a claim", self._findings)
            replay.version = commit.version - 1
        return claimed

    def _look_again(self, objects: Objects) -> None:
        """Look for commits that are not in the listing. It is not a snapshot: others may commit during it."""
        runs = ((first, last) for first, last in missing_commits(objects) if last + 1 not in objects.checkpoints)
        versions = (version for first, last in runs for version in range(first, last + 1))
        for version in list(islice(versions, LOOKS_MAX)):
            name = commit_name(version)
            info = self._store.head(self._handle.root + name)
            if info is not None:
                objects.add_commit(version, replace(info, key=name))

    def _check_hint(self, objects: Objects, walk: Walk) -> None:
        data, root = None, self._handle.root
        if LAST_CHECKPOINT in objects.log:
            with suppress(ObjectNotFound):
                data = self._store.get(root + LAST_CHECKPOINT)
        elsewhere = hint_elsewhere(data, objects)
        if elsewhere is not None and elsewhere > objects.newest_checkpoint:
            later = self._store.list(root + LOG_FOLDER, root + version_prefix(elsewhere))
            if elsewhere in sort_objects(later, root).checkpoints:  # written since the listing
                return
        check_hint(data, objects, walk.adds, self._findings)

    def _snapshot(self, replay: Replay) -> Snapshot | None:
        """Return the newest state as readers see it; None, reported, where they could not. Raises `Unsupported`."""
        if replay.protocol is None or replay.metadata is None:
            return None
        state = State(replay.version, replay.protocol, replay.metadata, domains=replay.domains)
        try:
            check_readable(replay.protocol, replay.metadata)
        except Corrupt as error:
            self._findings.add("protocol-unreadable", str(error), version=replay.version)
            return None
        except Unsupported as error:
            raise _refused(error) from error
        try:
            stored_leaves(replay.protocol, replay.metadata)
        except Corrupt:  # reported where the log brought it
            return None
        except Unsupported as error:
            raise _refused(error) from error
        return Snapshot(state, self._handle.root, self._handle.name, self._store)

    def _check_contents(
        self, objects: Objects, walk: Walk, replay: Replay, snapshot: Snapshot, claimed: Claimed
    ) -> _Contents:
        whole = walk.newest == objects.newest
        findings, place = self._findings, Place(self._store, snapshot, objects, whole)
        leaves = stored_leaves(snapshot.protocol, snapshot.state.metadata)
        if not whole:
            after = "" if walk.newest is None else f" after {walk.newest}"
            msg = f"the log gives no readable version{after}: only the files of its readable commits were checked"
            findings.add("verification-incomplete", msg, version=walk.newest)
        if is_dropped(snapshot.properties):
            findings.add("table-dropped", "the table was dropped; undrop brings it back until vacuum deletes its files")
        settings = self._settings(snapshot)
        oldest = self._oldest(snapshot)
        retention = Retention(self._now_ms, self._now_ms - settings.file_retention_ms, oldest)
        files = list(replay.files.values())
        there = check_live_files(place, files, findings)
        check_log_entries(place, files, leaves, there, findings)
        check_tombstones(place, replay, retention, findings)
        check_changes(place, walk.changes, retention, findings)
        kept = check_kept(self._handle, objects, oldest, findings)
        orphans = find_orphans(place, replay, [*claimed.waiting, *kept]) if whole else []
        self._note_orphans(orphans, objects, walk)
        self._check_window(objects, walk, snapshot)
        window = window_rules(snapshot.properties)
        if window is not None and whole:
            read = self._read if self._full else None
            check_id_files(walk.window, window, objects.windows, read, findings)
        rows = total_of(file.live_records for file in files)
        if self._full:
            rules = RowRules(leaves, self._constraints(snapshot, settings))
            reading = Reading(self._store, snapshot, rules, there, findings, self._progress, self._reader)
            rows = reading.run(replay, walk.window if whole else None, settings.dedup_window_ms)
        return _Contents(len(files), rows, sum(file.size for file in files), orphans, oldest)

    def _read(self, name: str) -> bytes:
        return self._store.get(self._handle.root + name)

    def _settings(self, snapshot: Snapshot) -> Properties:
        """Return the table's properties; the defaults, reported, where they cannot be read."""
        try:
            version_gaps(snapshot.properties)
            return snapshot.settings
        except Corrupt as error:
            self._findings.add("property-unreadable", str(error), version=snapshot.version)
            return read_properties({})

    def _recorded(self, replay: Replay | None) -> int:
        """Return the oldest version that can be read, by the newest state; 0 where that does not say."""
        if replay is None or replay.protocol is None or replay.metadata is None:
            return 0
        try:
            return oldest_readable(State(replay.version, replay.protocol, replay.metadata, domains=replay.domains))
        except Corrupt:  # reported where the state is looked at
            return 0

    def _oldest(self, snapshot: Snapshot) -> int:
        try:
            return oldest_readable(snapshot.state)
        except Corrupt as error:
            self._findings.add("property-unreadable", str(error), version=snapshot.version)
            return 0

    def _note_orphans(self, orphans: Sequence[ObjectInfo], objects: Objects, walk: Walk) -> None:
        sidecars = [info for name, info in objects.sidecars.items() if name not in walk.sidecars]
        for kind, what, orphaned in (("orphan-files", "version", orphans), ("orphan-sidecars", "checkpoint", sidecars)):
            if orphaned:
                size = sum(info.size for info in orphaned)
                old = sum(info.modified_ms < self._now_ms - DAY_MS for info in orphaned)
                files = f"{len(orphaned)} file{'s' if len(orphaned) > 1 else ''} ({size} bytes in all)"
                msg = f"no {what} names {files}; {old} of them older than a day, which vacuum will delete"
                self._findings.add(kind, msg, file=orphaned[0].key)

    def _check_window(self, objects: Objects, walk: Walk, snapshot: Snapshot) -> None:
        """Compare the index of event ids of the newest checkpoint, the only one that is read, with the commits."""
        version = max(walk.metadata, default=None)
        if version is None or version != objects.newest_checkpoint:
            return
        metadata = walk.metadata[version]
        rules = window_rules(snapshot.properties)
        if rules is None or is_dropped(metadata.configuration) or in_gap(rules.gaps, version):
            return
        name = index_name(version)
        if name not in objects.windows:
            if (
                GUARD in (snapshot.protocol.writer_features or ())
                and EVENT_ID in arrow_schema(metadata.schema_string).names
            ):
                msg = f"checkpoint {version} has no index of event ids: the first ingestion must read the commits"
                self._findings.add("window-index-missing", msg, version=version, file=name)
            return
        try:
            data = self._read(name)
            for what in wrong_index(data, name, version, walk.window, snapshot.protocol, metadata):
                self._findings.add("window-index-wrong", f"{name}: {what}", version=version, file=name)
        except Corrupt as error:
            self._findings.add("window-index-unreadable", str(error), version=version, file=name)

    def _constraints(self, snapshot: Snapshot, settings: Properties) -> dict[str, RowCheck]:
        """Return the CHECK constraints that can be checked here; the others are reported."""
        checks: dict[str, RowCheck] = {}
        for name, text in settings.constraints.items():
            try:
                check = row_check({name: text}, snapshot.schema)
            except (Unsupported, Invalid) as error:
                self._findings.add("constraint-unchecked", str(error))
            else:
                if check is not None:
                    checks[name] = check
        if _INVARIANTS in snapshot.state.metadata.schema_string:
            self._findings.add(
                "constraint-unchecked", "the table has invariants of columns, which are not checked here"
            )
        return checks


def _refused(error: Unsupported) -> Unsupported:
    return Unsupported(f"the table cannot be verified: {error}")
