"""`python -m tests.simulation --seeds 1000 --from 0`: run seeds on all cores; on a failure, a minimised history."""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections.abc import Iterator

from tests.simulation.minimise import minimise, story
from tests.simulation.runtime import simulated
from tests.simulation.seeds import run_seeds, say
from tests.simulation.world import Failure, run

CHUNK = 10


def chunks(first: int, number: int) -> Iterator[range]:
    """Yield the seeds in small portions."""
    for start in range(first, first + number, CHUNK):
        yield range(start, min(start + CHUNK, first + number))


def main() -> int:
    """Run what the arguments say; 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="simulate")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--from", type=int, default=0, dest="first")
    parser.add_argument("--workers", type=int, default=multiprocessing.cpu_count())
    given = parser.parse_args()
    began, done, requests, versions = time.monotonic(), 0, 0, 0
    with multiprocessing.get_context("spawn").Pool(given.workers) as pool:
        for portion in pool.imap(run_seeds, chunks(given.first, given.seeds)):
            for seed, wrong, asked, made in portion:
                done, requests, versions = done + 1, requests + asked, versions + made
                if wrong is not None:
                    pool.terminate()
                    return report(seed, wrong)
            if sys.stderr.isatty():
                sys.stderr.write(f"\r{done} seeds")
    took = time.monotonic() - began
    say(f"{done} seeds from {given.first} hold: {done / took:.1f} a second, {requests} requests, {versions} versions")
    return 0


def report(seed: int, wrong: str) -> int:
    """Print a failing seed and the smallest history that fails like it."""
    say(f"seed {seed} fails: {wrong}\nminimising…")
    with simulated():
        try:
            run(seed)
        except Failure as failure:
            say(story(*minimise(failure)))
            return 1
    say(f"seed {seed} does not fail again: the run is not deterministic")
    return 1


if __name__ == "__main__":
    sys.exit(main())
