"""Shallow clones in some runs, of tables and of clones: made, written, dropped, brought back and vacuumed.

They take their chances from sources of their own, so that runs without clones are as they were.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from alluvia.api.lake import Lake
from alluvia.errors import (
    Conflict,
    Corrupt,
    TableExists,
    TableNotFound,
    VersionExpired,
    VersionNotFound,
)
from tests.simulation.intents import AddRows, ChangeRows, NoRows, Rows, Steps
from tests.simulation.model import TableModel, Version, tuples
from tests.simulation.scheduler import Violation
from tests.simulation.world import BANK, EVENTS, Actor, World

SHARE = 0.08
"""The share of runs that have clones."""
COLUMNS = ("id", "amount", "owner")
Act = Callable[[Actor], None]


def chance_of(world: World) -> random.Random:
    """Return the source of chance of a run's clones."""
    return random.Random(f"{world.seed} clones")


def has_clones(world: World) -> bool:
    """Whether a run has clones."""
    return chance_of(world).random() < SHARE


def cloners(world: World, vacuum: Act) -> Iterator[tuple[str, Act]]:
    """Yield the names of those who make and use clones, and clean up their sources meanwhile, with what they do."""

    def use(actor: Actor) -> None:
        acts = [clone, clone, append, delete, optimize, sweep, sweep, drop, undrop, read]
        for act in actor.chance.choices(acts, k=actor.chance.choice([1, 2, 3])):
            _attempt(actor, act)

    def make(actor: Actor) -> None:
        _attempt(actor, clone)
        use(actor)

    chance = chance_of(world)
    chance.random()
    for at in range(chance.choice([1, 2])):
        yield f"cloner{at}", make
    for at in range(chance.choice([1, 2, 3])):
        yield f"clone user{at}", use
    for at in range(chance.choice([1, 2])):
        yield f"clone sweeper{at}", vacuum


@dataclass(frozen=True)
class Again:
    """The rows of some older version are there again, or, of a table that was dropped, none."""

    def check(self, table: TableModel, before: Version, after: Version, removed: Rows, added: Rows) -> None:
        if all(each.rows != after.rows for each in table.versions):
            raise Violation("a commit does what its operation says", f"{table.root} {after.number} has {after.rows}")


@dataclass(frozen=True)
class Begun:
    """A table begins again with the rows of another: the checker compares them with its source's."""

    def check(self, table: TableModel, before: Version, after: Version, removed: Rows, added: Rows) -> None:
        if before.rows:
            raise Violation("a clone takes no table's place", f"{table.root} {after.number}")


@dataclass(frozen=True)
class Empty:
    """No row is left."""

    def check(self, table: TableModel, before: Version, after: Version, removed: Rows, added: Rows) -> None:
        if after.rows:
            raise Violation("a commit does what its operation says", f"{table.root} {after.number} has {after.rows}")


def _attempt(actor: Actor, act: Act) -> None:
    """Do something to a clone, which another may have dropped, brought back or replaced."""
    try:
        act(actor)
    except (TableExists, TableNotFound, VersionExpired, VersionNotFound, Conflict) as error:
        actor.world.scheduler.note(f"{act.__name__}: {type(error).__name__}: {error}")
        actor.world.checker.refused(actor.intent)
    finally:
        actor.intent = None


def _clone(actor: Actor) -> str | None:
    """Return one of the clones that were made."""
    tables = actor.world.checker.tables
    there = [name for name in actor.world.clones if f"{name}/" in tables]
    return actor.chance.choice(there) if there else None


def clone(actor: Actor) -> None:
    """Clone a table or a clone, at its newest version or an older one, under a new name or that of another."""
    world, chance = actor.world, actor.chance
    roots = {"bank": [BANK], "events": [EVENTS]}.get(world.scenario.focus, [BANK, EVENTS])
    source = (_clone(actor) if chance.random() < 0.4 else None) or chance.choice(roots)[:-1]
    world.clones.append(f"c{len(world.clones)}")
    name = world.clones[-1] if chance.random() < 0.7 else chance.choice(world.clones)
    model = world.model(f"{source}/")
    version = None if chance.random() < 0.6 else max(0, model.tip.number - chance.choice([0, 1, 2, 4]))
    if name == source:
        return
    world.scheduler.note(f"clones {source} {version} as {name}")
    actor.intent = Steps({"CLONE": Begun(), "DROP TABLE": Empty()})  # one that came too late is dropped at once
    actor.main.clone(source, name, version)


def append(actor: Actor) -> None:
    """Append a row to a clone of the bank."""
    name = _clone(actor)
    if name is None or "amount" not in actor.world.model(f"{name}/").tip.columns:
        return
    actor.world.pairs += 1
    row = (f"clone{actor.world.pairs}", 0, "clone")
    actor.intent = AddRows((row,), COLUMNS)
    actor.table(f"{name}/").append([dict(zip(COLUMNS, row, strict=True))])


def delete(actor: Actor) -> None:
    """Delete a row of a clone, or of an event's kind."""
    name = _clone(actor)
    if name is None:
        return
    column, text = ("event", "open") if "event" in actor.world.model(f"{name}/").tip.columns else ("id", "a1")
    actor.intent = ChangeRows(lambda row: row[column] == text, lambda _: None)
    actor.table(f"{name}/").delete(f"{column} = '{text}'")


def _upkeep(*operations: str, act: Callable[[Actor, str], object]) -> Act:
    def keep_up(actor: Actor) -> None:
        name = _clone(actor)
        if name is not None:
            actor.intent = NoRows(operations)
            act(actor, f"{name}/")

    return keep_up


optimize = _upkeep("OPTIMIZE", act=lambda actor, root: actor.table(root).optimize(full=True))
sweep = _upkeep("VACUUM", "VACUUM START", "VACUUM END", act=lambda actor, root: actor.table(root).vacuum())


def drop(actor: Actor) -> None:
    """Drop a clone."""
    if (name := _clone(actor)) is not None:
        actor.intent = Steps({"DROP TABLE": Empty()})
        actor.main.drop_table(name)


def undrop(actor: Actor) -> None:
    """Bring a clone back."""
    if (name := _clone(actor)) is not None:
        actor.intent = Steps({"UNDROP TABLE": Again()})
        actor.main.undrop(name)


def read(actor: Actor) -> None:
    """Read a clone, or an older version of it that was not given up."""
    name = _clone(actor)
    if name is None:
        return
    model = actor.world.model(f"{name}/")
    snapshot = actor.table(f"{name}/").snapshot()
    version = model.versions[snapshot.version]
    try:
        rows = actor.table(f"{name}/").scan(version=snapshot.version).read_all()
    except (Corrupt, VersionExpired):
        if version.number >= model.tip.oldest_readable:
            raise
        return
    actor.world.checker.same_rows(name, tuples(rows), version, tuple(rows.schema.names))


def finish(world: World, lake: Lake) -> None:
    """Each clone that is there shows what it should."""
    for name in sorted({*world.clones} & {*lake.tables()}):
        version = world.model(f"{name}/").tip
        rows = lake.table(name).scan().read_all()
        world.checker.same_rows(name, tuples(rows), version, tuple(rows.schema.names))
