"""`python -m tests.simulation.hunt 600`: run seeds until one fails. Exits 1 then, and names it."""

from __future__ import annotations

import sys

from tests.simulation.runtime import simulated
from tests.simulation.seeds import say
from tests.simulation.world import Failure, run


def main() -> int:
    """Hunt over as many seeds as the argument says."""
    seeds = int(sys.argv[1])
    with simulated():
        for seed in range(seeds):
            try:
                run(seed)
            except Failure as failure:
                say(f"seed {seed} ({seed + 1} seeds): {failure.rule}")
                return 1
    say(f"no seed of {seeds} fails")
    return 0


if __name__ == "__main__":
    sys.exit(main())
