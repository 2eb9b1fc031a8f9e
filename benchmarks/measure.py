"""Measuring two sides fairly: turn by turn, so that whatever else the machine does hits both, and the best of several.

Memory is that of a fresh process from its start, imports included; time is that of the action alone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).parent.parent


@dataclass(frozen=True, slots=True)
class Run:
    """The best of several runs: `seconds` of the action, `process_seconds` with its imports, `peak_bytes` of memory.

    `cpu_seconds` are those of the action, of all threads together.
    """

    seconds: float
    process_seconds: float
    cpu_seconds: float
    peak_bytes: int
    answer: Any = None


def in_processes(actions: Mapping[str, tuple[str, Mapping[str, Any]]], repeats: int) -> dict[str, Run]:
    """Run actions of `child`, by name and arguments, each in a fresh process, in turns; return the best of each."""
    found: dict[str, list[Run]] = {name: [] for name in actions}
    for _ in range(repeats):
        for name, (action, arguments) in actions.items():
            command = [sys.executable, "-m", "benchmarks.child", action, json.dumps(arguments)]
            done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=600)
            found[name].append(Run(**json.loads(done.stdout)))
    return {name: best(runs) for name, runs in found.items()}


def best(runs: list[Run]) -> Run:
    """Return the best of several runs, which must agree on the answer, in each respect."""
    assert all(run.answer == runs[0].answer for run in runs)
    return Run(
        min(run.seconds for run in runs),
        min(run.process_seconds for run in runs),
        min(run.cpu_seconds for run in runs),
        min(run.peak_bytes for run in runs),
        runs[0].answer,
    )


def in_turns(actions: Mapping[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """Run actions in this process, in turns, and return the seconds of each run."""
    found: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(repeats):
        for name, action in actions.items():
            started = time.perf_counter()
            action()
            found[name].append(time.perf_counter() - started)
    return found


def medians(seconds: Mapping[str, list[float]]) -> dict[str, float]:
    """Return the median of each action's seconds."""
    return {name: median(each) for name, each in seconds.items()}


def megabytes(size: int) -> str:
    """Return a size as text."""
    if size < 1_000_000:
        return f"{size / 1e3:.0f} kB"
    return f"{size / 1e6:.1f} MB" if size < 10_000_000 else f"{size / 1e6:.0f} MB"


def milliseconds(seconds: float) -> str:
    """Return a time as text."""
    return f"{1000 * seconds:.1f} ms" if seconds < 0.1 else f"{1000 * seconds:.0f} ms"
