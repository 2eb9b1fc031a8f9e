"""How far Spark has come, reported to what listens to this process's progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from threading import Event, Thread
from typing import TYPE_CHECKING

from alluvia.progress import listener, report

if TYPE_CHECKING:
    from pyspark import SparkContext, StatusTracker

EVERY_SECONDS = 0.5


@contextmanager
def stages_reported(context: SparkContext, files: int, size: int) -> Iterator[None]:
    """Report how far the stages of a job have come meanwhile, which reads some files of `size` bytes in all."""
    if listener() is None:
        yield
        return
    ended = Event()
    watch = Thread(
        target=copy_context().run, args=(report_stages, context.statusTracker(), ended, files, size), daemon=True
    )
    watch.start()
    try:
        yield
    finally:
        ended.set()
        watch.join()


def report_stages(tracker: StatusTracker, ended: Event, files: int, size: int) -> None:
    """Report the active stages every half second until the work has ended.

    The first one reads the files, each task about the same share of their bytes. Of the others, tasks are counted.
    """
    reading: int | None = None
    of = f"{files} file" if files == 1 else f"{files} files"
    while not ended.wait(EVERY_SECONDS):
        for stage in sorted(tracker.getActiveStageIds()):
            info = tracker.getStageInfo(stage)
            if info is None:
                continue
            reading = stage if reading is None else reading
            if stage == reading:
                report(f"reading {of}", size * info.numCompletedTasks // max(1, info.numTasks), size, "bytes")
            else:
                report(f"{of}: Spark stage {stage}", info.numCompletedTasks, info.numTasks, "tasks")
