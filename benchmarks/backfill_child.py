"""Backfills against bare Spark jobs, in one process with one Spark.

`python -m benchmarks.backfill_child FOLDER PAIRS SIDE…` prints JSON: for each side, its seconds and CPU seconds, turn
by turn, and what was in memory at most. `python -m benchmarks.backfill_child FOLDER cold SIDE BEGAN` does one, with
the start of Python, Java and Spark, and prints its seconds since the moment BEGAN and its CPU seconds.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, to_date

import alluvia
from alluvia_spark import backfill
from alluvia_spark.session import QUICK_JAVA, session
from benchmarks.backfills import COLUMNS
from benchmarks.delta_session import session_with_delta

TICKS = os.sysconf("SC_CLK_TCK")
FIELDS = "event_id string, ts timestamp, event string, source string, ip string, user string, path string, "
FIELDS += "status long, bytes long, agent string"


def main(folder: Path, pairs: int, names: Sequence[str]) -> None:
    """Run each side once without counting it, then all in turns."""
    with session_with_delta() as spark:
        sides: dict[str, Callable[[Path], None]] = {
            "ours": lambda source: _ours(spark, folder / "lake", source),
            "odd": lambda source: _ours(spark, folder / "lake", source.with_name("odd")),
            "alike": lambda source: _alike(_events(spark, source), folder / "out"),
            "plain": lambda source: _events(spark, source).write.parquet(str(folder / "out")),
            "delta": lambda source: _events(spark, source).write.format("delta").save(str(folder / "out")),
        }
        sides = {name: sides[name] for name in names}
        found: dict[str, list[list[float]]] = {name: [] for name in sides}
        for turn in range(-1, pairs):
            for name, side in sides.items():
                for path in ("lake", "out"):
                    shutil.rmtree(folder / path, ignore_errors=True)
                began, cpu = time.perf_counter(), _cpu_seconds()
                side(folder / "in")
                if turn >= 0:
                    found[name].append([time.perf_counter() - began, _cpu_seconds() - cpu])
        workers = max(peak_bytes(pid) for pid in _tree() if "pyspark.daemon" in _command(pid))
        sys.stdout.write(json.dumps({"sides": found, "workers": workers, "driver": peak_bytes(os.getpid())}))


def cold(folder: Path, name: str, began: float) -> None:
    """Do one side in a new process, with the session that `alluvia backfill` has, or a plain one.

    What Spark took is read before it stops: nobody waits for its Python workers, so their CPU time goes with them.
    """
    for path in ("lake", "out"):
        shutil.rmtree(folder / path, ignore_errors=True)
    with session(cores=2, settings=QUICK_JAVA if name == "ours" else None) as spark:
        if name == "ours":
            _ours(spark, folder / "lake", folder / "in")
        else:
            _events(spark, folder / "in").write.parquet(str(folder / "out"))
        sys.stdout.write(json.dumps([time.time() - began, _cpu_seconds()]))


def _ours(spark: SparkSession, lake: Path, source: Path) -> None:
    alluvia.connect(str(lake)).create_events("events", COLUMNS)
    report = backfill.run(str(lake), "events", str(source), spark=spark)
    assert report.rows
    assert report.rejects == 0


def _events(spark: SparkSession, source: Path) -> DataFrame:
    return spark.read.schema(FIELDS).json(str(source))


def _alike(events: DataFrame, out: Path) -> None:
    once = events.dropDuplicates(["event_id"]).withColumn("day", to_date(col("ts"))).repartition("day")
    ordered = once.sortWithinPartitions("day", "event", "ts")
    ordered.write.partitionBy("day").option("compression", "zstd").parquet(str(out))


def _tree() -> Iterator[int]:
    """Yield this process and all that it has started."""
    parents = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                parents[int(entry.name)] = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    wanted = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in wanted} - wanted:
        wanted |= more
    yield from wanted


def _cpu_seconds() -> float:
    """Return the CPU time of all processes, those included that have ended."""
    total = 0
    for pid in _tree():
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / TICKS


def peak_bytes(pid: int) -> int:
    """Return how much memory a process has had at most."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM"))


def _command(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")


if __name__ == "__main__":
    if sys.argv[2] == "cold":
        cold(Path(sys.argv[1]), sys.argv[3], float(sys.argv[4]))
    else:
        main(Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3:])
