"""Threads of one process that send requests to one table at about the same time, so that they commit together.

They take their chances from a source of its own, so that runs without them are as they were.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import RawEvent
from tests.simulation.checker import Event
from tests.simulation.events import CLAIMS, value_of
from tests.simulation.intents import NoRows, Steps
from tests.simulation.scheduler import Violation
from tests.simulation.world import EVENTS, REJECTS, Actor, World

SHARE = 0.25
"""The share of runs that have some."""


def posters(world: World) -> Iterator[tuple[str, Callable[[Actor], None]]]:
    """Yield the threads by name, with what they do. All belong to one process."""
    chance = random.Random(f"{world.seed} posters")
    if world.scenario.focus != "bank" and chance.random() < SHARE:
        for at in range(chance.randint(2, 5)):
            yield f"poster{at}", _post


def _post(actor: Actor) -> None:
    """Send one request."""
    chance = actor.chance
    events = _choose(actor)
    kinds = [chance.choice(CLAIMS) if event.disputed else None for event in events]
    values = [value_of(event, kind) for event, kind in zip(events, kinds, strict=True)]
    ids = [event.id for event in events]
    actor.world.scheduler.note(f"posts {' '.join(map(str, zip(ids, kinds, strict=True)))}")
    actor.intent = Steps({"WRITE": actor.sends(ids), "CREATE TABLE": NoRows(("CREATE TABLE",))})
    answer = ingest_batch(
        actor.lake.catalog,
        "events",
        [RawEvent(*each) for each in enumerate(values)],
        arrival_us=actor.lake.clock.now_us(),
    )
    _check_answer(actor, events, kinds, [reject.position for reject in answer.rejects], answer.counts())
    actor.world.checker.acknowledged(ids, EVENTS, REJECTS)


def _choose(actor: Actor) -> list[Event]:
    """Return a few events: new ones, broken and disputed ones among them, and those that others may be sending now."""
    world, chance = actor.world, actor.chance
    known = [*world.sendable(), *world.sendable(disputed=True, posted=True)]
    events = chance.sample(known, min(len(known), chance.randint(0, 2)))
    events += [world.new_event(reject=chance.random() < 0.3) for _ in range(chance.randint(not events, 2))]
    if chance.random() < 0.4:
        events.append(world.new_event(disputed=True, posted=True))
    chance.shuffle(events)
    return events


def _check_answer(
    actor: Actor,
    events: list[Event],
    kinds: list[str | None],
    rejected: list[int],
    counts: dict[str, int | None],
) -> None:
    """Check that the answer is about these events: what is broken, and what others said first, is rejected."""
    stored = {row[0]: row[2] for row in actor.world.model(EVENTS).tip.rows.elements()}
    wanted, unknown = set(), set()
    for at, (event, kind) in enumerate(zip(events, kinds, strict=True)):
        if event.reject:
            wanted.add(at)
        elif kind is not None and event.id not in stored:  # it has expired
            unknown.add(at)
        elif kind is not None and stored[event.id] != kind:
            wanted.add(at)
    found = set(rejected)
    if found - unknown != wanted or counts["accepted"] != len(events) - len(found):
        detail = f"{[event.id for event in events]} {kinds}: {counts}, rejected {rejected}, not {sorted(wanted)}"
        raise Violation("an answer is about what was sent", detail)
