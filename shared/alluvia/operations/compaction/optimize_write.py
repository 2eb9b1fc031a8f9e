"""Rewrite a group of files: DuckDB sorts the rows, spilling to disk, and they are streamed into files of the target.

A limit of memory is shared between DuckDB, which spills what does not fit, and the row groups on their way to a file.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from alluvia.arrow_parquet import pq
from alluvia.commit.handle import TableHandle
from alluvia.delta.clustering import CLUSTER_TAG, SAMPLE_ROWS, Curve, cluster_tag
from alluvia.delta.data_files.scan import open_parquet
from alluvia.delta.data_files.writer import new_file
from alluvia.delta.log.actions import AddFile
from alluvia.delta.log.files.parquet import UNREADABLE
from alluvia.delta.odd_times import odd_times_of, with_odd_times
from alluvia.delta.partitioning.partition import partition_of
from alluvia.delta.partitioning.spec import PartitionField
from alluvia.delta.partitioning.transforms import Span, part, plain, transformed
from alluvia.delta.snapshot import Snapshot
from alluvia.delta.statistics.written import merged_statistics
from alluvia.engine.duck.arrow_values import result_of
from alluvia.engine.duck.database import OwnDatabase, memory_shares, resident_bytes, scratch_database
from alluvia.engine.duck.failures import UNREAD
from alluvia.engine.duck.literals import quote_name, quote_text
from alluvia.engine.duck.views import Views
from alluvia.errors import AlluviaError, Corrupt, ObjectNotFound, Unavailable
from alluvia.lazy_dataclasses import dataclass
from alluvia.operations.compaction.optimize_outputs import Output, Outputs, SortedRows
from alluvia.operations.compaction.optimize_plan import FileGroup, KeyedRows, cut_group
from alluvia.operations.reading.relations import Evaluate, Files
from alluvia.scratch import scratch_root

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

_SCHEMA = "alluvia"
_FILES = f"{_SCHEMA}.files"
_KEYED = "alluvia_keyed"
_BATCH_ROWS = 1 << 15
_BATCH_BYTES = 1 << 26
"""About the most that a batch of rows takes without a limit of memory, in bytes."""
_BATCHES_HELD = 8
"""Sorted rows come in smaller batches; this many are as big as a batch."""
_BATCH_ROWS_MIN = 1 << 11
"""DuckDB's own batches."""
ARROW_ROWS_MAX = 1 << 21
"""Within a limit of memory, DuckDB sorts no more rows than this from Arrow, of which it keeps much until it has all."""
_INFLATED = 4
"""The assumed ratio of rows in memory to rows in a file."""


@dataclass(frozen=True, slots=True)
class NewFiles:
    """The files that were written. `rows` were read, and `changed` says whether other rows were written."""

    files: list[AddFile]
    rows: int
    changed: bool = False


def rewrite(
    handle: TableHandle,
    snapshot: Snapshot,
    group: FileGroup,
    target: int,
    memory_mb: int | None,
    evaluate: Evaluate | None = None,
) -> NewFiles:
    """Write the live rows of a group, sorted, into new files: a GET for each file read, a PUT for each file written.

    With `evaluate`, they are folded with the table's merge query. No file where deletion vectors have deleted all rows.
    Raises `Corrupt`, `ObjectNotFound` and `Unavailable`, and `Invalid` where the merge query fails.
    """
    try:
        return _rewrite(handle, snapshot, group, target, memory_mb, evaluate, in_place=snapshot.has_variants)
    except AlluviaError as error:
        if not snapshot.has_variants or UNREAD not in str(error):
            raise
    return _rewrite(handle, snapshot, group, target, memory_mb, evaluate, in_place=False)


