"""Running many seeds in one process, and saying how it went."""

from __future__ import annotations

import sys

from tests.simulation.runtime import simulated
from tests.simulation.world import Failure, Result, run


def say(text: str) -> None:
    """Print a line, now."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def run_seeds(seeds: range) -> list[tuple[int, str | None, int, int]]:
    """Run seeds in this process: seed, what went wrong, requests and versions of each."""
    found: list[tuple[int, str | None, int, int]] = []
    with simulated():
        for seed in seeds:
            wrong = None
            try:
                result: Result = run(seed)
            except Failure as failure:
                wrong, result = f"{failure.rule}: {failure.error}", failure.result
            found.append((seed, wrong, result.requests, result.versions))
    return found
