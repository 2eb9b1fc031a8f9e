"""Transactions over the bank, a purse and a vault in some runs: transfers, counters, flags, pairs of rows, readers.

It takes its chances from a source of its own, so that runs without a vault are as they were.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet

import pyarrow as pa
import pyarrow.parquet as pq

from alluvia.api.lake import Lake
from alluvia.api.lake_transaction import LakeTransaction
from alluvia.delta.data_files.scan import Scan
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Conflict, Corrupt, TransactionExpired
from alluvia.operations.append.append import append
from alluvia.operations.catalog.lake_snapshot import LakeSnapshot
from alluvia.operations.reading.scan import predicate_of, scan
from alluvia.operations.rows.edits import update_metrics
from alluvia.operations.rows.located_merge import LocatedClause, LocatedMerge, LocatedRules, kept
from alluvia.operations.rows.row_changes import change_rows
from alluvia.operations.rows.where_edits import update
from alluvia.operations.transactions.lake_commit import SERIALIZABLE
from alluvia.operations.transactions.lake_transaction import StagedTables
from tests.simulation.faults import SECOND_US
from tests.simulation.intents import AddRows, ChangeRows, Intent, NoRows
from tests.simulation.ledger import Read, ReadOnly, Together, found
from tests.simulation.model import tuples
from tests.simulation.rollups import has_rollup
from tests.simulation.scheduler import Violation
from tests.simulation.world import ACCOUNTS, BANK, BANK_SCHEMA, Actor, World

SHARE = 0.2
"""The share of runs about the bank that have a vault."""
VAULT, PURSE = "vault/", "purse/"
ROOTS = (BANK, VAULT)
NAMES = ("bank", "purse", "vault")
COLUMNS = ("id", "amount", "owner")


def chance_of(world: World) -> random.Random:
    """Return the source of chance of a run's vault."""
    return random.Random(f"{world.seed} transfers")


def has_vault(world: World) -> bool:
    """Whether a run has a vault."""
    return world.scenario.focus in ("bank", "all") and not has_rollup(world) and chance_of(world).random() < SHARE


def set_up(world: World, lake: Lake) -> None:
    """Create the vault and the purse, and a flag in two tables. The store tells time in whole seconds, as S3 does."""
    world.bucket.tick_us = SECOND_US
    properties = {name: text for name, text in lake.table("bank").snapshot().properties.items() if name[:6] == "delta."}
    kept = {name: properties[name] for name in properties if "interval" in name.lower() or "Duration" in name}
    for root in (VAULT, PURSE):
        table = lake.create_table(root[:-1], BANK_SCHEMA, sort_by=["id"], properties=kept)
        world.checker.sorted_by[root] = ("id",)
        table.append([{"id": f"a{at}", "amount": 100, "owner": "bank"} for at in range(ACCOUNTS)])
        world.checker.totals[root] = 100 * ACCOUNTS
    for name in ("bank", "vault"):
        lake.table(name).append([{"id": "flag", "amount": 0, "owner": "bank"}])


def _names(actor: Actor) -> tuple[str, ...]:
    return ("bank", "vault") if actor.chance.random() < 0.7 else ()


def _begin(actor: Actor) -> StagedTables:
    """Begin a transaction that names its tables, or looks at the whole lake first, or at each table when it is used."""
    names = _names(actor)
    return StagedTables(actor.lake.catalog, names, whole_lake=not names and actor.chance.random() < 0.5)


def _read(
    actor: Actor, tables: StagedTables, name: str, where: str, matches: Callable[[Mapping[str, object]], bool]
) -> Read:
    """Read rows as a transaction does, which notes what it was."""
    handle = tables.handle(name)
    newest = handle.newest()
    handle.read(Scan(newest, predicate_of(newest, where)))
    try:
        rows = scan(newest, handle.store, ["id", "amount"], where).read_all()
    except Corrupt as error:
        if actor.world.checker.is_kept(actor.world.model(handle.root), handle.base.version):
            raise
        raise TransactionExpired(str(error)) from error  # an erasure or a vacuum has taken what was read
    return Read(handle.root, matches, found(rows.schema.names, tuples(rows), lambda _: True))


def _row(name: str) -> Callable[[Mapping[str, object]], bool]:
    return lambda row: row["id"] == name


