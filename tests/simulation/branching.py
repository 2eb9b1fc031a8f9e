"""Branches of the lake in some runs: those who cut, write, read, compare, publish and discard them, and vacuum.

They take their chances from sources of their own, so that runs without branches are as they were.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from alluvia.api.lake import Lake
from alluvia.delta.refs import BRANCH, keeper_key
from alluvia.errors import AlluviaError, CommitUnknown, Conflict, Corrupt, TransactionExpired, VersionExpired
from alluvia.events.ingest.identity import contents_of
from alluvia.events.ingest.values import RawEvent
from alluvia.operations.append.append import append
from alluvia.operations.reading.scan import scan
from alluvia.operations.transactions.lake_transaction import StagedTables
from tests.simulation.branched import BranchModel, Publish
from tests.simulation.events import event_rows, value_of
from tests.simulation.faults import MINUTE_US, SECOND_US
from tests.simulation.intents import AddRows, ChangeRows, NoRows, RestoreRows, Steps
from tests.simulation.ledger import Together
from tests.simulation.model import Version, tuples
from tests.simulation.s3 import Process
from tests.simulation.scheduler import Violation
from tests.simulation.world import BANK, BANK_SCHEMA, EVENTS, REJECTS, SKEW_MS_MAX, Actor, World

SHARE = 0.12
"""The share of runs that have branches."""
BRANCHES_MAX = 3
SIDE = "side/"
"""A table that transactions of the lake and of branches write with the bank."""
COLUMNS = ("id", "amount", "owner")
Act = Callable[[Actor], None]


def chance_of(world: World) -> random.Random:
    """Return the source of chance of a run's branches."""
    return random.Random(f"{world.seed} branches")


def has_branches(world: World) -> bool:
    """Whether a run has branches."""
    return chance_of(world).random() < SHARE


def set_up(world: World, lake: Lake) -> None:
    """Create the table that is written with the bank."""
    world.checker.tags.tick_us = world.bucket.tick_us
    properties = lake.table("bank").snapshot().properties
    kept = {name: text for name, text in properties.items() if name.startswith("delta.") and "Duration" in name}
    if chance_of(world).random() < SHARE / 2:  # the same number as above
        kept["delta.enableDeletionVectors"] = "true"
    table = lake.create_table(SIDE[:-1], BANK_SCHEMA, sort_by=["id"], properties=kept)
    table.append([{"id": f"a{at}", "amount": 0, "owner": "side"} for at in range(4)])
    world.checker.sorted_by[SIDE] = ("id",)


def _known(actor: Actor) -> list[BranchModel]:
    known = actor.world.checker.branches.values()
    return [each for each in known if isinstance(each, BranchModel) and each.is_there]


def pause(actor: Actor) -> None:
    if actor.chance.random() < 0.5:
        actor.world.scheduler.wait(int(3 * SECOND_US * actor.chance.random() ** 2))


