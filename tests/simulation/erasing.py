"""Those who erase an event in some runs, with its rejects, and see that nothing is left of it in old objects.

They take their chances from a source of their own, so that runs without them are as they were.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.simulation.intents import Rows, Steps
from tests.simulation.model import TableModel, Version, event_of
from tests.simulation.scheduler import Violation
from tests.simulation.world import EVENTS, REJECTS, Actor, World

SHARE = 0.1
"""The share of runs about events in which somebody erases: it reads all old files and commits."""


def chance_of(world: World) -> random.Random:
    """Return the source of chance of a run's erasures."""
    return random.Random(f"{world.seed} erasure")


def has_erasers(world: World) -> bool:
    """Whether somebody erases in a run."""
    return world.scenario.focus != "bank" and chance_of(world).random() < SHARE


@dataclass(frozen=True)
class EraseEvent:
    """The rows of an event go, all of them or none."""

    event: str

    def check(self, table: TableModel, before: Version, after: Version, removed: Rows, added: Rows) -> None:
        at = after.columns.index("event_id")
        others = [row for row in removed if event_of(row[at]) != self.event]
        left = [row for row in after.rows if event_of(row[at]) == self.event] if removed else []
        if added or others or left:
            raise Violation("an erasure takes the rows that match", f"{self.event}: {others} went, {left} stayed")


def erase(actor: Actor) -> None:
    """Erase an event that was sent, and look for it in every object that no later version needs."""
    world = actor.world
    sent = [event.id for event in world.checker.events.values() if not event.disputed]
    if not sent:
        return
    event = actor.chance.choice(sent)
    world.checker.erased.add(event)
    actor.intent = Steps({"ERASE": EraseEvent(event)})
    world.scheduler.note(f"erases {event}")
    report = actor.table(EVENTS).erase(f"event_id = '{event}'")
    _check_gone(world, EVENTS, event, report.oldest_version)
    if report.rejects is not None:
        _check_gone(world, REJECTS, event, report.rejects.oldest_version)


def _check_gone(world: World, root: str, event: str, oldest: int) -> None:
    """Raise `Violation` if an object shows the event that was there before version `oldest`, and is not needed now."""
    table = world.model(root)
    needed: set[str] = set().union(*(version.files for version in table.versions[oldest:]))
    since_us = table.versions[oldest].at_us

    def gone(path: str) -> bool:
        return path in table.known and path not in needed

    for key, (data, at_us) in world.bucket.objects.items():
        name = key.removeprefix(root)
        if not key.startswith(root) or name.startswith("_rejects/"):
            continue
        shown = False
        if name.startswith("_delta_log/") and name.endswith(".json"):
            shown = any(_shows(action.get("add"), event, gone) for action in map(json.loads, data.splitlines()))
        elif ".checkpoint." in name and at_us < since_us:
            adds = pq.ParquetFile(pa.BufferReader(data)).read(["add"], use_threads=False)["add"].to_pylist()
            shown = any(_shows(add, event, gone) for add in adds)
        elif gone(name):
            file = table.known[name]
            shown = event in {event_of(row[file.columns.index("event_id")]) for row in file.rows}
        if shown:
            raise Violation("nothing is left of erased rows", f"{event} in {key}")


def _shows(add: Mapping[str, Any] | None, event: str, gone: Callable[[str], bool]) -> bool:
    """Whether the bounds of a file that is not needed are the event's id."""
    if not add or not add.get("path") or not gone(add["path"]):
        return False
    stats = json.loads(add["stats"] or "{}")
    return event in {event_of(str(stats.get(bound, {}).get("event_id"))) for bound in ("minValues", "maxValues")}


def erasers(world: World) -> Iterator[tuple[str, Callable[[Actor], None]]]:
    """Yield the names of those who erase, with what they do."""
    for at in range(chance_of(world).choice([1, 1, 2])):
        yield f"eraser{at}", erase
