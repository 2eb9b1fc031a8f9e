"""Transactions over the bank and a vault in some runs: transfers, counters, flags, pairs of rows, readers of both.

It takes its chances from a source of its own, so that runs without a vault are as they were.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from alluvia.lake import Lake
from alluvia.operations.append import append
from alluvia.operations.cut import take_cut
from alluvia.operations.lake_transaction import StagedTables
from alluvia.operations.scan import scan
from alluvia.operations.update import update
from alluvia.table.snapshot import Snapshot
from tests.simulation.faults import SECOND_US
from tests.simulation.intents import AddRows, ChangeRows, NoRows
from tests.simulation.ledger import Together
from tests.simulation.model import tuples
from tests.simulation.rollups import has_rollup
from tests.simulation.scheduler import Violation
from tests.simulation.world import ACCOUNTS, BANK, BANK_SCHEMA, Actor, World

SHARE = 0.2
"""The share of runs about the bank that have a vault."""
VAULT = "vault/"
ROOTS = (BANK, VAULT)
COLUMNS = ("id", "amount", "owner")


def chance_of(world: World) -> random.Random:
    """Return the source of chance of a run's vault."""
    return random.Random(f"{world.seed} transfers")


def has_vault(world: World) -> bool:
    """Whether a run has a vault."""
    return world.scenario.focus in ("bank", "all") and not has_rollup(world) and chance_of(world).random() < SHARE


def set_up(world: World, lake: Lake) -> None:
    """Create the vault, and a flag in each table."""
    properties = {name: text for name, text in lake.table("bank").snapshot().properties.items() if name[:6] == "delta."}
    kept = {name: properties[name] for name in properties if "interval" in name.lower() or "Duration" in name}
    lake.create_table("vault", BANK_SCHEMA, sort_by=["id"], properties=kept)
    world.checker.sorted_by[VAULT] = ("id",)
    lake.table("vault").append([{"id": f"a{at}", "amount": 100, "owner": "bank"} for at in range(ACCOUNTS)])
    world.checker.totals[VAULT] = 100 * ACCOUNTS
    for name in ("bank", "vault"):
        lake.table(name).append([{"id": "flag", "amount": 0, "owner": "bank"}])


def _names(actor: Actor) -> tuple[str, ...]:
    return ("bank", "vault") if actor.chance.random() < 0.7 else ()


def _pause(actor: Actor) -> None:
    if actor.chance.random() < 0.5:
        actor.world.scheduler.wait(int(3 * SECOND_US * actor.chance.random() ** 2))


def _change(name: str, change: Callable[[int], int]) -> ChangeRows:
    def changed(row: dict[str, object]) -> dict[str, object]:
        return {**row, "amount": change(int(str(row["amount"])))}

    return ChangeRows(lambda row: row["id"] == name, changed)


def _done(actor: Actor, together: Together) -> None:
    """Check what was acknowledged: it was decided."""
    ledger = actor.world.checker.ledger
    if together.transaction_id is not None and ledger.decided(together.transaction_id) != "commit":
        raise Violation("an acknowledged transaction has happened", together.transaction_id)


def transfer(actor: Actor) -> None:
    """Move an amount from an account of one table to one of the other."""
    chance = actor.chance
    amount = chance.randint(1, 5) * chance.choice([-1, 1])
    one, other = (f"a{chance.randrange(ACCOUNTS)}" for _ in ROOTS)
    together = Together(
        {BANK: _change(one, lambda old: old - amount), VAULT: _change(other, lambda old: old + amount)},
        {BANK: -amount, VAULT: amount},
    )
    tables = StagedTables(actor.lake, _names(actor))
    actor.intent = together
    for name, account, sign in chance.sample([("bank", one, "-"), ("vault", other, "+")], 2):
        update(tables.handle(name), {"amount": f"amount {sign} ({amount})"}, f"id = '{account}'")
        _pause(actor)
    tables.commit()
    _done(actor, together)


def count_up(actor: Actor) -> None:
    """Read an amount of each table, and write one more: no increment may be lost."""
    account = f"a{actor.chance.randrange(ACCOUNTS)}"
    together = Together({root: _change(account, lambda old: old + 1) for root in ROOTS}, dict.fromkeys(ROOTS, 1))
    tables = StagedTables(actor.lake, _names(actor))
    actor.intent = together
    for name in ("bank", "vault"):
        handle = tables.handle(name)
        found = scan(handle.snapshot(), handle.store, ["amount"], f"id = '{account}'").read_all()
        _pause(actor)
        update(handle, {"amount": str(found["amount"][0].as_py() + 1)}, f"id = '{account}'")
    tables.commit()
    _done(actor, together)


