"""The change of a source since the version that a rollup, or a table of a pipeline, shows.

A commit that only appends is read as the files it added, while they are still files of the table. Of any other commit
that changes rows, the change feed gives the rows: only the columns that the query names are compared. A restore is not
such an append, since it may bring back rows that had expired, which the rollup has.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pyarrow as pa

from alluvia.arrow_compute import pc
from alluvia.arrow_parquet import pq
from alluvia.commit.handle import ReadableTable
from alluvia.commit.intents import pending
from alluvia.delta.lineage import first_version, is_own_commit, version_gaps
from alluvia.delta.log.actions import AddFile, CdcFile, RemoveFile, Txn
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Invalid, VersionExpired, VersionNotFound
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.changes.changes import rows_changed
from alluvia.operations.changes.feed_commits import is_expiry, read_commits, restored_version
from alluvia.operations.changes.shown_versions import UNKNOWN, first_unread, shown_id, shown_now, without_shown
from alluvia.operations.reading.change_files import AFTER, INSERT
from alluvia.operations.retention.expire import has_expired
from alluvia.operations.streams.stream_batches import may_append, without_undone

PROGRESS = "alluvia.rollup"
"""The application id under which every refresh records the source's version, so that two conflict."""
REBUILD_BYTES_MIN = 64 << 20
"""Changes of this cost are always looked up; above it, only if they cost less than to read the table."""
REQUEST_BYTES = 256 << 10
"""The cost of opening a file, in bytes, besides its own."""
ACCEPT = "refresh(rebuild=True), or alluvia rollup refresh --rebuild"
STEP_BYTES = 1 << 30
"""Changes of a higher cost are applied in several commits, each up to a version of the source."""
COMMITS_AT_ONCE = 100


@dataclass(frozen=True, slots=True)
class SourceChange:
    """Changes of a source up to a version: files appended, and commits whose changes must be looked up row by row.

    `shown` is the version up to which the rollup shows all, -1 for one before the first, None if that is not known.
    `rebuild` says why the rollup must be computed anew instead; None where it need not. `accept` says how to ask for
    that where it loses rows.
    """

    source: Snapshot
    shown: int | None = None
    files: Sequence[AddFile] = ()
    commits: Sequence[CommitActions] = ()
    rebuild: str | None = None
    accept: str = ACCEPT

    @property
    def is_empty(self) -> bool:
        """Whether no row changed."""
        return not self.files and not self.commits and self.rebuild is None

    @property
    def size(self) -> int:
        """The bytes of the files appended, and of those whose rows the commits changed, by the log's sizes."""
        looked_up = 0
        for commit in self.commits:
            changed: list[AddFile | RemoveFile] = [*commit.adds, *commit.removes]
            sizes = {each.path: each.size or 0 for each in changed if each.data_change}
            looked_up += sum(each.size for each in commit.cdc) or sum(sizes.values())
        return sum(file.size for file in self.files) + looked_up


def progress_of(rollup: Snapshot, source: Snapshot) -> int | None:
    """Return the version of the source up to which a rollup shows all; None if it shows none, or another table."""
    first = unread_from(rollup, source)
    return None if first is None else first - 1


def unread_from(table: Snapshot, source: Snapshot) -> int | None:
    """Return the first version of the source whose commit a table may not show; None where it is not known."""
    return first_unread(table.state.txns, _id(source))


def _id(source: Snapshot) -> str:
    return source.state.metadata.id


def why_unknown(rollup: Snapshot, source: Snapshot) -> str | None:
    """Return the reason why the changes that a rollup does not show are not known; None where they are."""
    first, txns = unread_from(rollup, source), rollup.state.txns
    if first is not None:
        return f"{source.name} has no version {first - 1} any more" if first > source.version + 1 else None
    if PROGRESS not in txns or txns[PROGRESS].version == UNKNOWN:
        return "it was empty"
    if shown_id(_id(source)) not in txns:
        return f"{source.name} was dropped and created again"
    return (
        f"{rollup.name} does not say which version of {source.name} it shows, since it was published from a branch, "
        f"or another table was called {source.name} meanwhile"
    )


def progress_txns(rollup: Snapshot, sources: Iterable[Snapshot], now_ms: int) -> list[Txn]:
    """Return what a run records that brings a table to these versions: `now_ms` is when it looked at its sources."""
    versions = {_id(each): each.version for each in sources}
    return [Txn(PROGRESS, max(versions.values()), now_ms), *shown_now(rollup.state.txns, versions, now_ms)]


def find_change(
    handle: ReadableTable,
    rollup: Snapshot,
    source: Snapshot,
    *,
    rebuild: bool = False,
    stepwise: bool = False,
    accept: str = ACCEPT,
) -> SourceChange:
    """Return what changed in a source from the version that a rollup, or a table of a pipeline, shows to a newer one.

    If that is a lot, then only up to a version between the two, `stepwise`. Raises `Invalid` if the table must be
    computed anew, would lose what expired in the source by that, and `rebuild` does not ask for it; `accept` says how.
    """
    first, reason = unread_from(rollup, source), why_unknown(rollup, source)
    if first is None:
        return SourceChange(source, None, rebuild=reason, accept=accept)
    shown = first - 1
    if rebuild:
        return SourceChange(source, shown, rebuild="it was asked for", accept=accept)
    whole = SourceChange(source, shown, accept=accept)
    if reason is not None:
        return rebuilt(whole, reason)
    try:
        commits = list(unread(handle, rollup, source, first))
    except VersionExpired as error:
        return rebuilt(whole, str(error))
    commits = [each for each in commits if not is_expiry(each)]  # what a source forgets by age stays in the rollup
    files, looked_up = _divided(commits, source)
    count, size = source.totals
    if not has_expired(source) and _cost(looked_up) > max(REBUILD_BYTES_MIN, size + count * REQUEST_BYTES):
        return rebuilt(whole, f"the changes of {source.name} are larger than the table")
    step = _step(handle, commits, source) if stepwise else source
    if step is not source:
        files, looked_up = _divided([commit for commit in commits if commit.version <= step.version], step)
    return SourceChange(step, shown, files, looked_up, accept=accept)