def _rewrite(
    handle: TableHandle,
    snapshot: Snapshot,
    group: FileGroup,
    target: int,
    memory_mb: int | None,
    evaluate: Evaluate | None,
    *,
    in_place: bool,
) -> NewFiles:
    files = [each.file for each in group.files]
    urls: list[str] = []
    with ExitStack() as held, _explained(files, urls):
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(dir=scratch_root())))
        urls += _local_copies(handle, snapshot, files, folder)
        shares = None if memory_mb is None else memory_shares(memory_mb, resident_bytes())
        settings, bytes_max = (None, None) if shares is None else (shares.settings, shares.rows)
        with _closed_aside(scratch_database(folder, settings=settings), held) as connection:
            connection.execute(f"CREATE SCHEMA {_SCHEMA}")
            stored = "files" if evaluate is None else "stored"
            Views(OwnDatabase(connection), _SCHEMA, handle.store, folder).create(
                stored, snapshot, files, urls, UNREAD.__eq__, as_stored=evaluate is None, in_place=in_place
            )
            folded = None
            if evaluate is not None:
                from alluvia.operations.compaction.optimize_fold import (
                    fold_rows,  # loaded late: it parses, which needs DuckDB
                )

                views = (f"{_SCHEMA}.{stored}", _FILES)
                folded = fold_rows(connection, evaluate, Files(snapshot, files, urls), folder, views)
            by_value = group.joined or group.cut or (folded is not None and bool(snapshot.partition_spec.transforms))
            ranges = _ranges(connection, snapshot, group, target, by_value=by_value, counted=folded is None)
            wanted = sum(rows for rows, _ in ranges)
            row_bytes = group.weight / max(1, wanted if folded is None else folded.rows)
            aside = folder / "keyed.parquet" if bytes_max is not None and wanted > ARROW_ROWS_MAX else None
            with _sorted_rows(
                connection, snapshot, by_value=by_value, row_bytes=row_bytes, bytes_max=bytes_max, aside=aside
            ) as rows:
                written = Outputs(snapshot, rows, folder, target, row_bytes).write(ranges)
                rows_written = sum(output.rows for output in written) + rows.rest()
        rows_written, changed = (rows_written, False) if folded is None else (folded.rows, folded.changed)
        live = _live_rows(files)
        if live is not None and rows_written != live:
            raise _miscounted(files, urls, rows_written)
        cells = ["" if by_value else group.cell(at, len(written)) for at in range(len(written))]
        put = [
            _put(handle, snapshot, files[0], output, cell, data_change=changed)
            for output, cell in zip(written, cells, strict=True)
        ]
        odd_times = {kind: min(count, rows_written) for kind, count in odd_times_of(files).items()}
        return NewFiles(with_odd_times(put, odd_times), rows_written, changed)


@contextmanager
def _closed_aside(connection: DuckDBPyConnection, held: ExitStack) -> Iterator[DuckDBPyConnection]:
    """Close a connection in a thread, since it frees much memory; `held` waits for that."""
    threads = held.enter_context(ThreadPoolExecutor(1))
    try:
        yield connection
    finally:
        held.callback(threads.submit(connection.close).result)


def _live_rows(files: Sequence[AddFile]) -> int | None:
    """Return how many rows files have by their statistics; None where they do not say."""
    numbers = [file.live_records for file in files]
    return None if None in numbers else sum(number or 0 for number in numbers)


def _put(
    handle: TableHandle, snapshot: Snapshot, like: AddFile, output: Output, cell: str, *, data_change: bool
) -> AddFile:
    values = [like.partition_values.get(name) for name in snapshot.partition_spec.stored_columns]
    partition = partition_of(snapshot.partition_spec, values, output.span)
    size, stats = output.path.stat().st_size, merged_statistics(output.statistics)
    new = new_file(partition, size, stats, handle.clock, tags=output.tags, data_change=data_change)
    tags = {CLUSTER_TAG: cluster_tag(snapshot.file_form.file_settings.cluster_by, cell)} if cell else {}
    new = replace(new, partition_values=like.partition_values, tags={**new.tags, **tags})
    handle.store.put_new_file(snapshot.key(new), output.path)
    return new


