"""Erase: delete rows, and remove what still holds them or shows their values, in every version of the table.

A round settles the transactions that claim the table, deletes the rows, makes the version without them the oldest that
can be read (with a checkpoint of its own), and then removes older checkpoints, old data and change files. Commits stay,
because a writer that knows an older version must find the next one taken; what they show of the rows is taken out of
them. Rows that arrive meanwhile are the next round's. Each step finds out by itself what is left to do, so an erasure
that ended early is simply run again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from alluvia.commit.handle import TableHandle
from alluvia.commit.versions import oldest_readable
from alluvia.delta.log.checkpoints.putting import parse_last_checkpoint
from alluvia.delta.log.checkpoints.reader import Checkpoint
from alluvia.delta.log.paths import LAST_CHECKPOINT, LOG_FOLDER, CheckpointFile, parse_name
from alluvia.delta.properties import ROLLUP
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid, Unavailable
from alluvia.operations.checkpointing import checkpoint
from alluvia.operations.erasure.erase_edit import ERASE, EraseEdit
from alluvia.operations.erasure.erase_keepers import REWRITE_TRIES, KeptFacts, rewrite, without_rows
from alluvia.operations.erasure.erase_matching import Find
from alluvia.operations.erasure.erase_report import (
    CHECKPOINT,
    COMMIT,
    DATA,
    SIDECAR,
    EraseReport,
    Proof,
    Trace,
    Traces,
    read_if_there,
    read_present,
    unclear,
)
from alluvia.operations.erasure.erase_survey import Survey
from alluvia.operations.erasure.erase_work import EraseWork, OwnWork
from alluvia.operations.retention.log_cleanup import record_oldest, settled
from alluvia.operations.retention.referenced_files import KeptFiles
from alluvia.operations.rows.edits import RowChanges
from alluvia.operations.rows.row_changes import change_rows
from alluvia.store import ObjectInfo
from alluvia.table_names import REJECTS

ROUNDS_MAX = 10
"""Rows that still arrive after this many rounds are left, and reported."""
COMMITS_AT_ONCE = 256


def erase(
    handle: TableHandle,
    find: Find,
    *,
    skips_rejects: bool = False,
    before_removal: Callable[[], None] = lambda: None,
    release_tags: bool = False,
    facts: KeptFacts | None = None,
    work: EraseWork | None = None,
) -> EraseReport:
    """Delete the rows that `find` says of a snapshot, and remove what holds them or shows their values.

    Every object below the table's root is looked at, except its rejects if `skips_rejects`. Where nothing is found, and
    no transaction claims the table, nothing is written. Otherwise versions before the last one that deleted rows can no
    longer be read, and the rounds go on until nothing is left that may be removed now. `before_removal` is called while
    the changes that led to the newest version can still be read. Raises `Invalid` for an append-only table, for a
    rollup that still has such rows, and where a tag, a clone or a branch keeps a version that does; with
    `release_tags`, such tags are deleted. `facts` has what is known of kept versions.
    `work` reads and rewrites files, in this process by default.
    """
    erasure = _Erasure(
        handle,
        find,
        before_removal,
        skips_rejects=skips_rejects,
        release_tags=release_tags,
        facts=facts or KeptFacts(),
        work=work or OwnWork(handle),
    )
    while erasure.report.rounds < ROUNDS_MAX and erasure.round():
        pass
    return erasure.report


def prove(
    handle: TableHandle,
    find: Find,
    *,
    skips_rejects: bool = False,
    dropped: bool = False,
    work: EraseWork | None = None,
) -> Proof:
    """Search every object below the table's root for rows that `find` says, and for what shows their values.

    With `dropped` also below that of a table that was dropped.
    """
    snapshot = handle.newest(dropped=dropped)
    spared = KeptFiles(handle)
    spared.look(snapshot.version, oldest_readable(snapshot.state))
    survey = Survey(handle, work or OwnWork(handle), skips_rejects=skips_rejects)
    traces = survey.look(find(snapshot), live=True, kept=spared, checkpoints=spared.checkpoints())
    proof = Proof(snapshot.version, traces.totals(), traces.traces)
    try:
        kept = tuple(handle.store.old_versions(handle.root))
    except (Invalid, Unavailable) as error:
        return replace(proof, old_versions=None, unlisted=str(error))
    if skips_rejects:  # whose own report has them
        kept = tuple(each for each in kept if not each.key.startswith(f"{handle.root}{REJECTS}/"))
    return replace(proof, old_versions=kept)


def count_rows(handle: TableHandle, find: Find, work: EraseWork | None = None) -> int:
    """Return how many rows of the newest version an erasure would delete, by reading the files that can hold them."""
    matching = find(handle.newest())
    return (work or OwnWork(handle)).count(matching, EraseEdit(matching).candidates(matching.snapshot))


class _Erasure:
    """One erasure: what its rounds share, and the report so far."""

    def __init__(
        self,
        handle: TableHandle,
        find: Find,
        before_removal: Callable[[], None],
        *,
        skips_rejects: bool,
        release_tags: bool,
        facts: KeptFacts,
        work: EraseWork,
    ) -> None:
        self.report = EraseReport(0)
        self._release_tags = release_tags
        self._before_removal = before_removal
        self._handle = handle
        self._find = find
        self._work = work
        self._survey = Survey(handle, work, skips_rejects=skips_rejects)
        self._facts = facts

    def round(self) -> bool:
        """Delete rows, look, and remove what was found. Returns whether another look is needed."""
        handle, release_tags = self._handle, self._release_tags
        facts = self._facts
        kept = without_rows(handle, self._find(handle.newest()), release_tags=release_tags, facts=facts)
        done = self._delete_rows()
        snapshot = handle.newest()
        self._count(done, snapshot)
        checkpoints = kept.checkpoints()
        if not done.files_removed:
            traces = self._survey.look(self._find(snapshot), kept=kept, checkpoints=checkpoints)
            if not traces.removable:
                return False
        self._before_removal()
        snapshot = _checkpointed(handle)
        matching = self._find(snapshot)
        # What moments mean is put on record first: the oldest readable version is part of that.
        kept = without_rows(handle, matching, snapshot.version, release_tags=release_tags, facts=facts)
        kept.pin(snapshot.version, oldest_readable(snapshot.state))
        record_oldest(handle, snapshot.version, fence=True, operation=ERASE)
        # Keepers may have come meanwhile.
        kept = without_rows(handle, matching, snapshot.version, release_tags=release_tags, facts=facts)
        kept.pin(snapshot.version, oldest_readable(snapshot.state))
        checkpoints = kept.write_checkpoints()
        self._remove(self._survey.look(matching, thorough=True, kept=kept, checkpoints=checkpoints), snapshot)
        self.report = replace(self.report, version=handle.newest().version, oldest_version=snapshot.version)
        return True

    def _delete_rows(self) -> RowChanges:
        snapshot = settled(self._handle, ERASE)
        if ROLLUP in snapshot.properties:
            self._check_refreshed(snapshot)
            return RowChanges(snapshot.version, snapshot.timestamp_ms)
        edits: list[EraseEdit] = []

        def edit(snapshot: Snapshot) -> EraseEdit:
            edits.append(EraseEdit(self._find(snapshot)))
            return edits[-1]

        done = change_rows(self._handle, "erase", edit, self._work.worker)
        unclear_here = edits[-1].unclear if edits else {}
        self.report = replace(
            self.report,
            unjudged=[
                Trace(DATA, snapshot.locate(path), unclear(reasons), removable=False)
                for path, reasons in unclear_here.items()
            ],
        )
        return done

    def _check_refreshed(self, rollup: Snapshot) -> None:
        """Raise `Invalid` for a rollup that has matching rows: only a refresh may write it."""
        matching = self._find(rollup)
        if self._work.count(matching, EraseEdit(matching).candidates(rollup)):
            raise Invalid(f"erase: the rollup {rollup.name} has such rows: erase those of its source, and refresh it")

    def _count(self, done: RowChanges, snapshot: Snapshot) -> None:
        before = self.report
        rows = None if before.rows is None or done.rows_deleted is None else before.rows + done.rows_deleted
        arrived = before.rows_arrived
        if before.rounds:
            arrived = None if arrived is None or done.rows_deleted is None else arrived + done.rows_deleted
        self.report = replace(
            before,
            version=snapshot.version,
            rows=rows,
            rows_arrived=arrived,
            files_rewritten=before.files_rewritten + done.files_removed,
            oldest_version=oldest_readable(snapshot.state),
            rounds=before.rounds + 1,
        )

    def _remove(self, shown: Traces, oldest: Snapshot) -> None:
        """Remove traces. Data files go last: while one is left, the next run knows that there is something to do."""
        handle, traces = self._handle, shown.removable
        sidecars = [trace for trace in traces if trace.kind == SIDECAR]
        checkpoints = [trace for trace in traces if trace.kind == CHECKPOINT]
        others = [trace for trace in traces if trace.kind not in (SIDECAR, CHECKPOINT, COMMIT)]
        failed = self._delete(checkpoints, [*_naming(handle, sidecars, oldest.version)])
        failed += self._delete(sidecars)
        redacted = sum(_redact(handle, shown, infos) for infos in _chunks(shown.commits))
        failed += self._delete(others)
        self.report = replace(
            self.report,
            commits_redacted=self.report.commits_redacted + redacted,
            not_deleted=[*self.report.not_deleted, *failed],
        )

    def _delete(self, traces: Sequence[Trace], more: Sequence[Trace] = ()) -> list[str]:
        every = {trace.key: trace.kind for trace in (*traces, *more)}
        if not every:
            return []
        root = self._handle.root
        failed = [root + key for key in self._work.objects.delete([key[len(root) :] for key in every])]
        gone = Counter(self.report.removed) + Counter(kind for key, kind in every.items() if key not in failed)
        self.report = replace(self.report, removed=dict(gone))
        return failed


def _checkpointed(handle: TableHandle) -> Snapshot:
    """Return the newest version, which has a checkpoint now, and the hint to it: those before it may go."""
    for _ in range(REWRITE_TRIES):
        with handle.lock:
            snapshot = handle.newest()
            data = read_if_there(handle.store, handle.root + LAST_CHECKPOINT)
            hint = None if data is None else parse_last_checkpoint(data)
            if checkpoint(handle, anew=hint is None or hint.version != snapshot.version) == snapshot.version:
                return snapshot
    raise Unavailable(
        f"{handle.name}: others committed before its checkpoint was written, {REWRITE_TRIES} times: try again"
    )


def _naming(handle: TableHandle, sidecars: Sequence[Trace], below: int) -> list[Trace]:
    """Return the checkpoints of versions below one that name one of some sidecars."""
    gone = {trace.key[len(handle.root) :] for trace in sidecars}
    checkpoints: list[Trace] = []
    if not gone:
        return checkpoints
    for info in handle.store.list(handle.root + LOG_FOLDER):
        name = info.key[len(handle.root) :]
        file = parse_name(name.removeprefix(LOG_FOLDER))
        if isinstance(file, CheckpointFile) and file.parts == 1 and file.version < below:
            data = read_if_there(handle.store, info.key)
            named = () if data is None else Checkpoint(file.version, [(name, data)]).sidecars
            if not gone.isdisjoint(each.name for each in named):
                checkpoints.append(Trace(CHECKPOINT, info.key, "it names a sidecar that goes"))
    return checkpoints


def _redact(handle: TableHandle, traces: Traces, infos: Sequence[ObjectInfo]) -> int:
    """Take out of commits what they show of files that no readable version needs. Returns how many changed."""
    there = read_present(handle.store, infos)
    showing = [info for info, data in there if traces.logs.redacted(data) != data]
    return sum(rewrite(handle.store, info.key, traces.logs.redacted) for info in showing)


def _chunks(infos: Sequence[ObjectInfo]) -> list[Sequence[ObjectInfo]]:
    return [infos[at : at + COMMITS_AT_ONCE] for at in range(0, len(infos), COMMITS_AT_ONCE)]