def find_appends(handle: ReadableTable, table: Snapshot, source: Snapshot) -> SourceChange:
    """Return the rows that were appended to a source from the version that a table shows to a newer one.

    Other changes are left out, and so are rows whose append was undone by a restore before they were shown. Raises
    `VersionExpired` where clean-up has taken what that needs.
    """
    shown, first = progress_of(table, source), unread_from(table, source)
    if first is None or first > source.version:
        return SourceChange(source, shown)
    commits = without_undone(list(unread(handle, table, source, first)), first - 1)
    return SourceChange(source, shown, *_divided([each for each in commits if may_append(each)], source))


def unread(handle: ReadableTable, table: Snapshot, source: Snapshot, first: int) -> Iterator[CommitActions]:
    """Yield a source's own commits from the first unread one on. Those that the table shows have no files.

    They are read as they are needed. Raises `VersionExpired` where clean-up has taken one.
    """
    return without_shown(_commits(handle, source, first), table.state.txns, _id(source))


def _commits(handle: ReadableTable, source: Snapshot, first: int) -> Iterator[CommitActions]:
    """Yield a source's own commits from a version on, read in growing batches."""
    gaps, several = version_gaps(source.properties), COMMITS_AT_ONCE
    first = max(first, first_version(gaps))
    while first <= source.version:
        commits = read_commits(handle, first, min(first + several - 1, source.version))
        yield from (each for each in commits if is_own_commit(gaps, each.version))
        first, several = first + several, 2 * several
    yield from _claims_held(source)


def _claims_held(source: Snapshot) -> list[CommitActions]:
    """Return what a version holds of transactions over several tables before its log does, as commits after it."""
    claimed = [claim.intended(source.version + 1) for claim in pending(source.state.domains)]
    return [
        each
        for each in claimed
        if (each.adds or each.removes)
        and all(source.files.get(add.key) is not None for add in each.adds)
        and all(source.files.get(remove.key) is None for remove in each.removes)
    ]


def rebuilt(change: SourceChange, reason: str) -> SourceChange:
    """Return a change by which the rollup is computed anew. Raises `Invalid` if it would lose what expired by that."""
    if has_expired(change.source):
        raise Invalid(
            f"{reason}. So it must be rebuilt, but rows of {change.source.name} have expired, and it would "
            f"lose what it has of them. To accept that, use {change.accept}"
        )
    return replace(change, rebuild=reason)


def _divided(commits: Sequence[CommitActions], source: Snapshot) -> tuple[list[AddFile], list[CommitActions]]:
    """Return the files that commits appended and that a version still has, and the other commits that change rows.

    The feed reads each commit's files as its version had them, so the latter include all that change the metadata.
    """
    files: dict[str, AddFile] = {}
    others: list[CommitActions] = []
    changing = False
    for commit in commits:
        adds = {add.key: add for add in commit.adds if add.data_change}
        removes = any(remove.data_change for remove in commit.removes)
        plain = not commit.cdc and not removes and commit.metadata is None and restored_version(commit) is None
        if plain and all(source.files.get(key) is not None for key in adds):
            files |= adds
        else:
            others.append(commit)
            changing = changing or bool(adds or removes or commit.cdc)
    return list(files.values()), others if changing else []


def _step(handle: ReadableTable, commits: Sequence[CommitActions], source: Snapshot) -> Snapshot:
    """Return the version up to which commits are not too much for one refresh; the last one if it cannot be read."""
    cost = 0
    for commit in commits:
        cost += _cost([commit])
        if cost > STEP_BYTES and commit.version < source.version:
            try:
                return handle.snapshot(commit.version)
            except (VersionExpired, VersionNotFound):
                return source
    return source


def write_rows(
    handle: ReadableTable, change: SourceChange, columns: Sequence[str], path: Path, *, appends: bool = False
) -> pa.Schema:
    """Write the rows that a change's commits inserted and deleted to a file. Raises `VersionExpired`.

    With `appends`, only those that are new. Returns the file's columns: those asked for, and last one that is 1 for
    rows that were inserted, -1 for others.
    """
    sign = "sign" + "_" * max(map(len, columns))
    fields = [change.source.schema.field(name).with_nullable(True) for name in columns]
    schema = pa.schema([*fields, pa.field(sign, pa.int8())])
    with pq.ParquetWriter(path, schema, store_schema=False) as writer:
        for _, kinds, rows in rows_changed(handle, change.source, change.commits, columns):
            inserted = pc.is_in(kinds, pa.array([INSERT, AFTER]))
            signs = pc.if_else(inserted, pa.scalar(1, pa.int8()), pa.scalar(-1, pa.int8()))
            signed = pa.RecordBatch.from_arrays([*rows.columns, signs], schema=schema)
            writer.write_batch(signed.filter(pc.equal(kinds, pa.scalar(INSERT))) if appends else signed)
    return schema


def _cost(commits: Sequence[CommitActions]) -> int:
    """Return what it costs to read the files that commits added and removed, in bytes."""
    files: list[AddFile | RemoveFile | CdcFile] = []
    for commit in commits:
        files += [*commit.adds, *commit.removes, *commit.cdc]
    return sum(file.size or 0 for file in files) + len(files) * REQUEST_BYTES
