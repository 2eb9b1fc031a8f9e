"""What actors do to the lake in a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pyarrow as pa

from alluvia.errors import AlluviaError, Corrupt, Invalid, Unsupported, VersionExpired, VersionNotFound
from alluvia.events.ingest.identity import contents_of
from alluvia.events.ingest.pipeline import ingest_batch
from alluvia.events.ingest.values import RawEvent
from tests.simulation import following
from tests.simulation.checker import Event, tuples
from tests.simulation.events import CLAIMS, KINDS, event_rows, value_of
from tests.simulation.faults import HOUR_US, SECOND_US
from tests.simulation.intents import AddColumn, AddRows, ChangeRows, ExpireRows, NoRows, PutRows, RestoreRows, Steps
from tests.simulation.model import Version
from tests.simulation.s3 import Crash
from tests.simulation.scheduler import Violation
from tests.simulation.world import ACCOUNTS, BANK, EVENTS, HITS, REJECTS, Actor

Act = Callable[[Actor], None]
APP = "app"
NEVER = (Corrupt, Invalid, Unsupported)
"""Errors that no fault makes."""
OPERATIONS_OPTIMIZE = ("OPTIMIZE",)
OPERATIONS_VACUUM = ("VACUUM", "VACUUM START", "VACUUM END")


def ingest(actor: Actor) -> None:
    """Send new events and old ones again, in whatever grouping; sometimes through the pipeline with broken ones."""
    world, chance = actor.world, actor.chance
    through = chance.random() < 0.4
    batch = [world.new_event(reject=through and chance.random() < 0.25) for _ in range(chance.randint(0, 4))]
    old = [event for event in world.sendable() if event not in batch and (through or not event.reject)]
    waiting = [event for event in old if not event.acknowledged]
    batch += chance.sample(waiting, min(len(waiting), chance.randint(0, 4)))
    batch += [event for event in chance.sample(old, min(len(old), chance.randint(0, 3))) if event not in batch]
    if not batch:
        return
    chance.shuffle(batch)
    if chance.random() < 0.1:
        batch.append(batch[0])
    ids = [event.id for event in batch]
    world.scheduler.note(f"sends {' '.join(ids)}")
    actor.intent = Steps({"WRITE": actor.sends(ids), "CREATE TABLE": NoRows(("CREATE TABLE",))})
    if through:
        _through_pipeline(actor, batch)
    else:
        rows = event_rows(batch, actor.lake.clock.now_us())
        done = actor.table(EVENTS).ingest(rows, contents_of([RawEvent(0, value_of(event)) for event in batch]))
        if done.appended + done.duplicates != len(batch) or done.clashes:
            raise Violation("each event is new or a duplicate", f"{done} of {len(batch)}")
    world.checker.acknowledged(ids, EVENTS, REJECTS)


def dispute(actor: Actor) -> None:
    """Send one of two contents under each id, as others do: the one that came first is the row, the other a clash."""
    world, chance = actor.world, actor.chance
    known = world.sendable(disputed=True)
    events = chance.sample(known, min(len(known), chance.randint(0, 3)))
    events += [world.new_event(disputed=True) for _ in range(chance.randint(0 if events else 1, 2))]
    events += events[: chance.randint(0, 1)]
    kinds = [chance.choice(CLAIMS) for _ in events]
    ids = [event.id for event in events]
    world.scheduler.note(f"claims {' '.join(map(str, zip(ids, kinds, strict=True)))}")
    actor.intent = Steps({"WRITE": actor.sends(ids)})
    done = actor.table(EVENTS).ingest(event_rows(events, actor.lake.clock.now_us(), kinds))
    if done.appended + done.duplicates + len(done.clashes) != len(events):
        raise Violation("each event is new, a duplicate or a clash", f"{done} of {len(events)}")
    world.checker.acknowledged(ids, EVENTS, REJECTS)
    stored = {row[0]: row[2] for row in world.model(EVENTS).tip.rows.elements()}
    for at, (event, kind) in enumerate(zip(events, kinds, strict=True)):
        if not event.deleted and (stored[event.id] != kind) != (at in done.clashes):
            detail = f"{event.id} is {stored[event.id]}; {kind} was sent at {at}, and the answer was {done}"
            raise Violation("an id with other content is a clash, and nothing else is", detail)


def _through_pipeline(actor: Actor, batch: list[Event]) -> None:
    events = [RawEvent(at, value_of(event)) for at, event in enumerate(batch)]
    answer = ingest_batch(actor.lake.catalog, "events", events, arrival_us=actor.lake.clock.now_us())
    rejected = sum(event.reject for event in batch)
    if (answer.accepted, answer.rejected) != (len(batch) - rejected, rejected):
        raise Violation("every event is accepted or rejected", f"{answer} for {len(batch)}, {rejected} of them broken")


def _any_root(actor: Actor) -> str:
    roots = sorted(actor.world.checker.tables.keys() - {HITS, following.LOG + "/", following.ORDERS})
    roots = [root for root in roots if root[:-1] not in actor.world.clones]
    focus = actor.world.scenario.focus
    if focus == "bank":
        return BANK
    return actor.chance.choice(
        [EVENTS, REJECTS] if focus == "events" and REJECTS in roots else [EVENTS, EVENTS, *roots]
    )


def _expect(actor: Actor, operations: tuple[str, ...]) -> None:
    actor.intent = NoRows(operations)


def optimize(actor: Actor) -> None:
    """Optimize; the rows of a scan before and after are the same by the check of each commit."""
    _expect(actor, OPERATIONS_OPTIMIZE)
    target = actor.chance.choice([None, None, 3000])
    actor.table(_any_root(actor)).optimize(target_size=target, full=actor.chance.random() < 0.4)


def checkpoint(actor: Actor) -> None:
    """Write a checkpoint."""
    _expect(actor, ())
    actor.table(_any_root(actor)).checkpoint()


def vacuum(actor: Actor) -> None:
    """Clean up: data files, and the log."""
    _expect(actor, OPERATIONS_VACUUM)
    retention = actor.chance.choice([None, None, timedelta(hours=20)])
    actor.table(_any_root(actor)).vacuum(retention)


def expire(actor: Actor) -> None:
    """Let events or rejects expire, where their table has a ttl: only rows that are old by this actor's clock."""
    world, clock = actor.world, actor.lake.clock
    root = actor.chance.choice([EVENTS, EVENTS, REJECTS] if REJECTS in world.checker.tables else [EVENTS])
    if world.ttl:
        column = "ts" if root == EVENTS else "received_at"
        actor.intent = ExpireRows(column, lambda: datetime.fromtimestamp((clock.now_us() - world.ttl_us) / 1e6, UTC))
        actor.table(root).expire()


