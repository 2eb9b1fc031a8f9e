"""Those who tag versions and the lake in some runs, read tags and delete them, among vacuums and erasures.

They take their chances from sources of their own, so that runs without them are as they were.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

from alluvia.commit.commit_records import table_at
from alluvia.delta.refs import TAG, find_keeper
from alluvia.errors import Conflict, Corrupt, TableNotFound, VersionExpired, VersionNotFound
from alluvia.operations.reading.scan import scan
from tests.simulation.model import TableModel, tuples
from tests.simulation.s3 import Process
from tests.simulation.scheduler import Violation
from tests.simulation.tags import Kept
from tests.simulation.transfers import NAMES, _check_cut, has_vault
from tests.simulation.world import BANK, EVENTS, REJECTS, Actor, World
from tests.transactions import kept_snapshot

SHARE = 0.25
"""The share of runs in which somebody tags."""
Act = Callable[[Actor], None]


def chance_of(world: World) -> random.Random:
    """Return the source of chance of a run's tags."""
    return random.Random(f"{world.seed} tags")


def has_tags(world: World) -> bool:
    """Whether somebody tags in a run."""
    return chance_of(world).random() < SHARE


def taggers(world: World, vacuum: Act) -> Iterator[tuple[str, Act]]:
    """Yield the names of those who tag, and of those who clean up meanwhile, with what they do."""
    world.checker.tags.tick_us = world.bucket.tick_us
    chance = chance_of(world)
    for at in range(chance.choice([1, 1, 2])):
        yield f"tagger{at}", tag
    for at in range(chance.choice([1, 2])):
        yield f"sweeper{at}", vacuum
    yield "tag reader", read_tag
    yield "untagger", drop_tag


def _root(actor: Actor) -> str:
    focus = actor.world.scenario.focus
    roots = [BANK] if focus == "bank" else [EVENTS] if focus == "events" else [BANK, EVENTS]
    roots += [REJECTS] if REJECTS in actor.world.checker.tables and focus != "bank" else []
    return actor.chance.choice(roots)