def _pause(actor: Actor) -> None:
    if actor.chance.random() < 0.5:
        actor.world.scheduler.wait(int(3 * SECOND_US * actor.chance.random() ** 2))


def _change(name: str, change: Callable[[int], int]) -> ChangeRows:
    def changed(row: dict[str, object]) -> dict[str, object]:
        return {**row, "amount": change(int(str(row["amount"])))}

    return ChangeRows(lambda row: row["id"] == name, changed)


def _amount(read: Read) -> int:
    return int(str(next(iter(read.rows))[1]))


def _done(actor: Actor, together: Together) -> None:
    """Check what was acknowledged: it was decided."""
    ledger = actor.world.checker.ledger
    if together.transaction_id is not None and ledger.decided(together.transaction_id) != "commit":
        raise Violation("an acknowledged transaction has happened", together.transaction_id)


def transfer(actor: Actor) -> None:
    """Move an amount from an account of one table to one of the other."""
    _move(actor, "bank", "vault")


def hand_on(actor: Actor) -> None:
    """Move an amount into the purse or out of it, so that what others see of two tables depends on the third."""
    _move(actor, *actor.chance.choice([("bank", "purse"), ("purse", "vault")]))


def _move(actor: Actor, source: str, target: str) -> None:
    chance = actor.chance
    amount = chance.randint(1, 5) * chance.choice([-1, 1])
    one, other = (f"a{chance.randrange(ACCOUNTS)}" for _ in ROOTS)
    together = Together(
        {f"{source}/": _change(one, lambda old: old - amount), f"{target}/": _change(other, lambda old: old + amount)},
        {f"{source}/": -amount, f"{target}/": amount},
    )
    tables = _begin(actor)
    actor.intent = together
    for name, account, sign in chance.sample([(source, one, "-"), (target, other, "+")], 2):
        update(tables.handle(name), {"amount": f"amount {sign} ({amount})"}, f"id = '{account}'")
        _pause(actor)
    tables.commit()
    _done(actor, together)


def count_up(actor: Actor) -> None:
    """Read an amount of each table, and write one more: no increment may be lost."""
    account = f"a{actor.chance.randrange(ACCOUNTS)}"
    together = Together({root: _change(account, lambda old: old + 1) for root in ROOTS}, dict.fromkeys(ROOTS, 1))
    tables = _begin(actor)
    actor.intent = together
    for name in ("bank", "vault"):
        read = _read(actor, tables, name, f"id = '{account}'", _row(account))
        together.reads.append(read)
        _pause(actor)
        update(tables.handle(name), {"amount": f"{_amount(read)} + 1"}, f"id = '{account}'")
    tables.commit()
    _done(actor, together)


def raise_flag(actor: Actor) -> None:
    """Raise the flag of one table only while that of the other is down; or take both down."""
    world, chance = actor.world, actor.chance
    mine, theirs = chance.sample(["bank", "vault"], 2)
    tables = _begin(actor)
    reads = [_read(actor, tables, name, "id = 'flag'", _row("flag")) for name in (theirs, mine)]
    if not all(read.rows for read in reads):  # a restore took it away
        return
    flags = {read.root[:-1]: _amount(read) for read in reads}
    _pause(actor)
    up = not any(flags.values())
    change = {f"{mine}/": 1} if up else {f"{name}/": -flag for name, flag in flags.items() if flag}
    intents = {root: _change("flag", lambda _: int(up)) for root in change}
    together = Together({root: intents.get(root, NoRows(("READ",))) for root in ROOTS}, change, up, reads=reads)
    actor.intent = together
    for root in change:
        update(tables.handle(root[:-1]), {"amount": str(int(up))}, "id = 'flag'")
    tables.commit()
    _done(actor, together)
    world.scheduler.note(f"flags {flags}")