def cut(actor: Actor) -> None:
    """Cut a branch of the lake as it is, or was; some expire."""
    world, chance = actor.world, actor.chance
    if len(_known(actor)) >= BRANCHES_MAX:
        return
    name = f"{actor.name}-{actor.faults.index}"
    moment = None
    if chance.random() < 0.15:
        version = chance.choice(world.model(_root(actor)).versions)
        moment = datetime.fromtimestamp(min(version.at_us // 1_000_000 + 1, actor.main.clock.now_ms() // 1000), UTC)
    expires = timedelta(hours=chance.choice([2, 30])) if chance.random() < 0.2 else None
    try:
        made = actor.main.branch(name, moment, expires=expires)
    except VersionExpired:
        if moment is None:
            raise
        return
    keeper = made.keeper
    key = keeper_key(None, BRANCH, name)
    if keeper.moment_ms is not None:
        moment_ms = keeper.moment_ms
    else:
        moment_ms = world.checker.tags.stored_ms(world.bucket.objects[key][1])
    until_us = None if keeper.expires_ms is None else 1000 * (keeper.expires_ms - SKEW_MS_MAX) - MINUTE_US
    checker = world.checker
    BranchModel(
        checker.scheduler, checker.limits,
        name=name, id=keeper.id, moment_ms=moment_ms, until_us=until_us, lake=checker,
    )  # fmt: skip
    world.scheduler.note(f"cut {name} {keeper.id} at {moment_ms}")


def on_branch(actor: Actor, act: Act) -> None:
    """Do something on a branch. One that is discarded or expires meanwhile may fail in any way."""
    known = _known(actor)
    if not known:
        return
    branch = actor.chance.choice(known)
    actor.on = branch
    branch.busy += 1
    actor.world.scheduler.note(f"on {branch.name}: {act.__name__}")
    try:
        act(actor)
        if id(actor.wanted) in branch.lost:
            raise Violation("what is written on a branch that is gone is refused", f"{branch.name}: {actor.wanted}")
    except AlluviaError as error:
        if not branch.is_there:
            actor.world.scheduler.note(f"{branch.name} is gone: {error}")
            return
        if not isinstance(error, CommitUnknown):
            branch.refused(actor.wanted)
        if not isinstance(error, Conflict):
            raise
    finally:
        branch.busy -= 1
        actor.on = actor.wanted = None


def _root(actor: Actor) -> str:
    roots = {"bank": [BANK, SIDE], "events": [EVENTS]}.get(actor.world.scenario.focus, [BANK, SIDE, EVENTS])
    return actor.chance.choice(roots)


def _branch(actor: Actor) -> BranchModel:
    assert actor.on is not None
    return actor.on


def ingest(actor: Actor) -> None:
    """Ingest events of the branch's own, and some that clients of the lake have sent."""
    world, chance, branch = actor.world, actor.chance, _branch(actor)
    batch = [world.new_event(branch=branch.id) for _ in range(chance.randint(0, 3))]
    mine = [event for event in world.checker.events.values() if event.branch == branch.id and event not in batch]
    batch += chance.sample(mine, min(len(mine), chance.randint(0, 2)))
    theirs = [event for event in world.sendable() if not event.reject]
    batch += chance.sample(theirs, min(len(theirs), chance.choice([0, 0, 1])))
    if not batch:
        return
    for event in batch:
        branch.events.setdefault(event.id, type(event)(event.id, event.first_us))
    branch.table(EVENTS)
    ids = [event.id for event in batch]
    world.scheduler.note(f"sends {' '.join(ids)} to {branch.name}")
    actor.intent = Steps({"WRITE": actor.sends(ids)})
    contents = contents_of([RawEvent(0, value_of(event)) for event in batch])
    done = actor.table(EVENTS).ingest(event_rows(batch, actor.main.clock.now_us()), contents)
    if done.appended + done.duplicates != len(batch) or done.clashes:
        raise Violation("each event is new or a duplicate", f"{done} of {len(batch)}")
    if branch.is_there:
        branch.acknowledged(ids, EVENTS, REJECTS)


def add_both(actor: Actor) -> None:
    """Append a row to the bank and to the side table in one transaction; or append or delete one there alone."""
    world, what = actor.world, actor.chance.random()
    if what < 0.3:
        rows = sorted(row[0] for row in (world.checker if actor.on is None else actor.on).table(SIDE).tip.rows)
        name = actor.chance.choice(rows or ["a0"])
        actor.intent = ChangeRows(lambda row: row["id"] == name, lambda _: None)
        actor.table(SIDE).delete(f"id = '{name}'")
        return
    if what < 0.5:
        world.pairs += 1
        row = (f"side{world.pairs}", 0, "side")
        actor.intent = AddRows((row,), COLUMNS)
        actor.table(SIDE).append([dict(zip(COLUMNS, row, strict=True))])
        return
    world.pairs += 1
    row = (f"both{world.pairs}", 0, "both")
    together = Together({root: AddRows((row,), COLUMNS) for root in (BANK, SIDE)})
    tables = StagedTables(actor.lake.catalog, ["bank", "side"])
    actor.intent = together
    for name in ("bank", "side"):
        append(tables.handle(name), [dict(zip(COLUMNS, row, strict=True))])
    pause(actor)
    tables.commit()


def aside(actor: Actor) -> None:
    try:
        add_both(actor)
    except Conflict:
        actor.world.checker.refused(actor.wanted)


def keep_up(actor: Actor) -> None:
    """Merge files, write a checkpoint or clean up, on the branch."""
    table, what = actor.table(_root(actor)), actor.chance.random()
    if what < 0.5:
        actor.intent = NoRows(("OPTIMIZE",))
        table.optimize(full=True)
    elif what < 0.7:
        actor.intent = NoRows(())
        table.checkpoint()
    else:
        actor.intent = NoRows(("VACUUM", "VACUUM START", "VACUUM END"))
        table.vacuum(actor.chance.choice([None, timedelta(hours=20)]))


def compact(actor: Actor) -> None:
    """Merge all files of one of the lake's tables, also those that branches have changed."""
    actor.intent = NoRows(("OPTIMIZE",))
    try:
        actor.main.table(_root(actor)[:-1]).optimize(full=True)
    finally:
        actor.intent = None


def restore(actor: Actor) -> None:
    """Bring an older version back, of the branch or of the lake from before it was cut."""
    root = _root(actor)
    model = _branch(actor).table(root)
    version = max(2 if root == BANK else 0, model.tip.number - actor.chance.choice([1, 2, 4]))
    if version >= model.tip.number:
        return
    actor.intent = RestoreRows(version)
    try:
        actor.table(root).restore(version=version)
    except VersionExpired:
        if _branch(actor).is_kept(model, version):
            raise


def look(actor: Actor) -> None:
    """Read a table on a branch."""
    on_branch(actor, _look)


def _look(actor: Actor) -> None:
    branch, root = _branch(actor), _root(actor)
    model = branch.table(root)
    least = model.tip.number
    snapshot = actor.table(root).snapshot()
    if branch.is_there and not least <= snapshot.version <= model.tip.number:
        raise Violation("a branch shows what was committed on it", f"{branch.name}: {root} {snapshot.version}")
    version = model.versions[snapshot.version]
    try:
        rows = scan(snapshot, actor.lake.store).read_all()
    except (Corrupt, VersionExpired):
        if branch.is_kept(model, version.number):
            raise
        return
    _same(branch, root, version, rows)


def _same(branch: BranchModel, root: str, version: Version, rows: pa.Table) -> None:
    if branch.is_there and branch.settled(root, version.number):
        branch.same_rows(branch.name, tuples(rows), version, tuple(rows.schema.names))


def compare(actor: Actor) -> None:
    """Ask for the difference of a branch, in rows."""
    on_branch(actor, _compare)


def _compare(actor: Actor) -> None:
    branch = _branch(actor)
    before = branch.changed()
    found = {f"{each.name}/": each for each in actor.main.on_branch(branch.name).diff()}
    if not branch.is_there or branch.changed() != before:
        return
    for root, tip in before.items():
        if not branch.settled(root, tip):
            continue
        gone, come, _ = branch.change(root, tip)
        told = found[root]
        counts = told.rows_removed + (told.rows_changed or 0), told.rows_added + (told.rows_changed or 0)
        if counts != (gone.total(), come.total()):
            raise Violation("a diff is what the branch has done", f"{branch.name}: {told}, not {gone} and {come}")


def publish(actor: Actor) -> None:
    """Publish a branch: all that was done on it is in the lake, or nothing of it."""
    known = _known(actor)
    if not known:
        return
    world, branch = actor.world, actor.chance.choice(known)
    isolation = actor.chance.choice(["serializable", "serializable", "snapshot"])
    changed, quiet = branch.changed(), not branch.busy and not branch.publishes
    events = [event for event in branch.events.values() if event.acknowledged and not event.deleted]
    intent = Publish(branch, reads=isolation == "serializable")
    actor.intent = intent
    world.scheduler.note(f"publishes {branch.name}: {changed}")
    try:
        actor.main.on_branch(branch.name).publish(isolation=isolation)
    except AlluviaError as error:
        if not branch.is_there:
            world.scheduler.note(f"{branch.name} is gone: {error}")
            if not isinstance(error, CommitUnknown):
                world.checker.refused(intent)
            return
        others = any(
            version.operation != "OPTIMIZE"
            for root in branch.bases
            for version in world.model(root).versions[branch.bases[root] + 1 :]
        )
        conflicts = isinstance(error, Conflict) and not isinstance(error, TransactionExpired)
        if conflicts and quiet and len(branch.publishes) == 1 and not others and not branch.busy:
            raise Violation("a publish conflicts with others", f"{branch.name}: {error}") from error
        if not isinstance(error, Conflict):
            raise
        world.checker.refused(intent)
        return
    finally:
        actor.intent = None
    world.scheduler.note(f"published {branch.name}")
    if not branch.ended:
        _check_published(world, branch, changed)
    tip = branch.table(EVENTS).tip.number
    for event in events if tip == changed.get(EVENTS, tip) else ():  # a restore may have taken them back meanwhile
        known_as = world.checker.events[event.id]
        known_as.branch, known_as.acknowledged = None, True


def _check_published(world: World, branch: BranchModel, changed: dict[str, int]) -> None:
    """Raise `Violation` unless all tables that the branch had changed, and nobody changed since, were published."""
    ledger = world.checker.ledger
    done = {root for each in branch.publishes for root in each.intents
            if each.transaction_id is not None and ledger.decided(each.transaction_id) == "commit"}  # fmt: skip
    same = {root for root, version in changed.items() if branch.tables[root].tip.number == version}
    if missing := same - done - branch.published.keys():
        raise Violation("a publish is all or nothing", f"{branch.name}: {sorted(missing)}")


def discard(actor: Actor) -> None:
    """Discard a branch, which leaves nothing."""
    known = _known(actor)
    if not known:
        return
    world, branch = actor.world, actor.chance.choice(known)
    branch.end()
    world.scheduler.note(f"discards {branch.name}")
    actor.main.drop_branch(branch.name)


def carry_out(_: World, lake: Lake) -> None:
    """Carry out what was decided of the tables that branches change."""
    for name in ("bank", "side", "events"):
        handle = lake.catalog.handle(name)
        handle.carry_out(handle.newest())


def finish(world: World, _: Lake) -> None:
    """Transactions and publishes are all or nothing, and branches show what they should."""
    world.checker.ledger.check_all_or_nothing(world.checker.failed)
    for branch in [*world.checker.branches.values()]:
        assert isinstance(branch, BranchModel)
        if not branch.is_there:
            continue
        cold = world.open(Process(), f"finish of {branch.name}", 0).on_branch(branch.name)
        for root in sorted(root for root in branch.tables if not root.startswith("_alluvia/")):
            handle = cold.catalog.handle(root[:-1])
            handle.carry_out(handle.newest())
            rows = cold.table(root[:-1]).scan().read_all()
            _same(branch, root, branch.tables[root].tip, rows)
        branch.ledger.check_all_or_nothing(branch.failed)
