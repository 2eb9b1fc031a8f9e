"""Which actors a run has, and how they live: in each epoch a few acts."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from alluvia.api.lake import Lake
from alluvia.errors import AlluviaError, CommitUnknown, Conflict, MetadataChanged
from tests.simulation import following
from tests.simulation.actors import (
    NEVER,
    Act,
    append,
    bank,
    checkpoint,
    delete,
    dispute,
    evolve,
    expire,
    ingest,
    optimize,
    read,
    restore,
    travel,
    vacuum,
)
from tests.simulation.backfills import backfillers
from tests.simulation.branchers import branchers
from tests.simulation.branching import has_branches
from tests.simulation.cloning import cloners, has_clones
from tests.simulation.erasing import erase, erasers
from tests.simulation.faults import HOUR_US, SECOND_US, FaultSource
from tests.simulation.following import followers, has_stream
from tests.simulation.merge_queries import has_hits, hitters
from tests.simulation.movers import TOGETHER, movers
from tests.simulation.offers import CROWD, is_crowded
from tests.simulation.posters import posters
from tests.simulation.rollups import has_rollup, refresher, refreshers
from tests.simulation.s3 import Crash, Process
from tests.simulation.scheduler import Violation
from tests.simulation.tagging import has_tags, taggers
from tests.simulation.transfers import has_vault
from tests.simulation.world import SKEWS_US, START_US, Actor, World

BOTH = TOGETHER | following.TOGETHER
CASTS: dict[str, list[tuple[str, Act, list[int]]]] = {
    "events": [
        ("ingester", ingest, [1, 2, 3, 4]),
        ("claimant", dispute, [0, 0, 2, 3]),
        ("optimizer", optimize, [0, 1, 2]),
        ("checkpointer", checkpoint, [0, 1, 2]),
        ("vacuumer", vacuum, [0, 1]),
        ("reader", read, [0, 1]),
        ("deleter", delete, [0, 0, 1]),
        ("expirer", expire, [0, 1]),
    ],
    "bank": [
        ("banker", bank, [1, 2, 3]),
        ("appender", append, [0, 1, 2]),
        ("deleter", delete, [0, 1, 2]),
        ("optimizer", optimize, [0, 1, 2]),
        ("evolver", evolve, [0, 0, 1, 2]),
        ("restorer", restore, [0, 0, 1]),
        ("vacuumer", vacuum, [0, 0, 1]),
        ("checkpointer", checkpoint, [0, 1]),
        ("reader", read, [0, 1]),
    ],
    "upkeep": [
        ("ingester", ingest, [1, 2]),
        ("claimant", dispute, [0, 0, 1, 2]),
        ("appender", append, [1, 2]),
        ("optimizer", optimize, [1, 2]),
        ("checkpointer", checkpoint, [1, 2]),
        ("vacuumer", vacuum, [1, 2, 3]),
        ("traveller", travel, [0, 1, 2]),
        ("expirer", expire, [0, 1]),
        ("reader", read, [0, 1]),
        ("restorer", restore, [0, 1]),
    ],
    "all": [
        ("ingester", ingest, [1, 2, 3]),
        ("claimant", dispute, [0, 0, 2]),
        ("optimizer", optimize, [0, 1, 1, 2]),
        ("checkpointer", checkpoint, [0, 1, 2]),
        ("vacuumer", vacuum, [0, 1, 2]),
        ("reader", read, [0, 1]),
        ("traveller", travel, [0, 1]),
        ("appender", append, [0, 1, 2]),
        ("banker", bank, [0, 0, 1, 2]),
        ("deleter", delete, [0, 0, 1, 2]),
        ("evolver", evolve, [0, 0, 1, 2]),
        ("restorer", restore, [0, 0, 1]),
        ("expirer", expire, [0, 1]),
    ],
}
"""Who plays in a run with a focus, and how many of each: one of the numbers."""
BRANCH_ACTS: tuple[Act, ...] = (bank, bank, delete, evolve)
"""What is done on branches as in the lake, to the bank and to events."""


def cast(world: World) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the actors of a run by name, with what they do. Some share a process, and a handle, with another."""
    chance = world.chance
    numbers = [(name, act, chance.choice(counts)) for name, act, counts in CASTS[world.scenario.focus]]
    wanted = [(f"{name}{at}", act) for name, act, number in numbers for at in range(number)]
    chance.shuffle(wanted)
    if world.scenario.small:
        wanted = wanted[: chance.randint(2, 4)]
    process, skew_us = Process(), 0
    lakes: dict[int, Lake] = {}
    for name, act in wanted:
        if chance.random() < 0.8:
            process, lakes = Process(), {}
            skew_us = chance.choice(SKEWS_US) if world.skewed else 0
        source = FaultSource(str(world.seed), name, world.scenario.rates, world.without)
        own = random.Random(f"{world.seed} {name}")
        actor = Actor(name, world, process, own, source, skew_us, lakes=lakes)
        world.actors[name] = actor
        yield name, _body(actor, act)
    others: list[tuple[str, Act]] = [(name, refresher) for name in refreshers(world)] if has_rollup(world) else []
    others += [*(hitters(world) if has_hits(world) else ()), *erasers(world), *backfillers(world)]
    others += [*movers(world)] if has_vault(world) else []
    others += [*followers(world)] if has_stream(world) else []
    others += [*taggers(world, vacuum)] if has_tags(world) else []
    others += [*branchers(world, BRANCH_ACTS, vacuum, erase)] if has_branches(world) else []
    others += [*cloners(world, vacuum)] if has_clones(world) else []
    others += [(f"offerer{at}", ingest) for at in range(CROWD)] if is_crowded(world.seed) else []
    acts = [(name, act, Process(), dict[int, Lake]()) for name, act in others]
    process, lakes = Process(), dict[int, Lake]()
    acts += [(name, act, process, lakes) for name, act in posters(world)]
    for name, act, process, lakes in acts:
        source = FaultSource(str(world.seed), name, world.scenario.rates, world.without)
        actor = Actor(name, world, process, random.Random(f"{world.seed} {name}"), source, 0, lakes=lakes)
        world.actors[name] = actor
        yield name, _body(actor, act)