def raise_flag_by_subquery(actor: Actor) -> None:
    """Raise a flag where no row of the other table says that its flag is up, as an UPDATE with a subquery does.

    What a query's process would do with files is done here. What is noted of it, and all that follows, is the library.
    """
    mine, theirs = actor.chance.sample(["bank", "vault"], 2)
    tx = LakeTransaction(actor.lake, _names(actor), SERIALIZABLE)
    seen = tx.catalog.readable((mine, theirs))
    scans = [Scan(seen[name], predicate_of(seen[name], "id = 'flag'")) for name in (mine, theirs)]
    for each in scans:
        tx.catalog.note_read(each)
    places, others = (_flags(actor, each) for each in scans)
    _pause(actor)
    if not places or not others or any(amount for *_, amount in (*places, *others)):
        return
    reads = [
        Read(each.snapshot.root, _row("flag"), Counter(("flag", amount) for *_, amount in flags))
        for each, flags in zip(scans, (places, others), strict=True)
    ]
    intents: dict[str, Intent] = {f"{mine}/": _change("flag", lambda _: 1), f"{theirs}/": NoRows(("READ",))}
    together = Together(intents, {f"{mine}/": len(places)}, flag=True, reads=reads)
    actor.intent = together
    found = pa.table({
        "file": pa.array([file for file, *_ in places], pa.int64()),
        "position": pa.array([position for _, position, _ in places], pa.int64()),
        "clause": pa.array([0] * len(places), pa.int32()),
        "amount": pa.array([1] * len(places), pa.int64()),
    })  # fmt: skip
    rules = LocatedRules("UPDATE", [LocatedClause("update", ["amount"])], {}, update_metrics)
    with kept(scans, found.schema, found.to_batches()) as rows:
        change_rows(tx.catalog.handle(mine), "update", lambda now: LocatedMerge(now, rows, rules))
    tx.commit()
    _done(actor, together)


def _flags(actor: Actor, scan: Scan) -> list[tuple[int, int, int]]:
    """Return where flags are, by the numbers of their files and their positions there, and what they show."""
    found = []
    for number, file in enumerate(scan.files):
        data = actor.world.bucket.objects.get(scan.snapshot.root + file.path)
        if data is None:
            raise TransactionExpired(f"{file.path} is gone: an erasure or a vacuum has taken what was to be read")
        rows = pq.ParquetFile(pa.BufferReader(data[0])).read(use_threads=False).to_pylist()
        found += [(number, at, row["amount"]) for at, row in enumerate(rows) if row["id"] == "flag"]
    return found


def append_both(actor: Actor) -> None:
    """Append a row to both tables."""
    actor.world.pairs += 1
    row = (f"pair{actor.world.pairs}", 0, "pairs")
    together = Together({root: AddRows((row,), COLUMNS) for root in ROOTS})
    tables = _begin(actor)
    actor.intent = together
    for name in ("bank", "vault"):
        append(tables.handle(name), [dict(zip(COLUMNS, row, strict=True))])
        _pause(actor)
    tables.commit()
    _done(actor, together)


def count_pairs(actor: Actor) -> None:
    """Count rows of the vault, and note how many there are in the bank, or in both: others may not come in between."""
    actor.world.pairs += 1
    name = f"count{actor.world.pairs}"
    tables = _begin(actor)
    read = _read(actor, tables, "vault", "owner = 'pairs'", lambda row: row["owner"] == "pairs")
    _pause(actor)
    row = (name, 0, str(read.rows.total()))
    intents: dict[str, Intent] = {BANK: AddRows((row,), COLUMNS), VAULT: NoRows(("READ",))}
    if actor.chance.random() < 0.5:
        intents[VAULT] = intents[BANK]
    together = Together(intents, reads=[read])
    actor.intent = together
    for root, intent in intents.items():
        if intent is intents[BANK]:
            append(tables.handle(root[:-1]), [dict(zip(COLUMNS, row, strict=True))])
    tables.commit()
    _done(actor, together)


def use_vault(actor: Actor) -> None:
    """Change the vault alone: a row of a pair comes, or all go."""
    table = actor.table(VAULT)
    if actor.chance.random() < 0.7:
        actor.world.pairs += 1
        row = (f"pair{actor.world.pairs}", 0, "pairs")
        actor.intent = AddRows((row,), COLUMNS)
        table.append([dict(zip(COLUMNS, row, strict=True))])
        return
    actor.intent = ChangeRows(lambda row: row["owner"] == "pairs", lambda _: None)
    table.delete("owner = 'pairs'")


def _least(actor: Actor) -> dict[str, int]:
    return {f"{name}/": actor.world.model(f"{name}/").tip.number for name in NAMES}


