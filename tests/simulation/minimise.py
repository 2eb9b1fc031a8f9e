"""Making a failing history smaller: leave out actors, kinds of faults, single faults and steps, as long as it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.simulation.faults import KINDS, Without
from tests.simulation.world import Failure, run

TRIES_MAX = 150


def attempt(seed: int, without: Without) -> Failure | None:
    """Run a seed; its failure, if it fails."""
    try:
        run(seed, without)
    except Failure as failure:
        return failure
    return None


def minimise(first: Failure, look: Callable[[int, Without], Failure | None] = attempt) -> tuple[Failure, Without]:
    """Return a failure of the same rule with as little as a greedy search leaves."""
    best, without, tries = first, Without(), 0
    progress = True
    while progress and tries < TRIES_MAX:
        progress = False
        for smaller in _smaller(best, without):
            tries += 1
            found = look(first.seed, smaller)
            if found is not None and found.rule == first.rule:
                best, without, progress = found, smaller, True
            if tries >= TRIES_MAX:
                break
    return best, without


def _smaller(failure: Failure, without: Without) -> Iterator[Without]:
    """Yield runs that leave out one thing more."""
    names = sorted({line.split()[1] for line in failure.result.trace} - {"-"})
    for name in names:
        yield replace(without, actors=without.actors | {name})
    if not without.skews:
        yield replace(without, skews=True)
    fired = {fault.kind for fault in failure.result.faults}
    for kind in KINDS:
        if kind in fired and kind not in without.kinds:
            yield replace(without, kinds=without.kinds | {kind})
    for fault in failure.result.faults:
        if fault.name not in without.faults:
            yield replace(without, faults=without.faults | {fault.name})
    for name in names:
        for steps in (1, 2, 4):
            if without.steps.get(name, 1000) > steps:
                yield replace(without, steps={**without.steps, name: steps})


def story(failure: Failure, without: Without) -> str:
    """Return what a person needs to see: what was left out, and what is left."""
    left_out = (
        f"without actors {sorted(without.actors)}, kinds {sorted(without.kinds)}, steps {dict(without.steps)}, "
        f"{len(without.faults)} single faults{', skews' if without.skews else ''}"
    )
    faults = ", ".join(f"{fault.name} {fault.kind}" for fault in failure.result.faults)
    lines = [f"seed {failure.seed}: {failure.error}", left_out, f"faults left: {faults or 'none'}"]
    return "\n".join([*lines, *(f"  {line}" for line in failure.result.trace)])
