"""How many examples the tests that draw them at random try: few each time, many in `make deep`."""

from __future__ import annotations

import os

TIMES = int(os.environ.get("ALLUVIA_EXAMPLES") or 1)
"""`ALLUVIA_EXAMPLES=10` makes ten times as many of all. The first are the same, where seeds give them."""


def examples(count: int) -> int:
    """Return how many examples to try where the suite tries `count`."""
    return count * TIMES


def seeds_from(first: int, count: int) -> range:
    """Return the seeds to try where the suite tries `count`, from `first` on."""
    return range(first, first + examples(count))
