"""What a job would do and cost, estimated from samples of its files, without Spark and without writing anything."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from math import ceil
from typing import NamedTuple

import pyarrow as pa

import alluvia
from alluvia.clock import Clock, SystemClock
from alluvia.delta.data_files.writer import sampled_share
from alluvia.delta.partitioning.partition import PARTITIONS_MAX, grouped
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import TableNotFound
from alluvia.events.ingest.values import Fields, Limits
from alluvia.prices import EMR_GB_HOUR_DOLLARS, EMR_VCPU_HOUR_DOLLARS, GET_DOLLARS, PUT_DOLLARS
from alluvia.store import MemoryStore, Store
from alluvia_spark.backfill_job.normalise import file_id, normalise
from alluvia_spark.sources.file_lists import folder_fields
from alluvia_spark.sources.files import FETCH_BYTES, BadFile, FileSplit, SourceFile, SourceOptions
from alluvia_spark.sources.formats import parquet_rows, read_blocks
from alluvia_spark.sources.lines import Block
from alluvia_spark.sources.manifest import Manifest, Portion, read_splits, write_manifest
from alluvia_spark.sources.places import Stores
from alluvia_spark.sources.source import list_files

SAMPLES = 32
SAMPLE_BYTES = 1 << 20
_SHARE_ROWS = 1 << 14

TEXT_BYTES_A_VCPU_SECOND = 20_000_000
"""As `python -m benchmarks backfill` measures it."""
CORES, MEMORY_GB, OVERHEAD_GB, DRIVER_GB = 4, 8, 6, 16
"""Of an executor: four workers in Python take up to three times their 256 MB of rows each, and Spark the rest."""
EXECUTORS_MAX = 15
"""What 64 vCPUs leave besides the driver."""
DISK_GB_MIN, DISK_GB_MAX, DISK_SHARE = 20, 200, 0.3
"""Of a worker's standard disk (EMR Serverless user guide, "Supported worker configurations"), and of a job's text what
its executors keep on theirs."""
APPLICATION_DISK_GB = 1280
"""The capacity of the stack's application (infra/backfill.py), a driver of the least size included."""
TASK_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Estimate:
    """The estimate of a job: bytes read and written, and cost. Bytes of text are those after decompression.

    partitions: those that the samples show, and as many more as these suggest. disk_gb is each executor's. spark are
    the properties that ask EMR Serverless for that. jobs: among how many jobs to divide the source, as the disks of the
    stack's application hold what one writes meanwhile; executors and disk_gb are then those of each job.
    """

    source_files: int
    source_bytes: int
    text_bytes: int
    rows: int
    rejects: int
    partitions: int
    files: int
    bytes: int
    vcpu_hours: float
    dollars: float
    executors: int
    memory_gb: int
    overhead_gb: int
    disk_gb: int
    sampled_files: int
    jobs: int
    spark: Mapping[str, str] = field(default_factory=dict)


class FileSample(NamedTuple):
    """What `read` of a file's `size` bytes hold: bytes of text, rows and rejects, bytes of Parquet, and partitions."""

    size: int
    read: float
    text: int
    rows: int
    rejects: int
    packed: float
    keys: frozenset[object]