def _body(actor: Actor, act: Act) -> Callable[[], None]:
    """Return an actor's life: in each epoch a few acts, near those of the others."""
    world, scheduler = actor.world, actor.world.scheduler
    steps_max = world.without.steps.get(actor.name, 1000)

    def live() -> None:
        steps = 0
        for epoch in range(world.scenario.epochs):
            begin_us = START_US + HOUR_US + epoch * world.scenario.gap_us
            scheduler.wait(max(0, begin_us - scheduler.now_us) + int(300_000 * actor.chance.random()))
            for _ in range(actor.chance.choice([1, 1, 2] if world.scenario.small else [0, 1, 1, 2, 3])):
                steps += 1
                if steps <= steps_max:
                    _attempt(actor, act)
                scheduler.wait(int(2 * SECOND_US * actor.chance.random() ** 3))

    return live


def _attempt(actor: Actor, act: Act) -> None:
    calm = not actor.world.scenario.rates
    try:
        act(actor)
    except Crash:
        actor.world.scheduler.note("crashed")
        actor.world.scheduler.wait(int(20 * SECOND_US * actor.chance.random()))
    except AlluviaError as error:
        if isinstance(error, NEVER):
            raise
        if not isinstance(error, CommitUnknown):
            actor.world.checker.refused(actor.wanted)
        lost = isinstance(error, MetadataChanged) if act is append else act in BOTH and isinstance(error, Conflict)
        if calm and not lost:
            raise Violation("without faults nothing fails", f"{actor.name}: {type(error).__name__}: {error}") from error
        actor.world.scheduler.note(f"{type(error).__name__}: {error}")
    finally:
        actor.intent = None