def read(actor: Actor) -> None:
    """Take a snapshot, hold it a while, and read it."""
    world, chance = actor.world, actor.chance
    root = _any_root(actor)
    least = world.model(root).tip.number
    table = actor.table(root)
    snapshot = table.snapshot()
    model = world.model(root)
    if not least <= snapshot.version <= model.tip.number:
        raise Violation("a reader sees what was committed before", f"{root}: {snapshot.version}, not {least} or later")
    long = chance.random() < 0.3
    world.scheduler.wait(int((2 * HOUR_US if long else 2 * SECOND_US) * chance.random()))
    from alluvia.operations.reading.scan import scan

    _hold(actor, root, model.versions[snapshot.version], lambda: scan(snapshot, actor.lake.store).read_all())


def _hold(actor: Actor, root: str, version: Version, look: Callable[[], pa.Table]) -> None:
    """Compare what a reader sees; a version whose retention is over may be gone."""
    model = actor.world.model(root)
    try:
        found = look()
    except (Corrupt, VersionExpired):
        if actor.world.checker.is_kept(model, version.number):
            raise
        return
    actor.world.checker.same_rows(actor.name, tuples(found), version, tuple(found.schema.names))


def travel(actor: Actor) -> None:
    """Read an older version, by number or by time."""
    world, chance = actor.world, actor.chance
    root = _any_root(actor)
    model = world.model(root)
    wanted = model.versions[chance.randint(0, model.tip.number)]
    table = actor.table(root)
    if chance.random() < 0.5:
        _hold(actor, root, wanted, lambda: table.scan(version=wanted.number).read_all())
        return
    moment_ms = wanted.timestamp_ms + chance.choice([0, 0, 1, 1000])
    moment = datetime.fromtimestamp(moment_ms / 1000, UTC) + timedelta(microseconds=1)
    tip = model.tip.number
    try:
        snapshot = table.snapshot(timestamp=moment)
    except (VersionExpired, VersionNotFound):
        if world.checker.is_kept(model, wanted.number):
            raise
        return
    found = model.at_time(int(moment.timestamp() * 1000))
    assert found is not None
    if not min(tip, found) <= snapshot.version <= found and world.checker.is_kept(model, wanted.number):
        raise Violation("a moment has one version", f"{root} at {moment_ms}: {snapshot.version}, not {found}")


