"""One action in a fresh process: `python -m benchmarks.child ACTION ARGUMENTS` prints its time and peak memory as JSON.

Each action imports what it needs, returns what is to be timed, and that returns what both sides must agree on.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

Timed = Callable[[], Any]


def open_ours(uri: str, options: dict[str, Any]) -> Timed:
    """Open a table: its version, and how many files it has."""
    import alluvia.api.lake  # loaded before the time is taken

    def timed() -> tuple[int, int]:
        snapshot = alluvia.open_table(uri, **options).snapshot()
        return snapshot.version, len(snapshot.files)

    return timed


def list_ours(uri: str, options: dict[str, Any]) -> Timed:
    """Open a table, and name every file."""
    import alluvia.api.lake  # loaded before the time is taken

    return lambda: len(list(alluvia.open_table(uri, **options).snapshot().files.keys()))


def read_ours(uri: str, options: dict[str, Any]) -> Timed:
    """Open a table, and make an object of every file, with its partition, size and statistics."""
    import alluvia.api.lake  # loaded before the time is taken

    return lambda: len(list(alluvia.open_table(uri, **options).snapshot().files))


def open_deltalake(uri: str, options: dict[str, str], files: int) -> Timed:
    """Open a table; how many files it has is told, since asking for it would list them."""
    from deltalake import DeltaTable

    return lambda: (DeltaTable(uri, storage_options=options).version(), files)


def list_deltalake(uri: str, options: dict[str, Any]) -> Timed:
    """Open a table, and name every file."""
    from deltalake import DeltaTable

    return lambda: len(DeltaTable(uri, storage_options=options).file_uris())


def read_deltalake(uri: str, options: dict[str, Any]) -> Timed:
    """Open a table, and make an object of every file, with its partition, size and statistics."""
    import pyarrow as pa
    from deltalake import DeltaTable

    return lambda: len(pa.table(DeltaTable(uri, storage_options=options).get_add_actions()).to_pylist())


def none_ours(uri: str, column: str) -> Timed:
    """Open a table and prune all of its files, as a query does that none can match."""
    import alluvia.api.lake  # loaded before the time is taken
    from alluvia.delta.data_files.scan import Scan
    from alluvia.delta.skipping.predicate import Comparison

    return lambda: len(Scan(alluvia.open_table(uri).snapshot(), Comparison((column,), "<", -1)).files)


def none_duckdb(uri: str, column: str) -> Timed:
    """Run a query that no file can match."""
    from tests.peer_duckdb import load, use_here

    use_here()
    import duckdb

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    load(connection, "delta")
    return lambda: len(connection.execute(f"SELECT * FROM delta_scan('{uri}') WHERE {column} < -1").fetchall())


def upsert_ours(uri: str, rows: str) -> Timed:
    """Put rows, which lie in a Parquet file, into a table by `id`."""
    import pyarrow.parquet as pq

    import alluvia.api.lake
    import alluvia.operations.rows.upsert  # loaded before the time is taken

    source, table = pq.read_table(rows), alluvia.open_table(uri)

    def timed() -> list[int]:
        report = table.upsert(source, on=["id"])
        return [report.rows_updated or 0, report.rows_inserted or 0]

    return timed


def delete_ours(uri: str, where: str) -> Timed:
    """Delete the rows that match a condition."""
    import alluvia.api.lake
    import alluvia.operations.rows.where_edits  # loaded before the time is taken

    table = alluvia.open_table(uri)
    return lambda: table.delete(where).rows_deleted


def delete_deltalake(uri: str, where: str) -> Timed:
    """Delete the rows that match a condition."""
    from deltalake import DeltaTable

    table = DeltaTable(uri)
    return lambda: table.delete(where)["num_deleted_rows"]


def update_ours(uri: str, values: dict[str, str], where: str) -> Timed:
    """Set columns of the rows that match a condition."""
    import alluvia.api.lake
    import alluvia.operations.rows.where_edits  # loaded before the time is taken

    table = alluvia.open_table(uri)
    return lambda: table.update(values, where).rows_updated


def update_deltalake(uri: str, values: dict[str, str], where: str) -> Timed:
    """Set columns of the rows that match a condition."""
    from deltalake import DeltaTable

    table = DeltaTable(uri)
    return lambda: table.update(values, predicate=where)["num_updated_rows"]


def upsert_deltalake(uri: str, rows: str) -> Timed:
    """Merge rows, which lie in a Parquet file, into a table by `id`."""
    import pyarrow.parquet as pq
    from deltalake import DeltaTable

    source, table = pq.read_table(rows), DeltaTable(uri)

    def timed() -> list[int]:
        merge = table.merge(source, "t.id = s.id", source_alias="s", target_alias="t")
        report = merge.when_matched_update_all().when_not_matched_insert_all().execute()
        return [report["num_target_rows_updated"], report["num_target_rows_inserted"]]

    return timed


def merge_ours(uri: str, memory_mb: int | None = None) -> Timed:
    """Merge a table's files: the bytes that are written."""
    import duckdb  # noqa: F401 - loaded before the time is taken, on both sides

    import alluvia.api.lake
    import alluvia.operations.compaction.optimize

    table = alluvia.open_table(uri)
    return lambda: table.optimize(full=True, memory_mb=memory_mb).bytes_written


