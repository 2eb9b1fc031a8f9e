"""A mutant of the library."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """A change of one file: the text `old`, which occurs once, becomes `new`.

    `tests` must notice it; without `tests`, the simulation must, within `mutants.SEEDS` seeds. `seed` is one at which
    the simulation noticed it before, so that most hunts end at once. If the simulation has changed since, the hunt goes
    on with all other seeds.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...] = ()
    seed: int = 0
