"""A run of a pipeline after 1% of a source changed, over S3, compared with a full refresh: rows, requests and time.

The events have 1,000 files of 100 days, and a feed of changes by key 1,000 files. The change is of one day, and of keys
that came together, as it is in most sources: units that are spread over all files read all files.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import TypeVar

import pyarrow as pa

import alluvia
from alluvia.operations.reading.relations import Evaluate, Files, Relation
from alluvia.pipelines.pipeline import Pipeline
from benchmarks.measure import milliseconds
from benchmarks.report import Figure
from benchmarks.requests import count, shown
from tests.s3server import S3Server

DAYS, FILES_A_DAY, ROWS = 100, 10, 1_000
KEYS_A_FILE, FEED_FILES = 100, 1_000
REPEATS = 3
EVENTS = pa.schema(
    [("ts", pa.timestamp("us", "UTC")), ("visitor", pa.string()), ("page", pa.string()), ("ms", pa.int64())]
)
FEED = pa.schema([("k", pa.int64()), ("seq", pa.int64()), ("op", pa.string()), ("value", pa.string())])
DECLARED = {
    "append": "SELECT ts, visitor, page FROM events WHERE ms < 900",
    "aggregate, folded": "SELECT ts::DATE AS day, page, count(*) AS hits, sum(ms) AS ms FROM events GROUP BY day, page",
    "aggregate, computed again": "SELECT ts::DATE AS day, count(DISTINCT visitor) AS visitors FROM events GROUP BY day",
    "keyed, sessions of a day": """WITH marked AS (
          SELECT ts::DATE AS day, visitor, ts, ms,
            CASE WHEN ts - lag(ts) OVER w < INTERVAL 30 MINUTE THEN 0 ELSE 1 END AS starts
          FROM events WINDOW w AS (PARTITION BY ts::DATE, visitor ORDER BY ts, ms)),
        numbered AS (SELECT *, sum(starts) OVER (PARTITION BY day, visitor ORDER BY ts, ms) AS session FROM marked)
        SELECT day, visitor, session, min(ts) AS begins, count(*) AS views FROM numbered
        GROUP BY day, visitor, session""",
    "changes by key, SCD 1": "SELECT k, seq, op, value FROM feed",
    "changes by key, SCD 2": "SELECT k, seq, op, value FROM feed",
}
_CHANGES = "PARTITIONED BY (truncate(k, 1000)) KEY (k) SEQUENCE BY seq DELETE WHEN op = 'd'"
OPTIONS = {
    "keyed, sessions of a day": "KEY (day, visitor, session) PARTITIONED BY (day)",
    "aggregate, folded": "PARTITIONED BY (day)",
    "changes by key, SCD 1": f"{_CHANGES} WITH (alluvia.target_file_size = '2 kb')",
    "changes by key, SCD 2": f"{_CHANGES} SCD TYPE 2 WITH (alluvia.target_file_size = '2 kb')",
}
T = TypeVar("T")


class CountedRows:
    """Computes relations, and counts the rows of the files that they read."""

    def __init__(self, evaluate: Evaluate) -> None:
        self._evaluate = evaluate
        self.rows = 0

    def __call__(self, relation: Relation, take: Callable[[pa.Schema, Iterator[pa.RecordBatch]], T]) -> T:
        """Return what `take` returns."""
        read = [each for each in relation.inputs.values() if isinstance(each, Files)]
        self.rows += sum(file.num_records or 0 for each in read for file in each.files)
        return self._evaluate(relation, take)


def figures(server: S3Server, folder: Path) -> list[Figure]:
    """Measure a run after 1% more rows, and a full refresh, for each kind of table."""
    uri = f"s3://{server.new_bucket()}"
    lake = alluvia.connect(uri, **server.options)
    chance = random.Random(1)
    make_sources(lake, chance)
    found = []
    for number, (name, query) in enumerate(DECLARED.items()):
        file = folder / f"t{number}.sql"
        file.write_text(f"CREATE TABLE t{number} {OPTIONS.get(name, '')} AS {query}")
        assert [each.error for each in lake.pipeline(file).run()] == [None]
        rows: dict[str, int] = {}
        requests: dict[str, Counter[str]] = {}
        seconds: dict[str, list[float]] = {"run": [], "full": []}
        for repeat in range(REPEATS):
            change(lake, chance, number * REPEATS + repeat)
            for what in ("run", "full"):
                cold = alluvia.connect(uri, **server.options)
                counted = CountedRows(cold.evaluation())
                pipeline = Pipeline(cold.catalog, lambda: counted, cold.pipeline(file).declarations)  # noqa: B023
                began = time.perf_counter()
                requests[what] = count(server, lambda: reports(pipeline, what))  # noqa: B023
                seconds[what].append(time.perf_counter() - began)
                rows[what] = counted.rows
        found += _figures(name, rows, requests, {what: median(each) for what, each in seconds.items()})
    return found


def reports(pipeline: Pipeline, what: str) -> None:
    """Run a pipeline of one table, or refresh it in full."""
    (report,) = pipeline.run(full_refresh=what == "full")
    assert report.error is None
    assert report.mode in {"run": ("appended", "changed"), "full": ("rebuilt",)}[what]


def _figures(
    name: str, rows: dict[str, int], requests: dict[str, Counter[str]], seconds: dict[str, float]
) -> list[Figure]:
    said, full = f"Run of a pipeline after 1% more rows, {name}", "(full refresh)"
    fewer, asked = rows["run"] / rows["full"], requests["run"].total() / requests["full"].total()
    ratio = seconds["run"] / seconds["full"]
    return [
        Figure(f"{said}: rows read", f"{rows['run']:,}", f"{rows['full']:,} {full}", fewer, "at most 0.05 times",
               fewer <= 0.05),
        Figure(f"{said}: requests", shown(requests["run"]), f"{shown(requests['full'])} {full}", asked,
               "at most 0.05 times", asked <= 0.05),
        Figure(f"{said}: time", milliseconds(seconds["run"]), f"{milliseconds(seconds['full'])} {full}", ratio,
               "below 0.5 times", ratio < 0.5),
    ]  # fmt: skip


def make_sources(lake: alluvia.Lake, chance: random.Random) -> None:
    """Create `events`, with files of one day each, and `feed`, with files of keys in their order."""
    events = lake.create_table("events", EVENTS, partition_by=["day(ts)"])
    writer = events._handle.writer(events.snapshot())
    days = [day for day in range(DAYS) for _ in range(FILES_A_DAY)]
    events.commit_files([file for day in days for file in writer.write(rows_of(chance, day, ROWS))])
    events.checkpoint()
    feed = lake.create_table("feed", FEED)
    writer = feed._handle.writer(feed.snapshot())
    firsts = [KEYS_A_FILE * at for at in range(FEED_FILES)]
    feed.commit_files([file for first in firsts for file in writer.write(changes_of(first, first, KEYS_A_FILE))])
    feed.checkpoint()


def change(lake: alluvia.Lake, chance: random.Random, number: int) -> None:
    """Append 1% to each source: rows of one day, and newer changes of keys that came together."""
    lake["events"].append(rows_of(chance, DAYS - 1 - number, DAYS * FILES_A_DAY * ROWS // 100))
    keys = KEYS_A_FILE * FEED_FILES // 100
    lake["feed"].append(changes_of(keys * (99 - number), KEYS_A_FILE * FEED_FILES * (number + 2), keys))


def rows_of(chance: random.Random, day: int, number: int) -> pa.Table:
    """Return events of a day."""
    start = datetime(2026, 1, 1, tzinfo=UTC) + timedelta(day)
    columns = [
        pa.array([start + timedelta(seconds=chance.randrange(86_400)) for _ in range(number)], EVENTS[0].type),
        pa.array([f"v{chance.randrange(100)}" for _ in range(number)]),
        pa.array([f"/page/{chance.randrange(50)}" for _ in range(number)]),
        pa.array([chance.randrange(1000) for _ in range(number)], pa.int64()),
    ]
    return pa.Table.from_arrays(columns, schema=EVENTS)


def changes_of(first: int, sequence: int, number: int) -> pa.Table:
    """Return a change of each of some keys."""
    keys = range(first, first + number)
    columns = [
        pa.array(keys, pa.int64()),
        pa.array(range(sequence, sequence + number), pa.int64()),
        pa.array(["u"] * number),
        pa.array([f"value {key}" for key in keys]),
    ]
    return pa.Table.from_arrays(columns, schema=FEED)
