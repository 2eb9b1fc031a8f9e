"""Those who erase in some runs: an event with its rejects, or a row that a transaction over two tables has appended.

They see that nothing is left of it in old objects. They take their chances from sources of their own, so that runs
without them are as they were.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from alluvia.errors import Conflict, Invalid
from alluvia.operations.erasure.erase_report import EraseReport
from tests.simulation.intents import Rows, Steps
from tests.simulation.model import TableModel, Version, event_of
from tests.simulation.scheduler import Violation
from tests.simulation.transfers import ROOTS, append_both, has_vault
from tests.simulation.world import EVENTS, REJECTS, Actor, World

SHARE = 0.1
"""The share of runs about events in which somebody erases: it reads all old files and commits."""
VAULT_SHARE = 0.25
"""The share of runs with a vault in which somebody erases rows of transactions."""


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


@dataclass(frozen=True)
class EraseRow:
    """The rows of a name go."""

    name: str

    def check(self, table: TableModel, before: Version, after: Version, removed: Rows, added: Rows) -> None:
        at = after.columns.index("id")
        others = {row[at] for row in removed} - {self.name}
        left = [row for row in after.rows if row[at] == self.name] if removed else []
        if added or others or left:
            raise Violation("an erasure takes the rows that match", f"{self.name}: {others} went, {left} stayed")


def erase_pair(actor: Actor) -> None:
    """Append a row to both tables in one transaction, then erase such a row of one, and look for it in every object."""
    world = actor.world
    try:
        append_both(actor)
    except Conflict:  # with a restore, as others have them
        world.checker.refused(actor.intent)
        return
    root = actor.chance.choice(ROOTS)
    names = sorted({str(row[0]) for row in world.model(root).tip.rows if row[2] == "pairs"})
    if not names:
        return
    name = actor.chance.choice(names)
    world.checker.erased.add(name)
    actor.intent = Steps({"ERASE": EraseRow(name)})
    world.scheduler.note(f"erases {name} of {root}")
    report = _erased(actor, root, "id", name)
    if report is None:
        return
    _check_row_gone(world, root, name, report.oldest_version)


def _erased(actor: Actor, root: str, column: str, name: str) -> EraseReport | None:
    """Erase rows; None where a clone or a branch shows such rows, or has written some."""
    where = f"{column} = '{name}'"
    shown = [branch for branch in actor.world.checker.branches.values() if branch.shows(root, name)]
    try:
        report = actor.table(root).erase(where, release_tags=True)
    except Invalid as error:
        if "that are kept hold such rows, by " not in str(error) or " tag " in str(error).partition(";")[0]:
            raise
        actor.world.scheduler.note(str(error))
        return None
    if any(branch.shows(root, name) for branch in shown):
        raise Violation("an erasure leaves no row on a branch", f"{where} of {root}")
    return report


def _check_row_gone(world: World, root: str, name: str, oldest: int) -> None:
    """Raise `Violation` if an object shows a row that only versions before `oldest` hold.

    Checkpoints of others are on their way for a while, and so are data files that no commit has named.
    """
    table = world.model(root)
    named = set(table.known)
    shown = re.compile(rf"\b{name}\b")
    objects = {key.removeprefix(root): found for key, found in world.bucket.objects.items() if key.startswith(root)}
    for key, (data, _) in objects.items():
        if not key.endswith(".json"):
            continue
        text = data.decode()
        if key.startswith("_delta_log/"):
            named |= set(re.findall(r'path\\?":\\?"([^"\\]*)', text))
        if shown.search(text):
            raise Violation("nothing is left of erased rows", f"{name} in {root}{key}")
    for key, (data, at_us) in objects.items():
        old = at_us < table.versions[oldest].at_us if ".checkpoint." in key else key in named
        if key.endswith(".parquet") and old:
            rows = pq.ParquetFile(pa.BufferReader(data)).read(use_threads=False).to_pylist()
            if shown.search(str(rows)):
                raise Violation("nothing is left of erased rows", f"{name} in {root}{key}")


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
    report = _erased(actor, EVENTS, "event_id", event)
    if report is None:
        return
    _check_gone(world, EVENTS, event, report.oldest_version)
    if report.rejects is not None:
        _check_gone(world, REJECTS, event, report.rejects.oldest_version)


def _check_gone(world: World, root: str, event: str, oldest: int) -> None:
    """Raise `Violation` if an object shows the event that was there before version `oldest`, and is not needed now."""
    table = world.model(root)
    needed: set[str] = set().union(*(version.files for version in table.versions[oldest:]))
    tables = world.checker.tables.values()
    kept = world.checker.tags.versions(table, tables, world.checker.holds_erased)
    needed |= set().union(*(version.files for version in kept))
    clones = (each.needed() for each in tables if each.is_clone)
    needed |= {key.removeprefix(root) for key in set().union(*clones)}
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
    for at in range(chance_of(world).choice([1, 1, 2]) if has_erasers(world) else 0):
        yield f"eraser{at}", erase
    if erases_pairs(world):
        yield "eraser of pairs", erase_pair


def erases_pairs(world: World) -> bool:
    """Whether somebody erases rows of transactions in a run."""
    return has_vault(world) and random.Random(f"{world.seed} erasure of pairs").random() < VAULT_SHARE