def estimate(
    lake_uri: str,
    table: str,
    source: str,
    *,
    reading: SourceOptions,
    options: Mapping[str, str] | None = None,
    clock: Clock | None = None,
) -> Estimate:
    """Estimate a backfill of a table, or of one that would be created for it. Raises as `backfill.run` does."""
    given, clock = dict(options or {}), clock or SystemClock()
    try:
        snapshot = alluvia.connect(lake_uri, clock=clock, **given).table(table).snapshot()
    except TableNotFound:
        snapshot = alluvia.connect(f"memory://{clock.new_id()}", clock=clock).create_events(table).snapshot()
    store = MemoryStore()
    files = write_manifest(store, "manifest", list_files(source, clock, reading, **given))
    stores = Stores(clock, given)
    samples = []
    for row in range(0, len(files.sizes), max(1, len(files.sizes) // SAMPLES))[:SAMPLES]:
        [split] = read_splits(store, "manifest", Portion(row, 0, row, files.sizes[row]))
        samples.append(_sample(stores.open(split.file.root), split.file, reading, snapshot))
    return estimated(files, samples, snapshot.settings.target_file_size)


def _sample(store: Store, file: SourceFile, reading: SourceOptions, snapshot: Snapshot) -> FileSample:
    """Read the beginning of a file. What comes after a damage is as if it was not there."""
    blocks: list[Block] = []
    tables = [snapshot.schema.empty_table()]
    rejects, read, cut = 0, float(file.size), False
    convert = partial(
        normalise,
        schema=snapshot.schema,
        arrival_us=0,
        key=file_id(file.name),
        limits=Limits(),
        fields=Fields.of(snapshot),
        folders=folder_fields(file.key, snapshot.schema) if reading.hive else {},
    )
    with suppress(BadFile):  # what was read before the damage counts
        known = parquet_rows(store, file, reading.format)
        cut = known is None and file.size > SAMPLE_BYTES
        part = replace(file, size=SAMPLE_BYTES) if cut else file
        for block in read_blocks(
            store, FileSplit(part, 0, part.size), line_limit_bytes=SAMPLE_BYTES, kind=reading.format
        ):
            converted = convert(block)
            blocks.append(block)
            tables.append(converted.rows)
            rejects += len(converted.rejects)
            if known is not None and sum(len(each.data) for each in blocks) >= SAMPLE_BYTES:
                read = file.size * sum(each.events for each in blocks) / known
                break
        rejects -= cut and rejects > 0  # the line that the sample ends in
    rows = pa.concat_tables(tables).combine_chunks()
    groups = grouped(rows, snapshot.partition_spec)[0] if len(rows) else []
    packed = sampled_share(rows, snapshot.settings, _SHARE_ROWS) * rows.nbytes if groups else 0.0
    text = sum(len(block.data) for block in blocks)
    keys = frozenset((group.values, group.key) for group in groups)
    return FileSample(file.size, SAMPLE_BYTES if cut else read, text, len(rows), rejects, packed, keys)


def estimated(files: Manifest, samples: Iterable[FileSample], target_file_size: int) -> Estimate:
    """Return what samples of some files say about all. Pure."""
    samples = list(samples)
    factor = files.bytes / max(1, sum(sample.size for sample in samples))
    text, rows, rejects, packed = (
        round(factor * sum(getattr(each, name) * each.size / max(1.0, each.read) for each in samples))
        for name in ("text", "rows", "rejects", "packed")
    )
    partitions = _all_of(Counter(key for sample in samples for key in sample.keys))
    groups = max(1, partitions)
    ranges = partitions > PARTITIONS_MAX or packed > target_file_size
    if ranges and packed < groups * target_file_size:
        groups = 1
    count = groups * ceil(packed / groups / target_file_size)
    vcpu_hours = text / TEXT_BYTES_A_VCPU_SECOND / 3600
    needed_gb = DISK_SHARE * text / 1e9
    wanted = max(1, ceil(files.bytes / TASK_BYTES / CORES), ceil(needed_gb / DISK_GB_MAX))
    executors = min(EXECUTORS_MAX, wanted)
    most_gb = min(DISK_GB_MAX, (APPLICATION_DISK_GB - DISK_GB_MIN) // executors)
    disk = min(most_gb, max(DISK_GB_MIN, ceil(needed_gb / executors)))
    spark = {
        "spark.executor.cores": f"{CORES}",
        "spark.executor.memory": f"{MEMORY_GB}g",
        "spark.executor.memoryOverhead": f"{OVERHEAD_GB}g",
        "spark.emr-serverless.executor.disk": f"{disk}g",
        "spark.dynamicAllocation.maxExecutors": f"{executors}",
    }
    dollars = _dollars(vcpu_hours, executors) + requests_dollars(files, count)
    return Estimate(
        source_files=len(files.sizes),
        source_bytes=files.bytes,
        text_bytes=text,
        rows=rows,
        rejects=rejects,
        partitions=partitions,
        files=count,
        bytes=packed,
        vcpu_hours=round(vcpu_hours, 3),
        dollars=round(dollars, 2),
        executors=executors,
        memory_gb=MEMORY_GB,
        overhead_gb=OVERHEAD_GB,
        disk_gb=disk,
        sampled_files=len(samples),
        jobs=max(1, ceil(needed_gb / (executors * most_gb))),
        spark=spark,
    )


def _all_of(seen: Counter[object]) -> int:
    """Estimate how many different keys there are, by those that few samples have (Chao's estimator, bias-corrected)."""
    once, twice = (sum(count == number for count in seen.values()) for number in (1, 2))
    return len(seen) + once * (once - 1) // (2 * (twice + 1))


def _dollars(vcpu_hours: float, executors: int) -> float:
    """Return the price of the executors' work, and of a driver of their size meanwhile."""
    hours = vcpu_hours / (executors * CORES)
    gb_hours = hours * (executors * (MEMORY_GB + OVERHEAD_GB) + DRIVER_GB)
    return (vcpu_hours + hours * CORES) * EMR_VCPU_HOUR_DOLLARS + gb_hours * EMR_GB_HOUR_DOLLARS


def requests_dollars(files: Manifest, written: int) -> float:
    """Return the price of the requests to S3: a GET for each 8 MiB read, a PUT for each file written."""
    return sum(ceil(size / FETCH_BYTES) for size in files.sizes) * GET_DOLLARS + written * PUT_DOLLARS