def append(actor: Actor) -> None:
    """Append under an application's number until it is acknowledged; another may send the same at the same time."""
    world = actor.world
    number = world.model(BANK).apps.get(APP, 0) + 1
    row = (f"{APP}-{number}", 0, APP)
    columns = ("id", "amount", "owner")
    for _ in range(4):
        actor.intent = AddRows((row,), columns)
        try:
            actor.table(BANK).append([dict(zip(columns, row, strict=True))], txn=(APP, number))
        except Crash:
            continue
        except AlluviaError as error:
            if isinstance(error, NEVER) or not world.scenario.rates:
                raise
            continue
        if world.model(BANK).apps.get(APP, 0) < number:
            raise Violation("an acknowledged append is there", f"{APP} {number}")
        break
    rows = Counter(each[0] for each in world.model(BANK).tip.rows.elements())
    if rows[row[0]] > 1:
        raise Violation("a numbered append happens once", f"{row[0]} is there {rows[row[0]]} times")


def bank(actor: Actor) -> None:
    """Move an amount from one account to another, or put other owners in."""
    one, other = (f"a{at}" for at in actor.chance.sample(range(ACCOUNTS), 2))
    amount = actor.chance.randint(1, 2)
    if actor.chance.random() < 0.6:
        change = {one: -amount, other: amount}

        def moved(row: dict[str, object]) -> dict[str, object]:
            return {**row, "amount": int(str(row["amount"])) + change[str(row["id"])]}

        actor.intent = ChangeRows(lambda row: row["id"] in change, moved)
        values = {"amount": f"amount + CASE WHEN id = '{one}' THEN -{amount} ELSE {amount} END"}
        actor.table(BANK).update(values, where=f"id IN ('{one}', '{other}')")
        return
    insert_only = actor.chance.random() < 0.5
    new = [f"n{at}" for at in actor.chance.sample(range(4), 2)]
    rows = tuple((each, 0, f"owner{at % 2 + 1}") for at, each in enumerate(new, amount))
    columns = ("id", "amount", "owner")
    actor.intent = PutRows(rows, columns, "id", insert_only=insert_only)
    given = [dict(zip(columns, row, strict=True)) for row in rows]
    actor.table(BANK).upsert(given, on=["id"], matched="ignore" if insert_only else "update")


def delete(actor: Actor) -> None:
    """Delete the events of a kind that came early, or an appender's rows."""
    world, chance = actor.world, actor.chance
    if world.scenario.focus == "bank" or chance.random() < 0.4:
        name = chance.choice([APP, "owner1", "owner2"])
        actor.intent = ChangeRows(lambda row: row["owner"] == name, lambda _: None)
        actor.table(BANK).delete(f"owner = '{name}'")
        return
    kind, last = chance.choice(KINDS), f"e{chance.randint(0, 9)}"
    actor.intent = ChangeRows(lambda row: row["event"] == kind and str(row["event_id"]) < last, lambda _: None)
    actor.table(EVENTS).delete(f"event = '{kind}' AND event_id < '{last}'")


def evolve(actor: Actor) -> None:
    """Add a column that may be null."""
    root = BANK if actor.world.scenario.focus == "bank" else actor.chance.choice([EVENTS, BANK])
    number = len(actor.world.model(root).tip.columns)
    if number < 12:
        name = f"more{number}_{actor.name.replace(' ', '_')}_{actor.faults.index}"
        actor.intent = AddColumn(name)
        actor.table(root).evolve(add={name: "string"})


def restore(actor: Actor) -> None:
    """Bring an older version of the bank back: the newest but a few, or any."""
    model = actor.world.model(BANK)
    newest = model.tip.number
    version = max(2, newest - actor.chance.choice([1, 2, 4, 100]))
    if version >= newest:
        return
    actor.intent = RestoreRows(version)
    try:
        actor.table(BANK).restore(version=version)
    except VersionExpired:
        if actor.world.checker.is_kept(model, version):
            raise
