"""Optimize: rewrite many small files into few sorted ones with DuckDB, in commits that do not change data."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from alluvia.duck.copied_statistics import copied_statistics
from alluvia.duck.relation import quote_name, quote_text
from alluvia.duck.scratch import scratch_database
from alluvia.duck.views import Views
from alluvia.errors import AlluviaError, Conflict, Corrupt, ObjectNotFound, Unavailable
from alluvia.log.actions import AddFile
from alluvia.log.files.parquet import UNREADABLE
from alluvia.operations.checkpoint import checkpoint, checkpoint_due
from alluvia.operations.optimize_plan import FileGroup, plan_optimize
from alluvia.progress import report as tell_progress
from alluvia.scratch import scratch_root
from alluvia.store import Store
from alluvia.table.arguments import check_number
from alluvia.table.handle import TableHandle
from alluvia.table.reader import open_parquet
from alluvia.table.snapshot import Snapshot
from alluvia.table.transaction import Changes
from alluvia.table.writer import new_file_like

PLANS_MAX = 5
_SCHEMA = "alluvia"
_COPY_CODECS = {"zstd": "zstd", "snappy": "snappy", "gzip": "gzip", "lz4": "lz4_raw", "none": "uncompressed"}


@dataclass(slots=True)
class OptimizeReport:
    """What optimize did. Sizes in bytes.

    `conflicts` counts groups that another writer's commit made it plan again, `left` those for which time ran out.
    """

    files_before: int = 0
    files_removed: int = 0
    files_added: int = 0
    files_after: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    conflicts: int = 0
    left: int = 0
    version: int = 0
    checkpoint_version: int | None = None
    versions: list[int] = field(default_factory=list)


def optimize(
    handle: TableHandle,
    *,
    target_size: int | None = None,
    full: bool = False,
    memory_mb: int | None = None,
    checkpoints: bool = True,
    go_on: Callable[[], bool] = lambda: True,
    turn: AbstractContextManager[object] | None = None,
) -> OptimizeReport:
    """Rewrite the small files of every partition into bigger ones, and write a checkpoint if one is due.

    A group of files is one commit, which rebases over appends. Where another optimize or a delete has taken a file
    of the group, the rest is planned again on the new files. With nothing to do, it only looks for new commits.
    `target_size` is in bytes, the property `alluvia.target_file_size` by default. `go_on` is asked before each group:
    once it says no, the rest is left. `turn` is held while rows are rewritten.
    """
    check_number("target_size", target_size)
    check_number("memory_mb", memory_mb)
    report = OptimizeReport()
    snapshot = handle.newest()
    report.files_before = len(snapshot.files)
    for _ in range(PLANS_MAX):
        groups = plan_optimize(snapshot.files, target_size or snapshot.settings.target_file_size, full=full)
        total, done, lost = sum(group.size for group in groups), 0, 0
        for at, group in enumerate(groups):
            if not go_on():
                report.left = len(groups) - at
                break
            tell_progress(f"optimizing {handle.name}", done, total, "bytes")
            with turn or nullcontext():
                lost += not _optimize_group(handle, snapshot, group, report, memory_mb)
            done += group.size
        report.conflicts += lost
        snapshot = handle.newest() if lost else handle.at_hand()
        if not lost or report.left:
            break
    report.files_after = len(snapshot.files)
    report.version = snapshot.version
    if checkpoints and checkpoint_due(handle, snapshot):
        report.checkpoint_version = checkpoint(handle)
    return report


def _optimize_group(
    handle: TableHandle, planned: Snapshot, group: FileGroup, report: OptimizeReport, memory_mb: int | None
) -> bool:
    """Rewrite one group in one commit; False if a concurrent commit has removed one of its files."""
    transaction = handle.transaction(planned)
    try:
        rewritten = _rewrite(handle, planned, group.files, memory_mb)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        msg = f"not enough disk space to optimize {len(group.files)} files: use a larger disk"
        raise Unavailable(msg) from error
    except ObjectNotFound as error:
        newest = handle.newest()
        gone = [file for file in group.files if newest.files.get(file.key) is None]
        if gone:
            return False
        name = next((file.path for file in group.files if str(error).endswith(file.path)), str(error))
        msg = f"data file {name} of version {planned.version} is missing"
        raise Corrupt(msg) from None
    now_ms = handle.clock.now_ms()
    changes = Changes(
        "OPTIMIZE",
        {"targetSize": str(planned.settings.target_file_size)},
        adds=[] if rewritten is None else [rewritten],
        removes=[file.removed(now_ms, data_change=False) for file in group.files],
    )
    try:
        commit = transaction.commit(changes)
    except Conflict:
        return False
    assert commit is not None  # noqa: S101 - only an on_lost callback gives up
    report.files_removed += len(group.files)
    report.bytes_read += group.size
    if rewritten is not None:
        report.files_added += 1
        report.bytes_written += rewritten.size
    report.versions.append(commit.version)
    return True


def _rewrite(
    handle: TableHandle, snapshot: Snapshot, files: Sequence[AddFile], memory_mb: int | None
) -> AddFile | None:
    """Write the live rows of some files of one partition, sorted, into one file: a GET each and one PUT.

    None, and no file, where deletion vectors have deleted them all.
    """
    with tempfile.TemporaryDirectory(dir=scratch_root()) as name:
        folder = Path(name)
        urls = _local_copies(handle, snapshot, files, folder)
        target = folder / "optimized.parquet"
        rows, columns = _copy(handle.store, snapshot, files, urls, target, memory_mb)
        expected = [file.live_records for file in files]
        promised = sum(number or 0 for number in expected)
        if None not in expected and rows != promised:
            raise _miscounted(files, urls, promised, rows)
        if not rows:
            return None
        stored = pa.schema([field for field in snapshot.schema if field.name not in snapshot.partition_columns])
        stats = copied_statistics(rows, columns, stored, snapshot.settings.indexed_columns)
        rewritten = new_file_like(files[0], target.stat().st_size, stats, handle.clock, data_change=False)
        handle.store.put_file(snapshot.key(rewritten), target)
    return rewritten


def _local_copies(handle: TableHandle, snapshot: Snapshot, files: Sequence[AddFile], folder: Path) -> list[str]:
    """Return paths at which DuckDB finds the files: where they lie, or copies of them."""
    in_place = [handle.store.local_path(snapshot.key(file)) for file in files]
    if None not in in_place:
        return [str(path) for path in in_place]
    paths = [folder / f"{at}.parquet" for at in range(len(files))]
    handle.store.get_files(dict(zip(map(snapshot.key, files), paths, strict=True)))
    return [str(path) for path in paths]


def _miscounted(files: Sequence[AddFile], urls: Sequence[str], promised: int, rows: int) -> Corrupt:
    """Name the file whose statistics are wrong."""
    for file, url in zip(files, urls, strict=True):
        held = open_parquet(url).metadata.num_rows
        if held != file.num_records:
            return Corrupt(f"data file {file.path} holds {held} rows, but its statistics say {file.num_records}")
    return Corrupt(f"the statistics of {len(files)} files say {promised} rows, but they hold {rows}")


def _unreadable(reason: str, files: Sequence[AddFile], urls: Sequence[str]) -> AlluviaError:
    """Tell a file that vacuum deleted in the meantime from a damaged one, and name it by its path in the table."""
    for file, url in zip(files, urls, strict=True):
        if not Path(url).exists():
            return ObjectNotFound(file.path)
    for file, url in zip(files, urls, strict=True):
        if url in reason:
            return Corrupt(
                f"data file {file.path} cannot be rewritten: {reason.replace(url, file.path).splitlines()[0]}"
            )
        try:
            for _ in open_parquet(url).iter_batches():
                pass
        except UNREADABLE:
            return Corrupt(f"data file {file.path} cannot be rewritten: {reason.splitlines()[0]}")
    return Unavailable(f"optimizing {len(files)} files failed, though each can be read: {reason.splitlines()[0]}")


def _copy(
    store: Store,
    snapshot: Snapshot,
    files: Sequence[AddFile],
    urls: Sequence[str],
    target: Path,
    memory_mb: int | None,
) -> tuple[int, dict[str, dict[str, str]]]:
    """Have DuckDB write the rows in the table's order, without the columns whose values are in the log."""
    import duckdb

    settings = snapshot.settings
    stored = [field.name for field in snapshot.schema if field.name not in snapshot.partition_columns]
    order = [quote_name(name) for name in settings.sort_by if name in stored]
    select = f"SELECT {', '.join(map(quote_name, stored))} FROM {_SCHEMA}.files"
    if order:
        select += f" ORDER BY {', '.join(order)}"
    memory_limit = None if memory_mb is None else f"{memory_mb}MB"
    with scratch_database(target.parent, memory_limit=memory_limit) as connection:
        connection.execute(f"CREATE SCHEMA {_SCHEMA}")
        try:
            Views(connection, _SCHEMA, store, target.parent).create("files", snapshot, files, urls)
            found = connection.execute(
                f"COPY ({select}) TO {quote_text(str(target))} (FORMAT parquet, RETURN_STATS, "
                f"COMPRESSION {_COPY_CODECS[settings.codec]}, ROW_GROUP_SIZE {settings.row_group_rows})"
            ).fetchall()
        except duckdb.OutOfMemoryException as error:
            msg = f"optimizing {len(files)} files ran out of memory: give it more memory, or a smaller target_size"
            raise Unavailable(msg) from error
        except duckdb.Error as error:
            raise _unreadable(str(error), files, urls) from error
    columns = {name: dict(values) for row in found for name, values in dict(row[4]).items()}
    return sum(int(row[1]) for row in found), columns
