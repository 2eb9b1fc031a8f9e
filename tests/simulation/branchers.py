"""Actors that cut branches, write on them and publish them, and those that clean up meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

from tests.simulation.branching import (
    Act,
    add_both,
    aside,
    chance_of,
    compact,
    compare,
    cut,
    discard,
    ingest,
    keep_up,
    look,
    on_branch,
    pause,
    publish,
    restore,
)
from tests.simulation.world import Actor, World

ERASE_SHARE = 0.3
"""The share of runs with branches, if they are about events, in which somebody erases."""


def branchers(world: World, acts: tuple[Act, ...], vacuum: Act, erase: Act) -> Iterator[tuple[str, Act]]:
    """Yield the names of those who use branches, and clean up meanwhile, with what they do. `acts` work on any lake."""

    def write(actor: Actor) -> None:
        chance = actor.chance
        on_branch(actor, chance.choice([chance.choice(acts), ingest, ingest, add_both, keep_up, keep_up, restore]))

    def fix(actor: Actor) -> None:
        """Cut a branch, write on it, look, and mostly publish and discard it."""
        cut(actor)
        for _ in range(actor.chance.choice([1, 2, 3])):
            write(actor)
            pause(actor)
        for act, share in (
            (compare, 0.5),
            (compact, 0.4),
            (publish, 0.7),
            (write, 0.1),
            (publish, 0.2),
            (discard, 0.4),
        ):
            if actor.chance.random() < share:
                act(actor)

    chance = chance_of(world)
    chance.random()
    for at in range(chance.choice([1, 2])):
        yield f"fixer{at}", fix
    for at in range(chance.choice([1, 2])):
        yield (
            f"branch helper{at}",
            lambda actor: actor.chance.choice([write, write, look, compare, publish, discard])(actor),
        )
    yield "sider", aside
    for at in range(chance.choice([1, 2])):
        yield f"branch sweeper{at}", vacuum
    if world.scenario.focus != "bank" and chance.random() < ERASE_SHARE:
        yield "branch eraser", erase