def _check_cut(actor: Actor, least: Mapping[str, int], cut: Mapping[str, tuple[int, AbstractSet[str]]]) -> None:
    """Check the versions of a cut, and the transactions that it holds: each in all tables or in none, with all before.

    The cut has for each table its version, and the transactions that it holds besides.
    """
    known = actor.world.checker.ledger.known
    seen: dict[str, set[str]] = {}
    for root, (version, undone) in cut.items():
        if version < least.get(root, 0):
            raise Violation("a reader sees what was committed before", f"{root}: {version}, not {least[root]}")
        seen[root] = {tx for tx, each in known.items() if each.carried_out.get(root, 1 << 60) <= version} | undone
    there = set().union(*seen.values())
    before = {tx for tx, each in known.items() if any(each.precedes(known[other]) for other in there)}
    for tx in there | before:
        missing = [root for root in known[tx].intents if root in cut and tx not in seen[root]]
        if missing:
            raise Violation(
                "a cut holds a transaction, and what it follows, in all tables or in none", f"{tx} {missing}"
            )


def only_read(actor: Actor) -> None:
    """Read both tables in a transaction, which writes nothing."""
    actor.intent = ReadOnly()
    least = _least(actor)
    names = _names(actor)
    tables = StagedTables(actor.lake.catalog, names, whole_lake=not names)
    try:
        for name in actor.chance.sample(["bank", "vault"], 2):
            _read(actor, tables, name, "owner = 'pairs'", lambda _: True)
            _pause(actor)
        handles = [tables.handle(name) for name in ("bank", "vault")]
        tables.commit()
    except TransactionExpired:
        raise
    except Conflict as error:
        raise Violation("a transaction that only reads never conflicts", str(error)) from error
    _check_cut(actor, least, {handle.root: (handle.base.version, handle.held) for handle in handles})


def read_late(actor: Actor) -> None:
    """Read tables in a transaction that looks at each when it is used, whatever has happened to the others by then."""
    actor.intent = ReadOnly()
    world, chance = actor.world, actor.chance
    least = _least(actor)
    tables = StagedTables(actor.lake.catalog)
    names = chance.sample(NAMES, chance.choice([2, 3]))
    try:
        for name in names:
            _read(actor, tables, name, "owner = 'bank'", lambda _: True)
            if world.skewed and tables.handle(name).base.version < least[f"{name}/"]:
                world.scheduler.note("commits of one second, taken in the order of two clocks")
                least.clear()
            _pause(actor)
        tables.commit()
    except TransactionExpired:
        raise
    except Conflict as error:
        raise Violation("a transaction that only reads never conflicts", str(error)) from error
    _check_cut(actor, least, {each.root: (each.base.version, each.held) for each in map(tables.handle, names)})


def read_both(actor: Actor) -> None:
    """Read both tables at one moment: each transaction is in both of them or in none."""
    checker = actor.world.checker
    actor.intent = ReadOnly()
    handles = [actor.lake.catalog.handle(name) for name in ("bank", "vault")]
    least = _least(actor)
    now = LakeSnapshot.of_tables(actor.lake.store, handles)
    tables = {handle.root: now.table(handle.name) for handle in handles}
    _check_cut(actor, least, {root: (at.version, at.held) for root, at in tables.items()})
    if actor.chance.random() < 0.3:
        for handle in handles:
            root = handle.root
            version = checker.tables[root].versions[tables[root].version]
            if not tables[root].claims:
                snapshot = Snapshot(tables[root].shown, root, handle.name)
                rows = scan(snapshot, handle.store).read_all()
                checker.same_rows(actor.name, tuples(rows), version, tuple(rows.schema.names))


def check_flags(world: World) -> None:
    """At most one flag is up, unless a restore has put one back."""
    if any(version.operation == "RESTORE" for version in world.model(BANK).versions):
        return
    up = [root for root in ROOTS for row in world.model(root).tip.rows.elements() if row[:2] == ("flag", 1)]
    if len(up) > 1:
        raise Violation("two transactions that exclude each other do not both happen", str(up))


def finish(world: World, lake: Lake) -> None:
    """Carry out what was decided, and see that nothing has happened in part."""
    for handle in map(lake.catalog.handle, NAMES):
        handle.carry_out(handle.newest())
    world.checker.ledger.check_all_or_nothing(world.checker.failed)
    check_flags(world)
