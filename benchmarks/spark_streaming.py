"""Streams into tables and out of them, compared with delta-spark's in the same session, in turns.

The sinks read the same files of events, one a batch. The sources read a table of as many commits into Spark's sink
`noop`, in one batch. A batch's seconds are those that Spark reports; those of the sinks are without the first batches
of a run, in which code is loaded. Requests are those of a batch of the sink, and of a commit that the source reads, on
an S3 server, without the start of a query.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

import alluvia_spark
from benchmarks.delta_session import session_with_delta
from benchmarks.report import Figure
from tests.s3server import S3Server

BATCHES, WARM_BATCHES = 8, 3
TURNS, WARM_TURNS = 2, 1
FORMATS = ("alluvia", "delta")
SIZES = (1_000, 100_000)
"""Events of a batch: few, so that it is mostly planning and commit, and many."""
REQUEST_BATCHES = (1, 2, 6)
"""Runs on the server. The first warms up; what the last has more than the second is that of the batches between."""
SECONDS_MAX = 600
COLUMNS = "event_id string, ts timestamp, path string, visitor long, status int, bytes long"

Run = Callable[[str, Path], list[float]]
"""A run of one format, with a folder of its own for what it leaves: the seconds of the batches that count."""


def figures(server: S3Server, folder: Path) -> list[Figure]:
    """Return the figures."""
    found = []
    with session_with_delta() as spark:
        alluvia_spark.register(spark)
        for size in SIZES:
            place = folder / str(size)
            _put_events(place / "in", size, BATCHES)
            tables = {each: str(place / "tables" / each) for each in FORMATS}
            for each, table in tables.items():
                _drained(_into(_events(spark, place / "in"), each, place / f"{each}-filled"), table)
            found += _compared(f"a stream into a table, {size:,} events a batch", size, place, partial(_sink, spark))
            rows = size * BATCHES
            found += _compared(f"a stream from a table, {rows:,} events", rows, place, partial(_source, spark, tables))
        found += _requests(spark, server, folder / "requests")
    return found


def _compared(what: str, size: int, place: Path, run: Run) -> list[Figure]:
    runs: dict[str, list[float]] = {each: [] for each in FORMATS}
    for turn in range(WARM_TURNS + TURNS):
        for each in FORMATS:
            taken = run(each, place / f"{each}-{what.split()[2]}-{turn}")
            if turn >= WARM_TURNS:
                runs[each] += taken
    ours, theirs = (median(runs[each]) for each in FORMATS)
    return [
        Figure(f"{what}: a batch", f"{ours:.3f} s", f"{theirs:.3f} s (delta-spark)", theirs / ours),
        Figure(f"{what}: rows a second", f"{size / ours:,.0f}", f"{size / theirs:,.0f} (delta-spark)", theirs / ours),
    ]


def _sink(spark: SparkSession, side: str, place: Path) -> list[float]:
    query = _drained(_into(_events(spark, place.parent / "in"), side, place), str(place / "table"))
    return _seconds(query, BATCHES)[WARM_BATCHES:]


def _source(spark: SparkSession, tables: dict[str, str], side: str, place: Path) -> list[float]:
    return _seconds(_caught_up(spark.readStream.format(side).load(tables[side]), place), 1)


def _events(spark: SparkSession, folder: Path) -> DataFrame:
    return spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", "1").json(str(folder))


def _into(rows: DataFrame, side: str, place: Path) -> DataStreamWriter:
    return rows.writeStream.format(side).option("checkpointLocation", str(place / "checkpoint"))


def _drained(stream: DataStreamWriter, table: str) -> StreamingQuery:
    """Write until nothing is left."""
    query = stream.trigger(availableNow=True).start(table)
    assert query.awaitTermination(SECONDS_MAX)
    return query


def _caught_up(rows: DataFrame, place: Path) -> StreamingQuery:
    """Read until nothing is left."""
    query = rows.writeStream.format("noop").option("checkpointLocation", str(place / "checkpoint")).start()
    query.processAllAvailable()
    query.stop()
    return query


def _seconds(query: StreamingQuery, batches: int) -> list[float]:
    """Return the seconds of each batch that had rows."""
    found = [each.durationMs["triggerExecution"] / 1000 for each in query.recentProgress if each.numInputRows]
    assert len(found) == batches
    return found


def _put_events(folder: Path, size: int, batches: int) -> None:
    folder.mkdir(parents=True)
    for batch in range(batches):
        with (folder / f"{batch:03}.json").open("w") as file:
            for n in range(batch * size, (batch + 1) * size):
                event = {
                    "event_id": f"e{n:09}",
                    "ts": f"2026-01-01T{n // 3600 % 24:02}:{n // 60 % 60:02}:{n % 60:02}Z",
                    "path": f"/page/{n * 7919 % 1000}",
                    "visitor": n * 2_654_435_761 % 1_000_003,
                    "status": 200 if n % 50 else 404,
                    "bytes": n * 7919 % 65_536,
                }
                file.write(json.dumps(event) + "\n")


def _requests(spark: SparkSession, server: S3Server, folder: Path) -> list[Figure]:
    """Return what a batch of the sink, and one of the source, asks of a store."""
    found: dict[str, list[Counter[str]]] = {"into": [], "from": []}
    for batches in REQUEST_BATCHES:
        place = folder / str(batches)
        _put_events(place / "in", SIZES[0], batches)
        table = f"s3://{server.new_bucket()}/lake/events"
        server.requests()
        _drained(_into(_events(spark, place / "in"), "alluvia", place).options(**server.options), table)
        found["into"].append(server.requests())
        _caught_up(spark.readStream.format("alluvia").options(**server.options).load(table), place / "read")
        found["from"].append(server.requests())
    _, few, many = REQUEST_BATCHES
    return [
        Figure(
            f"a stream {way} a table: requests of a {'batch' if way == 'into' else 'commit'}",
            _shares(more, less, many - few),
        )
        for way, (_, less, more) in found.items()
    ]


def _shares(more: Counter[str], less: Counter[str], batches: int) -> str:
    return ", ".join(f"{(more[each] - less[each]) / batches:.1f} {each}" for each in sorted(more))
