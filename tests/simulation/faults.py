"""What can go wrong with a request, and how often: drawn from a seed, or left out while a failure is made smaller."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 60 * MINUTE_US

KINDS = (
    "lost before",
    "lost after",
    "500 before",
    "500 after",
    "503",
    "409",
    "412 for one's own",
    "delayed",
    "pause before",
    "pause after",
    "crash before",
    "crash after",
)
"""`before` and `after` the effect. `lost`: a broken connection or a time-out. `delayed`: a write whose answer was lost,
and which takes effect minutes later."""

DELAY_US_MAX = 10 * MINUTE_US
"""How long a request may be under way: a network forgets it after that."""
PAUSE_US_MAX = 60 * HOUR_US
PATIENCE = 0.35
"""The share of pauses that last hours, so that a writer sleeps past the log's retention."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault. `index` counts the requests of the actor that meets it."""

    kind: str
    actor: str
    index: int
    length_us: int = 0

    @property
    def name(self) -> str:
        """Return what a smaller history leaves out by."""
        return f"{self.actor}#{self.index}"


@dataclass(frozen=True)
class Without:
    """What a run leaves out of what its seed says."""

    kinds: frozenset[str] = frozenset()
    faults: frozenset[str] = frozenset()
    actors: frozenset[str] = frozenset()
    steps: Mapping[str, int] = field(default_factory=dict)
    skews: bool = False


class FaultSource:
    """The faults of one actor, by the number of its request. Leaving one out moves no other."""

    def __init__(self, seed: str, actor: str, rates: Mapping[str, float], without: Without) -> None:
        self._random = random.Random(f"{seed} faults {actor}")
        self._actor = actor
        self._rates = rates
        self._without = without
        self.index = 0

    def next(self, *, conditional: bool, write: bool) -> tuple[Fault | None, int]:
        """Return what befalls the next request, and how long it takes in us."""
        self.index += 1
        chance, speed, length = self._random.random(), self._random.random(), self._random.random()
        latency_us = int(4_000 + 60_000 * speed**4)
        for kind, rate in self._rates.items():
            chance -= rate
            if chance < 0:
                return self._allowed(kind, length, conditional=conditional, write=write), latency_us
        return None, latency_us

    def _allowed(self, kind: str, length: float, *, conditional: bool, write: bool) -> Fault | None:
        if kind in ("409", "412 for one's own") and not conditional:
            kind = "503"
        if kind == "delayed" and not write:
            kind = "lost before"
        length_us = 0
        if kind == "delayed":
            length_us = int(DELAY_US_MAX * length**3)
        elif kind.startswith("pause"):
            long = length < PATIENCE
            length_us = int(PAUSE_US_MAX * (length / PATIENCE)) if long else int(5 * MINUTE_US * length**4)
        fault = Fault(kind, self._actor, self.index, length_us)
        if kind in self._without.kinds or fault.name in self._without.faults:
            return None
        return fault


def draw_rates(chance: random.Random) -> dict[str, float]:
    """Return how often each kind of fault comes in one run: some runs are calm, some have only a few kinds."""
    mood = chance.random()
    if mood < 0.1:
        return {}
    few = set(chance.sample(KINDS, chance.randint(1, 4))) if mood < 0.5 else set(KINDS)
    level = chance.choice([0.002, 0.01, 0.03])
    rates = {}
    for kind in KINDS:
        share = level * chance.choice([0.5, 1, 2])
        rare = kind.startswith(("pause", "crash")) and level > 0.01
        rates[kind] = (share * (0.4 if rare else 1)) if kind in few else 0.0
    return {kind: rate for kind, rate in rates.items() if rate}