def tag(actor: Actor) -> None:
    """Tag a version of a table, new or old, or the lake as it is now, or was. What is acknowledged is kept."""
    world, chance = actor.world, actor.chance
    name = f"{actor.name}-{actor.faults.index}"
    if chance.random() < 0.5:
        _tag_table(actor, name, _root(actor))
        return
    moment = None
    if chance.random() < 0.3:
        version = chance.choice(world.model(_root(actor)).versions)
        at_s = version.at_us // 1_000_000 + chance.choice([0, 1])
        moment = datetime.fromtimestamp(min(at_s, actor.lake.clock.now_ms() // 1000), UTC)
    try:
        made = actor.lake.tag(name, moment)
    except VersionExpired:
        if moment is None:
            raise
        return
    except Conflict as error:
        if type(error) is not Conflict or not world.checker.erased:
            raise
        world.scheduler.note("an erasure has deleted the tag before it was told of")
        return
    assert made.moment is not None
    _know(world, Kept(name, None, moment_ms=int(made.moment.timestamp() * 1000)))


def _tag_table(actor: Actor, name: str, root: str) -> None:
    world, chance = actor.world, actor.chance
    model = world.model(root)
    number = None if chance.random() < 0.5 else max(0, model.tip.number - chance.choice([0, 1, 2, 4]))
    least = model.tip.number
    try:
        made = actor.table(root).tag(name, number)
    except VersionExpired:
        if number is None or world.checker.is_kept(model, number):
            raise
        return
    assert made.version is not None
    if made.version < least if number is None else made.version != number:
        raise Violation("a tag means the version that was asked for", f"{made.version}, not {number or least}")
    _know(world, Kept(name, root, made.version))


def _know(world: World, kept: Kept) -> None:
    world.checker.tags.known[kept.name] = kept
    world.scheduler.note(f"tagged {kept}")


def drop_tag(actor: Actor) -> None:
    """Delete a tag."""
    known = actor.world.checker.tags.known
    if not known:
        return
    kept = known.pop(actor.chance.choice(sorted(known)))
    try:
        (actor.lake if kept.root is None else actor.table(kept.root)).drop_tag(kept.name)
    except VersionNotFound:  # an erasure has released it
        return


def read_tag(actor: Actor) -> None:
    """Read what a tag keeps: the rows of its version, and of a transaction all or nothing."""
    world = actor.world
    known = world.checker.tags.known
    if not known:
        return
    kept = known[actor.chance.choice(sorted(known))]
    for root in [_root(actor)] if kept.root is None else [kept.root]:
        _look(actor, kept, root)
    if kept.root is None and has_vault(world):
        _look_at_both(actor, kept)


def _is_kept(world: World, kept: Kept, model: TableModel) -> bool:
    """Whether a tag is still there, and means a version of a table."""
    tags = world.checker.tags
    return tags.meant(kept, model) is not None and tags.is_kept(
        kept, world.checker.tables.values(), world.checker.holds_erased
    )


def _look(actor: Actor, kept: Kept, root: str) -> None:
    world = actor.world
    model = world.model(root)
    table = actor.table(root)
    try:
        keeper = find_keeper(table.lake.store, None if kept.root is None else table.name, TAG, kept.name)
        if keeper is None:
            raise VersionNotFound(kept.name)
        snapshot = kept_snapshot(table._handle, keeper)
        rows = tuples(scan(snapshot, table.lake.store).read_all())
    except (Corrupt, VersionExpired, VersionNotFound, TableNotFound) as error:
        if _is_kept(world, kept, model):
            raise Violation("what is tagged can be read", f"{kept} of {root}: {error}") from error
        return
    if not _is_kept(world, kept, model):
        return
    version = world.checker.tags.meant(kept, model)
    assert version is not None
    if snapshot.version != version.number:
        raise Violation("a tag means one version", f"{kept} of {root}: {snapshot.version}, not {version.number}")
    if not table_at(table._handle.log, table._handle.log.at(version.number), keeper.moment).claims:
        world.checker.same_rows(str(kept), rows, version, tuple(snapshot.schema.names))


def _look_at_both(actor: Actor, kept: Kept) -> None:
    """See that what the lake's tag keeps of several tables has all of each transaction, or nothing."""
    world = actor.world
    models = [world.model(f"{name}/") for name in NAMES]
    keeper = find_keeper(actor.lake.store, None, TAG, kept.name)
    if keeper is None:
        return
    cut = {}
    try:
        for model in models:
            handle = actor.lake.catalog.handle(model.root[:-1])
            state = handle.log.at(kept_snapshot(handle, keeper).version)
            cut[model.root] = (state.version, table_at(handle.log, state, keeper.moment).held)
    except (Corrupt, VersionExpired, VersionNotFound, TableNotFound) as error:
        if all(_is_kept(world, kept, model) for model in models):
            raise Violation("what is tagged can be read", f"{kept}: {error}") from error
        return
    if all(_is_kept(world, kept, model) for model in models):
        _check_cut(actor, {}, cut)


def finish(world: World) -> None:
    """Each tag can be read by whoever opens the lake."""
    known = world.checker.tags.known
    lake = world.open(Process(), "finish of tags", 0)
    roots = [root for root in (BANK, EVENTS, REJECTS) if root in world.checker.tables]
    for kept in list(known.values()):
        for root in roots if kept.root is None else [kept.root]:
            model = world.model(root)
            if not _is_kept(world, kept, model):
                continue
            version = world.checker.tags.meant(kept, model)
            assert version is not None
            table = lake.table(root.rstrip("/"))
            keeper = find_keeper(lake.store, None if kept.root is None else table.name, TAG, kept.name)
            if keeper is None:
                raise Violation("what is tagged can be read", f"{kept} is gone")
            snapshot = kept_snapshot(table._handle, keeper)
            rows = tuples(scan(snapshot, lake.store).read_all())
            if not table_at(table._handle.log, table._handle.log.at(version.number), keeper.moment).claims:
                world.checker.same_rows(str(kept), rows, version, tuple(snapshot.schema.names))
