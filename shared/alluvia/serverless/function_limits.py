"""Whether the limits of a function hold the upkeep of a table, by the table's log alone.

The rates are lower than measured ones (`python -m benchmarks merges vacuums`), since functions read from S3.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from alluvia.lazy_dataclasses import dataclass
from alluvia.scratch import scratch_root
from alluvia.serverless.rounds import MARGIN_MS, remaining_ms
from alluvia.serverless.settings import number

if TYPE_CHECKING:
    from alluvia.operations.compaction.optimize_plan import FileGroup

MERGED_BYTES_A_SECOND = 25_000_000
LISTED_OBJECTS_A_SECOND = 5_000
INFLATED = 4
"""Rows take about this many times as much in memory, and on the disk when they are sorted there, as in files."""
RUNS_MAX = 4
"""A function may do a table's work in this many runs. For more, Spark is faster and costs less than waiting."""
NO_LIMIT = 1 << 62
BYTES_A_FILE = 180
"""The memory for each file of a table whose objects are compared with its log."""


@dataclass(frozen=True, slots=True)
class FunctionLimits:
    """The seconds of a run, memory for work and the disk, in bytes."""

    seconds: float
    memory_bytes: int
    disk_bytes: int


def process_memory_mb(environment: Mapping[str, str]) -> int | None:
    """Return how much memory the process may take, in MB: nine tenths of a Lambda function's; None outside: any."""
    function_mb = number(environment, "AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "MB", None)
    return None if function_mb is None else function_mb * 9 // 10


def seconds_left(context: object) -> float:
    """Return how long work may take, so that there is time to record how it ended."""
    return max(1.0, (remaining_ms(context) - MARGIN_MS) / 1000)


def limits_of(context: object, environment: Mapping[str, str], memory_mb: int | None = None) -> FunctionLimits:
    """Return the limits of this invocation; outside Lambda, time and memory have none.

    `memory_mb` is how much the process may take, by default all that the function has.
    """
    memory = memory_mb or number(environment, "AWS_LAMBDA_FUNCTION_MEMORY_SIZE", "MB", None)
    return FunctionLimits(
        seconds=max(0.0, remaining_ms(context) - MARGIN_MS) / 1000,
        memory_bytes=NO_LIMIT if memory is None else memory * 1_000_000,
        disk_bytes=shutil.disk_usage(scratch_root()).total,
    )


def too_big_to_merge(groups: Sequence[FileGroup], limits: FunctionLimits) -> str | None:
    """Return why a function should not rewrite groups of files; None if it can."""
    biggest = max(groups, key=lambda group: group.size)
    spilled = max(0, INFLATED * biggest.size - limits.memory_bytes)
    disk = max(group.size + group.weight for group in groups) + spilled
    if disk > limits.disk_bytes:
        return f"a group of files needs about {disk} bytes of disk to be sorted, and there are {limits.disk_bytes}"
    seconds = biggest.size / MERGED_BYTES_A_SECOND
    if seconds > limits.seconds:
        return f"a group of files takes about {seconds:.0f} s, and a run has {limits.seconds:.0f} s"
    total = sum(group.size for group in groups)
    return _too_long(total / MERGED_BYTES_A_SECOND, limits, f"{len(groups)} groups of files")


def too_big_to_vacuum(files: int, limits: FunctionLimits) -> str | None:
    """Return why a function should not vacuum a table with a number of files in its log; None if it can."""
    memory = files * BYTES_A_FILE
    if memory > limits.memory_bytes:
        return f"{files} files need about {memory} bytes of memory, and there are {limits.memory_bytes}"
    return _too_long(files / LISTED_OBJECTS_A_SECOND, limits, f"the listing of {files} files")


def _too_long(seconds: float, limits: FunctionLimits, what: str) -> str | None:
    if seconds <= RUNS_MAX * limits.seconds:
        return None
    return f"{what} takes about {seconds:.0f} s, more than {RUNS_MAX} runs of {limits.seconds:.0f} s"
