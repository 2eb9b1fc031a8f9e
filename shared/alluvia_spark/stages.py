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
def stages_reported(context: SparkContext) -> Iterator[None]:
    """Report the tasks of the stages that run meanwhile."""
    if listener() is None:
        yield
        return
    ended = Event()
    watch = Thread(target=copy_context().run, args=(report_stages, context.statusTracker(), ended), daemon=True)
    watch.start()
    try:
        yield
    finally:
        ended.set()
        watch.join()


def report_stages(tracker: StatusTracker, ended: Event) -> None:
    """Report the active stages every half second until the work has ended."""
    while not ended.wait(EVERY_SECONDS):
        for stage in tracker.getActiveStageIds():
            info = tracker.getStageInfo(stage)
            if info is not None:
                report(f"Spark stage {stage}", info.numCompletedTasks, info.numTasks, "tasks")
