"""`python -m tests.simulation.hunt 600 --first 7`: run seeds until one fails. Exits 1 then, and names it."""

from __future__ import annotations

import argparse
import itertools
import sys

from tests.simulation.runtime import simulated
from tests.simulation.seeds import say
from tests.simulation.world import Failure, run


def main() -> int:
    """Hunt over as many seeds as the argument says, and before them over those that are named."""
    parser = argparse.ArgumentParser(prog="hunt")
    parser.add_argument("seeds", type=int)
    parser.add_argument("--first", type=int, nargs="*", default=())
    given = parser.parse_args()
    with simulated():
        for number, seed in enumerate(itertools.chain(given.first, range(given.seeds)), 1):
            try:
                run(seed)
            except Failure as failure:
                say(f"seed {seed} ({number} seeds): {failure.rule}")
                return 1
    say(f"no seed of {given.seeds} fails")
    return 0


if __name__ == "__main__":
    sys.exit(main())
