"""Reading tables by `alluvia_spark.read_table`, compared with `spark.read.parquet` of the same files, in turns.

A bare read has the partition columns from the folders' names, as Spark finds them there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

import alluvia
import alluvia_spark
from alluvia.api.lake import Lake, Table
from alluvia_spark.session import session
from benchmarks.report import Figure
from tests.s3server import S3Server

ROWS = 3_000_000
PAIRS = 7
WARM_PAIRS = 5
"""So many come first, since Java compiles a query for some turns."""
SHARE_MIN = 0.9
Measured = tuple[float, float]
"""Seconds by the wall and of CPU, of all of Spark's processes."""


def figures(_: S3Server, folder: Path) -> list[Figure]:
    """Return the figures."""
    lake = alluvia.connect(str(folder))
    kinds = {
        "plain": _table(lake, "plain"),
        "partitioned, by folders": _table(lake, "folders", partition_by=("country",)),
        "partitioned, by file names": _table(lake, "names", partition_by=("country",), mark="é"),
        "1 in 1,000 rows deleted": _deleted(_table(lake, "deleted")),
        "columns renamed": _renamed(_table(lake, "renamed")),
    }
    found = []
    with session("alluvia benchmark", cores=2, settings={"spark.sql.shuffle.partitions": "2"}) as spark:
        for name, table in kinds.items():
            found += _compared(spark, name, table)
    return found


def _compared(spark: SparkSession, name: str, table: Table) -> list[Figure]:
    snapshot = table.snapshot()
    paths = [f"file:{table.lake.store.local_path(snapshot.key(file))}" for file in snapshot.files]
    root = f"{table.lake.uri}/{table.name}"
    sides: dict[str, Callable[[], DataFrame]] = {
        "ours": lambda: alluvia_spark.read_table(spark, table.lake, table.name),
        "theirs": lambda: spark.read.option("basePath", root).parquet(*paths),
    }
    runs: dict[str, list[Measured]] = {side: [] for side in sides}
    for at in range(WARM_PAIRS + PAIRS):
        for side, make in sides.items():
            run = _measured(spark, make)
            if at >= WARM_PAIRS:
                runs[side].append(run)
    figures = []
    for at, what in enumerate(("wall", "CPU")):
        ours, theirs = (median(run[at] for run in runs[side]) for side in ("ours", "theirs"))
        ratio = median(one[at] / other[at] for one, other in zip(runs["theirs"], runs["ours"], strict=True))
        bar = f"at least {SHARE_MIN} of bare"
        figures.append(
            Figure(f"read by Spark, {name}: {what}", f"{ours:.2f} s", f"{theirs:.2f} s", ratio, bar, ratio >= SHARE_MIN)
        )
    return figures


def _measured(spark: SparkSession, make: Callable[[], DataFrame]) -> Measured:
    pid = int(spark.sparkContext._jvm.java.lang.ProcessHandle.current().pid())  # type: ignore[union-attr]
    started, cpu = time.perf_counter(), _cpu(pid)
    rows = make()
    rows.agg(*(F.max(F.hash(f"`{name}`")) for name in rows.columns)).collect()
    return time.perf_counter() - started, _cpu(pid) - cpu


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + time.process_time()


def _table(lake: Lake, name: str, *, partition_by: tuple[str, ...] = (), mark: str = "") -> Table:
    schema = pa.schema(
        [("id", pa.int64()), ("n", pa.float64()), ("name", pa.string()), ("country", pa.string()), ("x", pa.int32())]
    )
    properties = {"delta.enableDeletionVectors": "true"}
    table = lake.create_table(name, schema, partition_by=partition_by, properties=properties)
    ids = pa.array(range(ROWS), pa.int64())
    low = pc.bit_wise_and(ids, pa.scalar(1023, pa.int64()))
    columns = [
        ids,
        pc.multiply(ids.cast(pa.float64()), pa.scalar(0.37)),
        pc.binary_join_element_wise(low.cast(pa.string()), "user", "-"),
        pc.binary_join_element_wise(pc.bit_wise_and(ids, pa.scalar(7, pa.int64())).cast(pa.string()), mark, ""),
        low.cast(pa.int32()),
    ]
    table.append(pa.Table.from_arrays(columns, schema=schema))
    return table


def _deleted(table: Table) -> Table:
    table.delete("id % 1000 = 7")
    return table


def _renamed(table: Table) -> Table:
    table.evolve(rename={"name": "title", "n": "number"})
    return table
