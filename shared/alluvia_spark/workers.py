"""Spark's Python workers, each of which carries out many tasks."""

from __future__ import annotations

import gc
from zipimport import zipimporter


def spare_later_tasks() -> None:
    """Spare this worker's later tasks 0.15 s and 0.02 s each.

    PySpark forgets at each task's start what all archives hold, and reads that of its own one 16 times. They stay as
    they are: a file that is added to a session has a path of its own. And at each task's end it has the collector look
    through all objects: it leaves out those of the modules.
    """
    zipimporter.invalidate_caches = lambda self: None  # type: ignore[method-assign]  # noqa: ARG005 - mypy wants its name
    if not gc.get_freeze_count():
        gc.freeze()