def _ranges(
    connection: DuckDBPyConnection, snapshot: Snapshot, group: FileGroup, target: int, *, by_value: bool, counted: bool
) -> list[tuple[int, Span]]:
    """Return how many of the sorted rows go to which span, in order; `counted`: there are as many as the log says."""
    if by_value:
        return cut_group(group, _counted(connection, snapshot), target)
    live = _live_rows([each.file for each in group.files]) if counted else None
    if live is None:
        [(live,)] = connection.execute(f"SELECT count(*) FROM {_FILES}").fetchall()
    return [(live, group.span)]


def _counted(connection: DuckDBPyConnection, snapshot: Snapshot) -> list[KeyedRows]:
    """Return the keys of the files' rows, in order, and how many rows have each."""
    fields = snapshot.partition_spec.transforms
    keys = _partition_keys(snapshot)
    names = list(keys)
    with _keyed(connection, [field.column for field in fields], keys):
        grouped = f"SELECT {', '.join(names)}, count(*) FROM {_KEYED} GROUP BY ALL ORDER BY {_ascending(names)}"
        groups = result_of(connection, grouped).to_arrow_table()
    counts = groups.column(len(names)).to_pylist()
    columns = [
        [part(each) for each in plain(groups[name].combine_chunks(), field)]
        for name, field in zip(names, fields, strict=True)
    ]
    return [KeyedRows(key, rows) for key, rows in zip(zip(*columns, strict=True), counts, strict=True)]


_Keys = Mapping[str, Callable[[pa.Table], pa.ChunkedArray]]
"""Columns by which rows are sorted and that no file has, computed from rows; no column of the table has their names."""


@contextmanager
def _keyed(
    connection: DuckDBPyConnection,
    columns: Sequence[str],
    keys: _Keys,
    batch_rows: int = _BATCH_ROWS,
    aside: Path | None = None,
) -> Iterator[None]:
    """Show DuckDB some columns of the files, and keys that are computed from them; with `aside` from that file."""
    shown = ", ".join(map(quote_name, dict.fromkeys(columns)))
    with connection.cursor() as cursor:
        reader = result_of(cursor, f"SELECT {shown} FROM {_FILES}").to_arrow_reader(batch_rows)

        def with_keys(rows: pa.Table) -> pa.Table:
            for name, key in keys.items():
                rows = rows.append_column(name, key(rows))
            return rows

        schema = with_keys(reader.schema.empty_table()).schema
        tables = (with_keys(pa.Table.from_batches([batch])) for batch in reader)
        if aside is not None:
            with pq.ParquetWriter(aside, schema, compression="lz4") as file:
                for table in tables:
                    file.write_table(table)
            connection.execute(f"CREATE TEMP VIEW {_KEYED} AS FROM read_parquet({quote_text(str(aside))})")
            yield
            return
        batches = (batch for table in tables for batch in table.combine_chunks().to_batches())
        connection.register(_KEYED, pa.RecordBatchReader.from_batches(schema, batches))
        try:
            yield
        finally:
            connection.unregister(_KEYED)


def _partition_keys(snapshot: Snapshot) -> _Keys:
    """Return for each transform a key that sorts as its values do."""

    def key(field: PartitionField) -> Callable[[pa.Table], pa.ChunkedArray]:
        return lambda rows: transformed(rows[field.column], field)

    return {_key_name(snapshot, at): key(field) for at, field in enumerate(snapshot.partition_spec.transforms)}


def _curve_key(connection: DuckDBPyConnection, snapshot: Snapshot) -> _Keys:
    """Return the place of rows on a curve through the columns by which the table is clustered."""
    names = snapshot.settings.cluster_by
    columns = ", ".join(map(quote_name, names))
    sample = f"SELECT {columns} FROM {_FILES} USING SAMPLE reservoir({SAMPLE_ROWS} ROWS) REPEATABLE (1)"
    curve = Curve(result_of(connection, sample).to_arrow_table())
    place = len(snapshot.partition_spec.transforms)
    return {_key_name(snapshot, place): lambda rows: curve.places([rows[name] for name in names])}


def _key_name(snapshot: Snapshot, at: int) -> str:
    longest = max(map(len, snapshot.schema.names), default=0)
    return f"k{at:0{longest + 1}}"


