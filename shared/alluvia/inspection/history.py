"""The versions of a table that its log still has: who made each, and what it holds."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.commit import CommitActions
from alluvia.delta.log.files.file_set import ActionSet
from alluvia.delta.log.replay import State
from alluvia.errors import VersionExpired, VersionNotFound
from alluvia.inspection.asking import Asked, batches_of, may_match
from alluvia.inspection.files import TEXTS
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.reading.history import entries, own_commits
from alluvia.operations.reading.scan import known_rows

SCHEMA = pa.schema(
    [
        ("version", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("operation", pa.string()),
        ("parameters", TEXTS),
        ("metrics", TEXTS),
        ("engine", pa.string()),
        ("files_added", pa.int64()),
        ("files_removed", pa.int64()),
        ("files", pa.int64()),
        ("rows", pa.int64()),
        ("bytes", pa.int64()),
        ("readable", pa.bool_()),
        ("transaction", pa.string()),
    ]
)


@dataclass(frozen=True, slots=True)
class Totals:
    """What a version holds: files, and the rows and bytes in them; `unknown` files do not say how many rows."""

    files: int = 0
    rows: int = 0
    bytes: int = 0
    unknown: int = 0

    @classmethod
    def of(cls, files: ActionSet[AddFile]) -> Totals:
        """Return the totals of some files, from whole columns where that can be."""
        rows, others = known_rows(files)
        live = [file.live_records for file in others]
        known = [count for count in live if count is not None]
        return cls(len(files), rows + sum(known), files.total("size"), len(live) - len(known))

    def with_file(self, file: AddFile, sign: int) -> Totals:
        """Return the totals with a file more, or less."""
        rows = file.live_records
        return Totals(
            self.files + sign,
            self.rows + sign * (rows or 0),
            self.bytes + sign * file.size,
            self.unknown + (sign if rows is None else 0),
        )


def history(asked: Asked) -> Iterator[pa.RecordBatch]:
    """Yield a row for each version up to the one that the query sees, newest first.

    `files`, `rows` and `bytes` are what the version holds. They are null for versions that the log cannot make any
    more. Costs one LIST, one GET for each commit, and for those three the checkpoint before the first of them.
    """
    handle = asked.catalog.handle(asked.snapshot.name)
    listing, oldest, versions, times = own_commits(handle, asked.snapshot)
    wanted = [each for each in versions[: asked.number("limit")] if may_match(asked.predicate, "version", each)]
    if not wanted:
        return iter(())
    totals: Mapping[int, Totals] = {}
    read = handle.log.read_commits(wanted)
    asked.check_time()
    if asked.names("files", "rows", "bytes"):
        first = min(wanted)
        start = None if oldest is None else max(first, oldest)
        if start is not None and start <= max(wanted):
            known = {commit.version: commit for commit in read}
            missing = [at for at in range(start + 1, max(wanted) + 1) if at not in known and at in listing.commits]
            known |= {commit.version: commit for commit in handle.log.read_commits(missing)}
            asked.check_time()
            try:
                base = handle.log.at(start)
            except (VersionExpired, VersionNotFound):  # clean-up was faster
                base = None
            if base is not None:
                totals = totals_of(base, [known[at] for at in sorted(known) if at > start])
    rows = (
        {
            "version": each.version,
            "timestamp": each.timestamp,
            "operation": each.operation,
            "parameters": list(each.parameters.items()),
            "metrics": list(each.metrics.items()),
            "engine": each.engine,
            "files_added": each.files_added,
            "files_removed": each.files_removed,
            **_shown(totals.get(each.version)),
            "readable": each.readable,
            "transaction": each.transaction,
        }
        for each in entries(handle, asked.snapshot, oldest, read, times)
    )
    return batches_of(rows, SCHEMA)


def _shown(totals: Totals | None) -> dict[str, int | None]:
    if totals is None:
        return {}
    return {"files": totals.files, "rows": None if totals.unknown else totals.rows, "bytes": totals.bytes}


def totals_of(base: State, commits: Sequence[CommitActions]) -> dict[int, Totals]:
    """Return what a version and those that commits after it make hold, by version. `commits` follow one another."""
    now = Totals.of(base.files)
    totals = {base.version: now}
    changed: dict[str, AddFile | None] = {}
    for commit in commits:
        for key in [remove.key for remove in commit.removes]:
            there = changed[key] if key in changed else base.files.get(key)
            now = now if there is None else now.with_file(there, -1)
            changed[key] = None
        for add in commit.adds:
            there = changed[add.key] if add.key in changed else base.files.get(add.key)
            now = now if there is None else now.with_file(there, -1)
            now, changed[add.key] = now.with_file(add, 1), add
        totals[commit.version] = now
    return totals
