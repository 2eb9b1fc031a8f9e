"""Processes that start in a moment: each is forked from one that has imported what they need, and did nothing else."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from multiprocessing.context import ForkServerProcess

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        *("tests.contract.workers", "tests.processes.worker"),
        *(
            "alluvia.operations.rows.where_edits",
            "alluvia.operations.compaction.optimize",
            "alluvia.operations.retention.vacuum",
        ),
    ]
)


def started(work: Callable[..., None], *arguments: object) -> ForkServerProcess:
    """Start a process that does `work`, a function of a module, with arguments that can be pickled."""
    process = _CONTEXT.Process(target=work, args=arguments, daemon=True)
    process.start()
    return process
