"""What changed in a rollup's source since the version that the rollup shows.

A commit that only appends is read as the files it added, while they are still files of the table. Of any other commit
that changes rows, the change feed gives the rows: only the columns that the query names are compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from alluvia.errors import VersionExpired
from alluvia.log.actions import AddFile, Txn
from alluvia.log.commit import CommitActions
from alluvia.operations.changes import is_expiry, read_commits, rows_changed
from alluvia.table.handle import TableHandle
from alluvia.table.lineage import is_own_commit, version_gaps
from alluvia.table.snapshot import Snapshot

PROGRESS = "alluvia.rollup"
"""The application id under which every refresh records the source's version, so that two conflict."""
REBUILD_BYTES_MIN = 64 << 20
"""Changes up to this size are always looked up; above it, only if they are smaller than the table."""


@dataclass(frozen=True, slots=True)
class SourceChange:
    """Changes of a source up to a version: files appended, and commits whose changes must be looked up row by row.

    With `only_appends`, these inserted rows and did nothing else. `shown` is the version that the rollup shows, None if
    it shows none. `rebuild` says why the rollup must be computed anew instead; None where it need not.
    """

    source: Snapshot
    shown: int | None = None
    files: Sequence[AddFile] = ()
    commits: Sequence[CommitActions] = ()
    rebuild: str | None = None
    only_appends: bool = False

    @property
    def is_empty(self) -> bool:
        """Whether no row changed."""
        return not self.files and not self.commits and self.rebuild is None


def app_id(source: Snapshot) -> str:
    """Return the application id for one source table, which another of its name does not have."""
    return f"{PROGRESS}/{source.state.metadata.id}"


def progress_of(rollup: Snapshot, source: Snapshot) -> int | None:
    """Return the version of the source that a rollup shows; None if it shows none, or one of another table."""
    found = rollup.state.txns.get(app_id(source))
    return None if found is None else found.version


def progress_txns(source: Snapshot, now_ms: int) -> list[Txn]:
    """Return what a refresh records: `now_ms` is when the source was looked at."""
    return [Txn(name, source.version, now_ms) for name in (PROGRESS, app_id(source))]


def find_change(handle: TableHandle, rollup: Snapshot, source: Snapshot) -> SourceChange:
    """Return what changed in a source between the version that a rollup shows and a newer one."""
    shown = progress_of(rollup, source)
    if shown is None:
        again = PROGRESS in rollup.state.txns
        reason = f"{source.name} was dropped and created again" if again else "the rollup was empty"
        return SourceChange(source, None, rebuild=reason)
    if shown >= source.version:
        older = shown > source.version
        return SourceChange(source, shown, rebuild="an older version was asked for" if older else None)
    gaps = version_gaps(source.properties)
    try:
        commits = read_commits(handle, shown + 1, source.version)
    except VersionExpired as error:
        return SourceChange(source, shown, rebuild=str(error))
    # What a source forgets because of its age stays in the rollup.
    commits = [each for each in commits if is_own_commit(gaps, each.version) and not is_expiry(each)]
    files: dict[str, AddFile] = {}
    others: set[int] = set()
    only_appends = True
    for commit in commits:
        adds = {add.key: add for add in commit.adds if add.data_change}
        appends = not commit.cdc and not any(remove.data_change for remove in commit.removes)
        only_appends = only_appends and appends
        if appends and all(source.files.get(key) is not None for key in adds):
            files |= adds
        else:
            others.add(commit.version)
    changing = [commit for commit in commits if commit.version in others]
    if _bytes(changing) > max(REBUILD_BYTES_MIN, source.totals[1]):
        return SourceChange(source, shown, rebuild=f"the changes of {source.name} are larger than the table")
    # The feed reads each commit's files as its version had them, so it must see changes of the metadata.
    wanted = [commit for commit in commits if commit.version in others or commit.metadata is not None]
    return SourceChange(source, shown, list(files.values()), wanted if changing else (), only_appends=only_appends)


def write_rows(handle: TableHandle, change: SourceChange, columns: Sequence[str], path: Path) -> pa.Schema:
    """Write the rows that a change's commits inserted and deleted to a file. Raises `VersionExpired`.

    Returns the file's columns, which are those asked for.
    """
    schema = pa.schema([change.source.schema.field(name).with_nullable(True) for name in columns])
    with pq.ParquetWriter(path, schema, store_schema=False) as writer:
        for batch in rows_changed(handle, change.source, change.commits, columns):
            writer.write_batch(batch.select(columns).cast(schema))
    return schema


def _bytes(commits: Sequence[CommitActions]) -> int:
    """Return the size of the files that commits added and removed."""
    return sum(
        sum(add.size for add in commit.adds) + sum(remove.size or 0 for remove in commit.removes) for commit in commits
    )
