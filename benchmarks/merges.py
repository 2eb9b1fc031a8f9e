"""Merging: its speed and memory, what it costs when nothing is to be done, and what queries read after it."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

import alluvia
from alluvia.delta.log.actions import AddFile
from alluvia.delta.skipping.predicate import And, Comparison, Predicate
from benchmarks.measure import Run, in_processes, megabytes, milliseconds
from benchmarks.reads import bytes_read
from benchmarks.report import Figure
from benchmarks.tables import MADE_MS, OPEN, files
from benchmarks.tables import SCHEMA as LISTED
from tests.s3server import S3Server

FILES, FILE_ROWS = 100, 20_000
MEMORY_MB = 512
LISTED_FILES = 1_000_000
REPEATED_FILES, REPEATED_ROWS = 60, 125_000
REPEATS = 4
TIME = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [
        *(("event_id", pa.string()), ("ts", TIME), ("event", pa.string()), ("user", pa.int64())),
        *(("country", pa.string()), ("value", pa.float64()), ("properties", pa.string())),
    ]
)
FIRST = datetime(2024, 1, 1, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def figures(_: S3Server, folder: Path) -> list[Figure]:
    """Measure merges of 100 files, of repeated rows and of nothing among 1,000,000 files, and ten shapes of tables."""
    return [*_throughput(folder), *_repeated(folder), *_nothing_to_do(folder), *_shapes(folder)]


def rows(chance: random.Random, count: int, time: Callable[[], datetime]) -> pa.Table:
    """Return events at some times."""
    columns: list[Sequence[object]] = [
        [f"{chance.getrandbits(96):024x}" for _ in range(count)],
        [time() for _ in range(count)],
        [chance.choice(("click", "view", "buy", "signup")) for _ in range(count)],
        [chance.randrange(100_000) for _ in range(count)],
        [chance.choice(("de", "fr", "it", "jp", "us", "za")) for _ in range(count)],
        [chance.random() for _ in range(count)],
        [f'{{"page":"/p/{chance.randrange(1000)}","ref":"{chance.randrange(10)}"}}' for _ in range(count)],
    ]
    return pa.table(columns, schema=SCHEMA)


def _throughput(folder: Path) -> list[Figure]:
    chance = random.Random(1)
    table = alluvia.connect(str(folder)).create_table("base", SCHEMA, sort_by=["event", "ts"], properties=OPEN)
    for number in range(FILES):
        table.append(rows(chance, FILE_ROWS, partial(_in_order, chance, number)))
    read = sum(file.size for file in table.files)
    sides: dict[str, tuple[str, dict[str, object]]] = {
        "ours": ("merge_ours", {}),
        "limited": ("merge_ours", {"memory_mb": MEMORY_MB}),
        "copy": ("merge_copy", {"order": "event, ts"}),
        "compact": ("merge_deltalake", {}),
        "z_order": ("merge_deltalake", {"columns": ["event", "ts"]}),
    }
    runs: dict[str, list[Run]] = {name: [] for name in sides}
    for _ in range(REPEATS):
        for name, (action, arguments) in sides.items():
            shutil.rmtree(folder / name, ignore_errors=True)
            shutil.copytree(folder / "base", folder / name)
            runs[name].append(in_processes({name: (action, {"uri": str(folder / name), **arguments})}, 1)[name])
    seconds = {name: min(run.seconds for run in each) for name, each in runs.items()}
    cpu = {name: min(run.cpu_seconds for run in each) for name, each in runs.items()}
    memory = {name: min(run.peak_bytes for run in each) for name, each in runs.items()}
    size = {name: each[0].answer for name, each in runs.items()}
    what = f"Merge of {FILES} files, {megabytes(read)}, sorted"
    found = [
        Figure(f"{what}: time", milliseconds(seconds["ours"]), f"{milliseconds(seconds['copy'])} (DuckDB's COPY)",
               seconds["ours"] / seconds["copy"], "at most 1.11 times", seconds["ours"] <= seconds["copy"] / 0.9),
        Figure(f"{what}: CPU", milliseconds(cpu["ours"]), f"{milliseconds(cpu['copy'])} (DuckDB's COPY)",
               cpu["ours"] / cpu["copy"]),
        Figure(f"{what}: bytes written", megabytes(size["ours"]), f"{megabytes(size['copy'])} (DuckDB's COPY)",
               size["ours"] / size["copy"]),
        Figure(f"{what}, memory_mb={MEMORY_MB}: peak memory", megabytes(memory["limited"]),
               f"{megabytes(memory['ours'])} (without)", memory["limited"] / memory["ours"],
               bar="at most 512 MB", holds=memory["limited"] <= 512_000_000),
    ]  # fmt: skip
    for name in ("compact", "z_order"):
        found += [
            Figure(f"{what}: time, {name}", milliseconds(seconds["ours"]), milliseconds(seconds[name]),
                   seconds["ours"] / seconds[name]),
            Figure(f"{what}: peak memory, {name}", megabytes(memory["ours"]), megabytes(memory[name]),
                   memory["ours"] / memory[name]),
        ]  # fmt: skip
    return found


def _repeated(folder: Path) -> list[Figure]:
    """Merge files of rows that repeat: in memory they are thirty times as big as in the files."""
    chance = random.Random(2)
    lake = alluvia.connect(str(folder))
    table = lake.create_table("repeated", SCHEMA, partition_by=["day(ts)"], sort_by=["event", "ts"], properties=OPEN)
    few = rows(chance, 1000, lambda: FIRST + chance.randrange(20) * DAY)
    pq.write_table(few.take([chance.randrange(1000) for _ in range(REPEATED_ROWS)]), folder / "one.parquet")
    size = (folder / "one.parquet").stat().st_size
    last = FIRST + 20 * DAY
    bounds = {"minValues": {"ts": FIRST.isoformat()}, "maxValues": {"ts": last.isoformat()}}
    stats = orjson.dumps({"numRecords": REPEATED_ROWS, **bounds}).decode()
    adds = [
        AddFile(f"{at}.parquet", {}, size, MADE_MS + at, data_change=True, stats=stats) for at in range(REPEATED_FILES)
    ]
    for add in adds:
        (folder / "repeated" / add.path).hardlink_to(folder / "one.parquet")
    table.commit_files(adds)
    arguments = {"uri": str(folder / "repeated"), "memory_mb": MEMORY_MB}
    run = in_processes({"ours": ("merge_ours", arguments)}, 1)["ours"]
    name = (
        f"Merge of {REPEATED_FILES * REPEATED_ROWS:,} rows that repeat, by day, in {megabytes(REPEATED_FILES * size)}"
    )
    memory = run.peak_bytes
    return [
        Figure(f"{name}, memory_mb={MEMORY_MB}: peak memory", megabytes(memory),
               bar="at most 512 MB", holds=memory <= 512_000_000),
    ]  # fmt: skip


def _nothing_to_do(folder: Path) -> list[Figure]:
    properties = {**OPEN, "alluvia.target_file_size": "128 KB"}
    lake = alluvia.connect(str(folder))
    table = lake.create_table("listed", LISTED, partition_by=["day(ts)"], properties=properties)
    step = 20_000
    for start in range(0, LISTED_FILES, step):
        table.commit_files([_tagged(each) for each in files(start, start + step)])
    table.checkpoint()
    sides = {"ours": ("merge_nothing", {"uri": str(folder / "listed")})}
    run = in_processes(sides, 3)["ours"]
    name = f"Merge with nothing to do, {LISTED_FILES:,} files, opened cold"
    memory = run.peak_bytes
    return [
        Figure(f"{name}: CPU", milliseconds(run.cpu_seconds), "", None, "1 s", run.cpu_seconds < 1),
        Figure(f"{name}: peak memory", megabytes(memory), "", None, "200 MB", memory < 200_000_000),
    ]


def _tagged(file: AddFile) -> AddFile:
    day = file.partition_values["day"]
    return replace(file, partition_values={}, tags={"alluvia.partition": f'{{"day(ts)":"{day}"}}'})


@dataclass(frozen=True, slots=True)
class Shape:
    """A table, the times of each of its batches, and the conditions by which it is read."""

    name: str
    partition_by: tuple[str, ...]
    sort_by: tuple[str, ...]
    time: Callable[[random.Random, int], datetime]
    reads: Callable[[int], Predicate]
    deletes: str | None = None


def _between(start: datetime, length: timedelta) -> Predicate:
    return And((Comparison(("ts",), ">=", start), Comparison(("ts",), "<", start + length)))


def _is(column: str, value: object) -> Predicate:
    return Comparison((column,), "=", value)


def _in_order(chance: random.Random, batch: int) -> datetime:
    return FIRST + (batch + chance.random()) * HOUR


def _late(chance: random.Random, batch: int) -> datetime:
    return _in_order(chance, batch) - (timedelta(days=chance.randrange(60)) if chance.random() < 0.1 else 0 * DAY)


def _backfill(chance: random.Random, _: int) -> datetime:
    return FIRST + chance.random() * 400 * DAY


def _hour(at: int) -> Predicate:
    return _between(FIRST + at * HOUR, HOUR)


def _day(at: int) -> Predicate:
    return _between(FIRST + (at % 2) * DAY, DAY)


def _some_day(at: int) -> Predicate:
    return _between(FIRST + 8 * at * DAY, DAY)


def _user(at: int) -> Predicate:
    return _is("user", at * 2000)


def _country(at: int) -> Predicate:
    return _is("country", ("de", "jp", "us")[at % 3])


BATCHES, BATCH_ROWS = 40, 2_000
SHAPES = (
    Shape("not partitioned, by time", (), ("ts",), _in_order, _hour),
    Shape("not partitioned, by user", (), ("user",), _in_order, _user),
    Shape("day(ts), in order", ("day(ts)",), ("user",), _in_order, _day),
    Shape("day(ts), with late events", ("day(ts)",), ("ts",), _late, lambda at: _between(FIRST - at * DAY, DAY)),
    Shape("day(ts), a backfill of 400 days", ("day(ts)",), ("ts",), _backfill, _some_day),
    Shape("hour(ts), a backfill of 400 days", ("hour(ts)",), ("ts",), _backfill, _some_day),
    Shape("month(ts), a backfill of 400 days", ("month(ts)",), ("ts",), _backfill, _some_day),
    Shape("country, day(ts)", ("country", "day(ts)"), ("ts",), _in_order, lambda at: And((_country(at), _day(at)))),
    Shape("bucket(16, user)", ("bucket(16, user)",), ("user",), _in_order, _user),
    Shape("day(ts), half of it deleted", ("day(ts)",), ("user",), _late, _day, "value < 0.5"),
)


def _shapes(folder: Path) -> list[Figure]:
    return [figure for number, shape in enumerate(SHAPES) for figure in _shape(folder / f"shape{number}", shape)]


def _shape(folder: Path, shape: Shape) -> Iterator[Figure]:
    chance = random.Random(shape.name)
    properties = {**OPEN, "alluvia.target_file_size": "1 MB", "alluvia.row_group_rows": str(BATCH_ROWS)}
    table = alluvia.connect(str(folder)).create_table(
        "ours", SCHEMA, partition_by=shape.partition_by, sort_by=shape.sort_by, properties=properties
    )
    for batch in range(BATCHES):
        table.append(rows(chance, BATCH_ROWS, partial(shape.time, chance, batch)))
    if shape.deletes is not None:
        table.delete(shape.deletes)
    shutil.copytree(folder / "ours", folder / "compact")
    queries = [shape.reads(at) for at in range(20)]
    before, files_before = bytes_read(table, queries), len(table.files)
    table.optimize()
    after = bytes_read(table, queries)
    DeltaTable(folder / "compact").optimize.compact(target_size=1 << 20)
    theirs = bytes_read(alluvia.open_table(str(folder / "compact")), queries)
    never_more = all(now <= then for then, now in zip(before, after, strict=True))
    yield Figure(
        f"20 queries, {shape.name}: bytes after a merge of {files_before} files into {len(table.files)}",
        f"{megabytes(sum(after))} (before: {megabytes(sum(before))})",
        f"{megabytes(sum(theirs))} (compact)",
        sum(after) / max(1, sum(theirs)),
        "none reads more than before",
        never_more,
    )
