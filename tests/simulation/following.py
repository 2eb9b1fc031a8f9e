"""A stream in some runs, those who add to the table that it follows, and those who move its rows into another.

They take their chances from a source of their own, so that runs without a stream are as they were.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from alluvia.api.lake import Lake
from alluvia.operations.append.append import append
from alluvia.operations.checkpointing import checkpoint
from alluvia.operations.retention.vacuum import vacuum
from alluvia.operations.streams.stream_batches import next_batch
from alluvia.operations.streams.streams import create_stream
from alluvia.operations.transactions.lake_transaction import StagedTables
from alluvia.table_names import STREAMS
from tests.simulation.faults import SECOND_US
from tests.simulation.intents import AddRows, NoRows, Rows, Steps
from tests.simulation.ledger import Together
from tests.simulation.model import Row, TableModel, Version, tuples
from tests.simulation.rollups import has_rollup
from tests.simulation.scheduler import Violation
from tests.simulation.transfers import has_vault
from tests.simulation.world import Actor, World

SHARE = 0.15
"""The share of runs that have a stream."""
ORDERS, NOTES, ARRIVED = "orders/", "notes/", "arrived/"
NAME = "new_orders"
LOG = f"{STREAMS}{NAME}"
COLUMNS = ("id",)
Act = Callable[[Actor], None]


def chance_of(world: World) -> random.Random:
    """Return the source of chance of a run's stream."""
    return random.Random(f"{world.seed} stream")


def has_stream(world: World) -> bool:
    """Whether a run has a stream."""
    return not has_vault(world) and not has_rollup(world) and chance_of(world).random() < SHARE


def set_up(world: World, lake: Lake) -> None:
    """Create the tables and the stream, which has one row to give."""
    properties = {"delta.checkpointInterval": str(world.scenario.checkpoint_interval)}
    for root in (ORDERS, NOTES, ARRIVED):
        lake.create_table(root[:-1], {"id": "string"}, properties=properties)
    create_stream(lake.catalog, NAME, "orders")
    lake.table("orders").append([{"id": "first"}])


@dataclass(frozen=True)
class Arrive:
    """Rows arrive that are not there yet."""

    rows: tuple[Row, ...]

    def check(self, table: TableModel, before: Version, after: Version, removed: Rows, added: Rows) -> None:
        AddRows(self.rows, COLUMNS).check(table, before, after, removed, added)
        twice = [row for row, number in after.rows.items() if number > 1]
        if twice:
            raise Violation("a change arrives once", f"{twice} in version {after.number}")


def order(actor: Actor) -> None:
    """Add a row to the table that the stream follows."""
    row = _new_row(actor)
    actor.intent = AddRows((row,), COLUMNS)
    append(actor.lake.catalog.handle("orders"), [{"id": row[0]}])


def order_and_note(actor: Actor) -> None:
    """Add a row to two tables in one transaction: the stream follows one of them."""
    row = _new_row(actor)
    together = Together({root: AddRows((row,), COLUMNS) for root in (ORDERS, NOTES)})
    tables = StagedTables(actor.lake.catalog, ["orders", "notes"])
    actor.intent = together
    for name in ("orders", "notes"):
        append(tables.handle(name), [{"id": row[0]}])
    tables.commit()


def follow(actor: Actor) -> None:
    """Move rows through the stream, some or all that wait."""
    chance = actor.chance
    tables = StagedTables(
        actor.lake.catalog, ["arrived"] if chance.random() < 0.5 else [], whole_lake=chance.random() < 0.5
    )
    batch = tables.read_stream(NAME, chance.choice([None, None, 1, 2]))
    rows = tuples(batch.reader().read_all().select(list(COLUMNS)))
    if not rows:
        return
    actor.intent = Together({f"{LOG}/": NoRows(("READ STREAM",)), ARRIVED: Arrive(tuple(rows))})
    append(tables.handle("arrived"), [{"id": row[0]} for row in rows])
    if chance.random() < 0.5:
        actor.world.scheduler.wait(int(3 * SECOND_US * chance.random() ** 2))
    tables.commit()


def tend(actor: Actor) -> None:
    """Checkpoint or vacuum the stream's log."""
    handle = actor.lake.catalog.log_handle(LOG)
    if actor.chance.random() < 0.5:
        actor.intent = NoRows(())
        checkpoint(handle)
        return
    actor.intent = Steps({"VACUUM": NoRows(("VACUUM",))})
    vacuum(handle)


def pack(actor: Actor) -> None:
    """Rewrite the files of the table that the stream follows, whose rows stay."""
    actor.intent = Steps({"OPTIMIZE": NoRows(("OPTIMIZE",))})
    actor.table(ORDERS).optimize(full=True)


def _new_row(actor: Actor) -> Row:
    actor.world.pairs += 1
    return (f"{actor.name} {actor.world.pairs}",)


def finish(world: World, lake: Lake) -> None:
    """Carry out what was decided, and see that each row has arrived once or is what the stream gives next."""
    for handle in (*map(lake.catalog.handle, ("orders", "notes", "arrived")), lake.catalog.log_handle(LOG)):
        handle.carry_out(handle.newest())
    world.checker.ledger.check_all_or_nothing(world.checker.failed)
    waiting = Counter(tuples(next_batch(lake.catalog, NAME).reader().read_all().select(list(COLUMNS))))
    there = world.model(ARRIVED).tip.rows + waiting
    if there != world.model(ORDERS).tip.rows:
        lost, more = world.model(ORDERS).tip.rows - there, there - world.model(ORDERS).tip.rows
        raise Violation("a change arrives once", f"lost {dict(lost)}, too much {dict(more)}")


ACTS: tuple[tuple[str, Act], ...] = (
    ("orderer", order),
    ("orderer", order),
    ("noter", order_and_note),
    ("follower", follow),
    ("follower", follow),
    ("tender", tend),
    ("packer", pack),
)
TOGETHER = frozenset({order_and_note, follow})


def followers(world: World) -> Iterator[tuple[str, Act]]:
    """Yield the names of those who use the stream and its tables, and what they do."""
    chance = chance_of(world)
    chance.random()
    yield "order0", order
    for at in range(chance.choice([2, 2, 3])):
        yield f"follow{at}", follow
    for at in range(chance.choice([1, 2, 3])):
        name, act = chance.choice(ACTS)
        yield f"{name} {at}", act