def _ascending(names: Sequence[str]) -> str:
    return ", ".join(f"{quote_name(name)} ASC NULLS LAST" for name in names)


@contextmanager
def _sorted_rows(
    connection: DuckDBPyConnection,
    snapshot: Snapshot,
    *,
    by_value: bool,
    row_bytes: float,
    bytes_max: int | None,
    aside: Path | None,
) -> Iterator[SortedRows]:
    """Have DuckDB sort the rows in the table's order, without the columns whose values are in the log."""
    schema = pa.schema([each for each in snapshot.schema if each.name not in snapshot.partition_columns])
    names = schema.names
    settings = snapshot.settings
    keys = _partition_keys(snapshot) if by_value else {}
    columns = settings.cluster_by or settings.sort_by
    if len(settings.cluster_by) > 1:
        keys, columns = {**keys, **_curve_key(connection, snapshot)}, ()
    order = [*keys, *(name for name in columns if name in names)]
    select = f"SELECT {', '.join(map(quote_name, names))} FROM {_KEYED if keys else _FILES}"
    if order:
        select += f" ORDER BY {_ascending(order)}"
    width = _row_width(connection, row_bytes, bytes_max)
    most = bytes_max or _BATCH_BYTES
    with _keyed(connection, names, keys, _batch_rows(width, most), aside) if keys else nullcontext():
        reader = result_of(connection, select).to_arrow_reader(_batch_rows(width, most / _BATCHES_HELD))
        yield SortedRows(reader, schema, bytes_max)


def _row_width(connection: DuckDBPyConnection, row_bytes: float, bytes_max: int | None) -> float:
    """Return about how many bytes a row takes in memory.

    Within a limit the first rows are looked at, since a file in which they repeat says nothing of their size in memory.
    """
    width = max(1, _INFLATED * row_bytes)
    if bytes_max is None:
        return width
    first = result_of(connection, f"FROM {_FILES} LIMIT {_BATCH_ROWS_MIN}").to_arrow_table()
    return max(width, first.nbytes / max(1, len(first)))


def _batch_rows(width: float, bytes_max: float) -> int:
    """Return how many rows DuckDB hands over at once: many waste little, but wide ones must fit the memory."""
    return min(_BATCH_ROWS, max(_BATCH_ROWS_MIN, int(bytes_max / width)))


def _local_copies(handle: TableHandle, snapshot: Snapshot, files: Sequence[AddFile], folder: Path) -> list[str]:
    """Return paths at which DuckDB finds the files: where they lie, or copies of them."""
    in_place = [handle.store.local_path(snapshot.key(file)) for file in files]
    if None not in in_place:
        return [str(path) for path in in_place]
    paths = [folder / f"{at}.parquet" for at in range(len(files))]
    handle.store.get_files(dict(zip(map(snapshot.key, files), paths, strict=True)))
    return [str(path) for path in paths]


@contextmanager
def _explained(files: Sequence[AddFile], urls: Sequence[str]) -> Iterator[None]:
    """Raise our errors for those of DuckDB and Arrow, one of which may come as the other's."""
    from alluvia.engine.duck.native import duckdb

    try:
        yield
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        text = str(error)
        if "No space left on device" in text:
            msg = f"not enough disk space to optimize {len(files)} files: use a larger disk"
        elif isinstance(error, duckdb.OutOfMemoryException | MemoryError) or "Out of Memory" in text:
            msg = f"optimizing {len(files)} files ran out of memory: give it more memory, or a smaller target_size"
        elif not urls:
            raise
        else:
            raise _unreadable(text, files, urls) from error
        raise Unavailable(msg) from error


def _miscounted(files: Sequence[AddFile], urls: Sequence[str], rows: int) -> Corrupt:
    """Name the file whose statistics are wrong."""
    for file, url in zip(files, urls, strict=True):
        held = open_parquet(url).metadata.num_rows
        if held != file.num_records:
            return Corrupt(f"data file {file.path} holds {held} rows, but its statistics say {file.num_records}")
    return Corrupt(f"the statistics of {len(files)} files say {_live_rows(files)} rows, but they hold {rows}")


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
