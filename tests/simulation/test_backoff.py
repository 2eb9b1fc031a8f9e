"""Writers of one table in a closed loop: none waits much longer than the others, and nobody is slower alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import TypeVar

import pytest

from alluvia.api.lake import Lake
from alluvia.store import MemoryStore, Store, Wrapper
from tests.simulation.runtime import running, simulated
from tests.simulation.scheduler import Scheduler, SimulatedClock

T = TypeVar("T")
WRITERS = 8
SECONDS = 30
PUT_US, GET_US = 30_000, 15_000
"""What a request takes on average, about as on S3; each from 0.7 to 1.6 times that."""


class SlowStore(Wrapper):
    """Requests take time, of which a part comes before they take effect."""

    def __init__(self, inner: Store, scheduler: Scheduler, clock: SimulatedClock) -> None:
        super().__init__(inner)
        self._scheduler = scheduler
        self._clock = clock

    def request(self, kind: str, key: str, send: Callable[[], T]) -> T:
        took_us = int((PUT_US if kind.startswith("put") else GET_US) * (0.7 + 0.9 * self._clock.uniform()))
        self._scheduler.wait(took_us * 6 // 10)
        try:
            return send()
        finally:
            self._scheduler.wait(took_us * 4 // 10)


def waits(seed: int, writers: int) -> list[int]:
    """Return how long each append took, those under way at the end included, in simulated µs."""
    scheduler = Scheduler(1_700_000_000_000_000)
    shared = MemoryStore("backoff")
    end_us = scheduler.now_us + SECONDS * 1_000_000
    taken: list[int] = []
    with simulated(), running(scheduler):
        Lake(shared, SimulatedClock(scheduler, f"{seed}", 0)).create_table(
            "t", {"n": "long"}, properties={"delta.checkpointInterval": "1000"}
        )

        def write(number: int) -> None:
            clock = SimulatedClock(scheduler, f"{seed}/{number}", 0)
            table = Lake(SlowStore(shared, scheduler, clock), clock).table("t")
            while (began_us := scheduler.now_us) < end_us:
                table.append([{"n": number}])
                taken.append(scheduler.now_us - began_us)

        for number in range(writers):
            scheduler.spawn(f"writer {number}", partial(write, number), number * 7_000)
        scheduler.run()
    return taken


@pytest.mark.parametrize("seed", range(4))
def test_no_writer_waits_much_longer_than_the_others(seed: int) -> None:
    taken = waits(seed, WRITERS)
    assert max(taken) < 6 * median(taken)
    assert len(taken) > 10 * SECONDS


def test_a_writer_alone_never_gives_way() -> None:
    taken = waits(0, 1)
    assert max(taken[1:]) <= 2 * 1.6 * PUT_US