def raise_flag(actor: Actor) -> None:
    """Raise the flag of one table only while that of the other is down; or take both down."""
    world, chance = actor.world, actor.chance
    mine, theirs = chance.sample(["bank", "vault"], 2)
    tables = StagedTables(actor.lake, _names(actor))
    flags = {}
    for name in (theirs, mine):
        handle = tables.handle(name)
        found = scan(handle.snapshot(), handle.store, ["amount"], "id = 'flag'").read_all()
        if not len(found):  # a restore took it away
            return
        flags[name] = found["amount"][0].as_py()
    _pause(actor)
    up = not any(flags.values())
    change = {f"{mine}/": 1} if up else {f"{name}/": -flag for name, flag in flags.items() if flag}
    intents = {root: _change("flag", lambda _: int(up)) for root in change}
    together = Together({root: intents.get(root, NoRows(("READ",))) for root in ROOTS}, change, flag=up)
    actor.intent = together
    for root in change:
        update(tables.handle(root[:-1]), {"amount": str(int(up))}, "id = 'flag'")
    tables.commit()
    _done(actor, together)
    world.scheduler.note(f"flags {flags}")


def append_both(actor: Actor) -> None:
    """Append a row to both tables."""
    actor.world.pairs += 1
    row = (f"pair{actor.world.pairs}", 0, "pairs")
    together = Together({root: AddRows((row,), COLUMNS) for root in ROOTS})
    tables = StagedTables(actor.lake, _names(actor))
    actor.intent = together
    for name in ("bank", "vault"):
        append(tables.handle(name), [dict(zip(COLUMNS, row, strict=True))])
        _pause(actor)
    tables.commit()
    _done(actor, together)


def read_both(actor: Actor) -> None:
    """Read both tables at one moment: each transaction is in both of them or in none."""
    checker = actor.world.checker
    handles = [actor.lake.handle(name) for name in ("bank", "vault")]
    least = {name: checker.tables[f"{name}/"].tip.number for name in ("bank", "vault")}
    cut = take_cut(handles)
    seen: dict[str, set[str]] = {}
    for name, state in cut.states.items():
        root = f"{name}/"
        if state.version < least[name]:
            raise Violation("a reader sees what was committed before", f"{root}: {state.version}, not {least[name]}")
        undone = {claim.transaction_id for claim in cut.undone[name]}
        done = {tx for tx, each in checker.ledger.known.items() if each.carried_out.get(root, 1 << 60) <= state.version}
        seen[root] = {tx for tx in done | undone if len(checker.ledger.known[tx].intents) == len(ROOTS)}
    if seen[BANK] != seen[VAULT]:
        raise Violation("a cut holds a transaction in all tables or in none", f"{seen[BANK] ^ seen[VAULT]}")
    if actor.chance.random() < 0.3:
        for handle in handles:
            root = handle.root
            version = checker.tables[root].versions[cut.states[handle.name].version]
            if not cut.undone[handle.name]:
                snapshot = Snapshot(cut.state(handle.name), root, handle.name)
                found = scan(snapshot, handle.store).read_all()
                checker.same_rows(actor.name, tuples(found), version, tuple(found.schema.names))


def check_flags(world: World) -> None:
    """At most one flag is up, unless a restore has put one back."""
    if any(version.operation == "RESTORE" for version in world.model(BANK).versions):
        return
    up = [root for root in ROOTS for row in world.model(root).tip.rows.elements() if row[:2] == ("flag", 1)]
    if len(up) > 1:
        raise Violation("two transactions that exclude each other do not both happen", str(up))


def finish(world: World, lake: Lake) -> None:
    """Carry out what was decided, and see that nothing has happened in part."""
    for handle in (lake.handle("bank"), lake.handle("vault")):
        handle.carry_out(handle.newest())
    world.checker.ledger.check_all_or_nothing(world.checker.failed)
    check_flags(world)


ACTS: tuple[tuple[str, Callable[[Actor], None]], ...] = (
    ("mover", transfer),
    ("counter", count_up),
    ("flagger", raise_flag),
    ("flagger", raise_flag),
    ("pairer", append_both),
    ("looker", read_both),
)


TOGETHER = frozenset(act for _, act in ACTS)


def movers(world: World) -> Iterator[tuple[str, Callable[[Actor], None]]]:
    """Yield the names of those who use both tables, and what they do."""
    chance = chance_of(world)
    chance.random()
    for at in range(chance.choice([2, 3, 3, 4])):
        name, act = chance.choice(ACTS)
        yield f"{name}{at}", act