def merge_copy(uri: str, order: str) -> Timed:
    """Write all rows of a table's files, sorted, into one file: the bytes that are written."""
    import duckdb

    out = Path(uri) / "copy.parquet"
    names = [str(path) for path in Path(uri).glob("*.parquet")]
    connection = duckdb.connect()
    copy = f"COPY (SELECT * FROM read_parquet($1) ORDER BY {order}) TO '{out}' (FORMAT parquet, COMPRESSION zstd)"

    def timed() -> int:
        connection.execute(copy, [names])
        return out.stat().st_size

    return timed


def merge_deltalake(uri: str, columns: list[str] | None = None) -> Timed:
    """Compact a table, or sort it by Z-order: the bytes that are written."""
    from deltalake import DeltaTable

    table = DeltaTable(uri)

    def timed() -> int:
        report = table.optimize.z_order(columns) if columns else table.optimize.compact()
        added = json.loads(report["filesAdded"]) if isinstance(report["filesAdded"], str) else report["filesAdded"]
        return int(added["avg"] * report["numFilesAdded"])

    return timed


def cluster_ours(uri: str, memory_mb: int | None = None) -> Timed:
    """Cluster a table by its property: the number of files."""
    import alluvia.api.lake  # loaded before the time is taken
    import alluvia.operations.compaction.optimize

    table = alluvia.open_table(uri)
    return lambda: table.optimize(memory_mb=memory_mb).files_after


def cluster_deltalake(uri: str, columns: list[str], target_size: int, row_group_rows: int) -> Timed:
    """Sort a table by Z-order: the number of files."""
    from deltalake import DeltaTable, WriterProperties

    table, written = DeltaTable(uri), WriterProperties(max_row_group_size=row_group_rows, compression="ZSTD")
    z_order = table.optimize.z_order
    return lambda: z_order(columns, target_size=target_size, writer_properties=written)["numFilesAdded"]


def merge_nothing(uri: str) -> Timed:
    """Open a table, and merge where nothing is to be done."""
    import alluvia.api.lake  # loaded before the time is taken
    import alluvia.operations.compaction.optimize

    return lambda: alluvia.open_table(uri).optimize().files_removed


def vacuum_ours(uri: str, pages: str) -> Timed:
    """Vacuum a table whose data files are what a file lists: how many stay."""
    import alluvia.operations.retention.vacuum  # noqa: F401 - loaded before the time is taken
    from alluvia.api.lake import Lake
    from alluvia.clock import SystemClock
    from benchmarks.vacuum_listing import Listed

    store = Listed(Path(uri).parent, Path(pages))

    def timed() -> int:
        report = Lake(store, SystemClock()).table(Path(uri).name).vacuum()
        return next(each.objects for each in report.kept if each.reason == "live")

    return timed


ACTIONS = (
    merge_ours,
    merge_copy,
    merge_deltalake,
    merge_nothing,
    cluster_ours,
    cluster_deltalake,
    open_ours,
    list_ours,
    open_deltalake,
    list_deltalake,
    read_ours,
    read_deltalake,
    none_ours,
    none_duckdb,
    upsert_ours,
    upsert_deltalake,
    delete_ours,
    delete_deltalake,
    update_ours,
    update_deltalake,
    vacuum_ours,
)


def peak_bytes() -> int:
    """Return the peak memory of this process, imports included, or of a child that has ended if that is more."""
    lines = Path("/proc/self/status").read_text().splitlines()
    own = next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))
    return max(own, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10)


def _cpu_seconds() -> float:
    """Return the CPU time of this process and of its children that have ended."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def main(name: str, arguments: str) -> None:
    """Run an action: one of these, or `module:function`."""
    started = time.perf_counter()
    module, _, function = name.rpartition(":")
    action = getattr(import_module(module), function) if module else {each.__name__: each for each in ACTIONS}[name]
    timed = action(**json.loads(arguments))
    ready = time.perf_counter()
    used = _cpu_seconds()
    answer = timed()
    ended, used = time.perf_counter(), _cpu_seconds() - used
    found = {
        "seconds": ended - ready,
        "process_seconds": ended - started,
        "cpu_seconds": used,
        "peak_bytes": peak_bytes(),
        "answer": answer,
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
