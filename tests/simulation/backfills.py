"""Backfill jobs of some runs, without their Spark: what a job's tasks leave, and its commit.

Their commits have the event ids in files, unless they bring one event only. They take their chances from sources of
their own, so that runs without them are as they were.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from alluvia.errors import ConcurrentAppend, Corrupt, TransactionExpired
from alluvia.events.ingest.identity import contents_of
from alluvia.events.ingest.values import RawEvent
from alluvia_spark.backfill_job import known_ids
from tests.simulation.events import event_rows, value_of
from tests.simulation.faults import SECOND_US
from tests.simulation.intents import AddEvents
from tests.simulation.world import EVENTS, REJECTS, Actor, World
from tests.spark.jobs import Backfill

SHARE = 0.3
"""The share of runs about events with backfills."""


def set_up(patch: pytest.MonkeyPatch) -> None:
    """Let commits of two events be too big to carry their ids."""
    patch.setattr(known_ids, "IDS_IN_COMMIT_MAX", 1)


def backfillers(world: World) -> Iterator[tuple[str, Callable[[Actor], None]]]:
    """Yield the jobs by name, with what they do."""
    chance = random.Random(f"{world.seed} backfills")
    if world.scenario.focus != "bank" and chance.random() < SHARE:
        for at in range(chance.choice([1, 2, 2])):
            yield f"backfiller{at}", backfill


def backfill(actor: Actor) -> None:
    """Bring new events, and some that others have sent or send now, as one job; run it again where these came first."""
    world, chance = actor.world, actor.chance
    known = [event for event in world.sendable() if not event.reject]
    events = chance.sample(known, min(len(known), chance.randint(0, 3)))
    events += [world.new_event() for _ in range(chance.randint(not events, 3))]
    ids = [event.id for event in events]
    contents = contents_of([RawEvent(0, value_of(event)) for event in events])
    job_id = actor.lake.clock.new_id()
    world.scheduler.note(f"backfills {' '.join(ids)}")
    actor.intent = AddEvents(frozenset(ids))
    parts = (chance.randint(1, 2), chance.randint(1, 3), chance.choice([1, 64]))
    while True:
        base = actor.lake.table("events").snapshot()
        try:
            job = Backfill(actor.lake, "events", event_rows(events, actor.lake.clock.now_us()), contents, parts, base)
        except Corrupt:
            if world.checker.is_kept(world.model(EVENTS), base.version):
                raise
            world.scheduler.note("reads again: an erasure or a vacuum has taken what it read")
            continue
        world.scheduler.wait(int(3 * SECOND_US * chance.random() ** 3))
        try:
            job.commit(job_id)
        except (ConcurrentAppend, TransactionExpired):
            world.scheduler.note("runs again")
        else:
            break
    world.checker.acknowledged(ids, EVENTS, REJECTS)
