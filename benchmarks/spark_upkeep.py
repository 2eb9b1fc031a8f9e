"""Optimize by `alluvia_spark.upkeep`, compared with a bare read, sort and write of the same files by Spark, in turns.

The bare job reads the files of all partitions, brings each partition to a task, sorts it, and writes one file. Beside
it, delta-spark's OPTIMIZE of a copy of the table, which does not sort.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession

import alluvia
from alluvia.api.lake import Table
from alluvia_spark import upkeep
from benchmarks.delta_session import session_with_delta
from benchmarks.report import Figure
from tests.reach.delta_spark import named
from tests.s3server import S3Server

FILES, ROWS, PARTITIONS = 24, 250_000, 8
TURNS, WARM_TURNS = 3, 1
SHARE_MIN = 0.9


def figures(_: S3Server, folder: Path) -> list[Figure]:
    """Return the figures."""
    table = _table(folder / "lake")
    size = sum(file.size for file in table.snapshot().files)
    what = f"optimize on Spark, {len(table.files)} files, {size >> 20} MB, sorted: wall"
    with session_with_delta() as spark:
        sides: dict[str, Callable[[Path], object]] = {
            "ours": lambda copy: _ours(spark, copy),
            "bare": lambda copy: _bare(spark, table, copy),
            "delta": lambda copy: spark.sql(f"OPTIMIZE {named(_opened(copy))}").collect(),
        }
        runs = _in_turns(folder, sides)
    ours, bare, other = (median(runs[side]) for side in sides)
    ratio = median(one / two for one, two in zip(runs["bare"], runs["ours"], strict=True))
    return [
        Figure(
            what,
            f"{ours:.2f} s",
            f"{bare:.2f} s (bare)",
            ratio,
            f"at least {SHARE_MIN} of bare",
            ratio >= SHARE_MIN,
        ),
        Figure(what, f"{ours:.2f} s", f"{other:.2f} s (delta-spark, not sorted)", ours / other),
    ]


def _in_turns(folder: Path, sides: dict[str, Callable[[Path], object]]) -> dict[str, list[float]]:
    """Return the seconds of each side's turns, each on a copy of the table."""
    runs: dict[str, list[float]] = {side: [] for side in sides}
    for turn in range(WARM_TURNS + TURNS):
        for side, work in sides.items():
            copy = folder / f"{side}-{turn}"
            shutil.copytree(folder / "lake", copy)
            started = time.perf_counter()
            work(copy)
            if turn >= WARM_TURNS:
                runs[side].append(time.perf_counter() - started)
            shutil.rmtree(copy)
    return runs


def _ours(spark: SparkSession, copy: Path) -> None:
    done = upkeep.optimize(spark, str(copy), "t")
    assert done.files_after == PARTITIONS


def _bare(spark: SparkSession, table: Table, copy: Path) -> None:
    paths = [f"file:{copy / 't' / file.path}" for file in table.snapshot().files]
    rows = spark.read.option("basePath", f"file:{copy / 't'}").parquet(*paths)
    sort = rows.repartition(PARTITIONS, "country").sortWithinPartitions("country", "name", "id")
    sort.write.partitionBy("country").parquet(f"file:{copy / 'out'}")


def _opened(copy: Path) -> Table:
    return alluvia.connect(str(copy)).table("t")


def _table(folder: Path) -> Table:
    schema = pa.schema(
        [("id", pa.int64()), ("n", pa.float64()), ("name", pa.string()), ("country", pa.string()), ("x", pa.int32())]
    )
    table = alluvia.connect(str(folder)).create_table(
        "t",
        schema,
        partition_by=["country"],
        sort_by=["name", "id"],
        properties={"alluvia.writers": "any"},  # or else delta-spark refuses it
    )
    for number in range(FILES):
        ids = pa.array(range(number * ROWS, (number + 1) * ROWS), pa.int64())
        mixed = pc.bit_wise_and(pc.multiply(ids, pa.scalar(2_654_435_761)), pa.scalar((1 << 40) - 1))
        country = pc.bit_wise_and(ids, pa.scalar(PARTITIONS - 1)).cast(pa.string())
        columns = [ids, pc.multiply(mixed.cast(pa.float64()), pa.scalar(0.37)), mixed.cast(pa.string()), country]
        low = pc.bit_wise_and(ids, pa.scalar(1023)).cast(pa.int32())
        table.append(pa.Table.from_arrays([*columns, low], schema=schema))
    return table
