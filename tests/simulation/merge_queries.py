"""A table with a merge query in some runs, those who fill, fold and read it, and a plain model of what folding does.

It takes its chances from a source of its own, so that runs without one are as they were.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from alluvia.api.lake import Lake
from alluvia.delta.snapshot import Snapshot
from alluvia.errors import Corrupt, VersionExpired
from alluvia.operations.compaction.optimize import OptimizeOptions, optimize
from alluvia.operations.merge_query.folding import final
from tests.simulation.intents import AddRows, ChangeRows, NoRows, RestoreRows, Rows, Steps
from tests.simulation.model import TableModel, Version, tuples
from tests.simulation.rollups import computes
from tests.simulation.scheduler import Violation
from tests.simulation.world import HITS, Actor, World

SHARE = 0.1
"""The share of runs that have such a table: each merge and each reading of folded rows takes a query."""
COLUMNS = ("user", "place", "n", "best")
QUERY = "SELECT user, place, sum(n) AS n, max(best) AS best FROM source GROUP BY user, place"
USERS, PLACES = ("u", "v"), ("x", "y")


def chance_of(world: World) -> random.Random:
    """Return the source of chance of a run's table."""
    return random.Random(f"{world.seed} merge query")


def has_hits(world: World) -> bool:
    """Whether a run has such a table."""
    return world.scenario.focus != "events" and chance_of(world).random() < SHARE


def set_up(world: World, lake: Lake) -> None:
    """Create the table, with a row."""
    types = dict.fromkeys(COLUMNS[:2], "string") | dict.fromkeys(COLUMNS[2:], "long")
    retention = {"delta.deletedFileRetentionDuration": f"interval {world.scenario.file_retention_hours} hours"}
    properties = {"alluvia.merge_query": QUERY, "delta.checkpointInterval": "4", **retention}
    lake.create_table("hits", types, ["place"], sort_by=["user"], properties=properties)
    world.checker.sorted_by[HITS] = ("user",)


def folded(version: Version) -> Rows:
    """Return what folding makes of a version's rows."""
    sums: Counter[tuple[object, object]] = Counter()
    best: dict[tuple[object, object], int] = {}
    at = [version.columns.index(name) for name in COLUMNS]
    for row in version.rows.elements():
        user, place, n, high = (row[each] for each in at)
        sums[user, place] += n
        best[user, place] = max(high, best.get((user, place), high))
    return Counter((*key, sums[key], high) for key, high in best.items())


@dataclass(frozen=True)
class FoldRows:
    """Rows may become fewer, but stay the same once they are all folded."""

    def check(self, table: TableModel, before: Version, after: Version, removed: Rows, added: Rows) -> None:
        if folded(after) != folded(before) or added.total() > removed.total():
            detail = f"version {after.number} made {dict(added)} of {dict(removed)}"
            raise Violation("a merge folds each row once", detail)


def hit(actor: Actor) -> None:
    """Append a few rows."""
    chance = actor.chance
    rows = tuple(
        (chance.choice(USERS), chance.choice(PLACES), chance.randint(1, 3), chance.randint(0, 9))
        for _ in range(chance.randint(1, 3))
    )
    actor.intent = AddRows(rows, COLUMNS)
    actor.table(HITS).append([dict(zip(COLUMNS, row, strict=True)) for row in rows])


def merge(actor: Actor) -> None:
    """Merge some of the files, or all, and fold their rows."""
    actor.intent = Steps({"OPTIMIZE": FoldRows()})
    options = OptimizeOptions(full=actor.chance.random() < 0.7, max_files=actor.chance.choice([None, None, 2]))
    optimize(actor.lake.catalog.handle("hits"), options, evaluation=lambda _: computes(actor.lake))


def sweep(actor: Actor) -> None:
    """Delete a user, or restore a version, or clean up."""
    model, what = actor.world.model(HITS), actor.chance.random()
    table = actor.table(HITS)
    if what < 0.4:
        user = actor.chance.choice(USERS)
        actor.intent = ChangeRows(lambda row: row["user"] == user, lambda _: None)
        table.delete(f"user = '{user}'")
    elif what < 0.7 and model.tip.number > 1:
        version = actor.chance.randint(max(0, model.tip.number - 3), model.tip.number - 1)
        actor.intent = RestoreRows(version)
        _unless_expired(actor, model.versions[version], lambda: table.restore(version=version))
    else:
        actor.intent = NoRows(("VACUUM", "VACUUM START", "VACUUM END"))
        table.vacuum()


def read(actor: Actor) -> None:
    """Read the folded rows of the newest version."""
    model = actor.world.model(HITS)
    snapshot = actor.table(HITS).snapshot()
    _unless_expired(actor, model.versions[snapshot.version], lambda: _compare(actor, snapshot))


def _compare(actor: Actor, snapshot: Snapshot) -> None:
    version = actor.world.model(HITS).versions[snapshot.version]
    rows = Counter(tuples(final(snapshot, computes(actor.lake)).select(list(COLUMNS))))
    if rows != folded(version):
        detail = f"version {version.number} lacks {dict(folded(version) - rows)}, has {dict(rows - folded(version))}"
        raise Violation("final is what the query makes of all rows", detail)


def _unless_expired(actor: Actor, version: Version, act: Callable[[], object]) -> None:
    try:
        act()
    except (Corrupt, VersionExpired):
        if actor.world.checker.is_kept(actor.world.model(HITS), version.number):
            raise


def hitters(world: World) -> Iterator[tuple[str, Callable[[Actor], None]]]:
    """Yield the names of those who work on the table, and what they do."""
    chance = chance_of(world)
    counts = ((hit, [2, 3]), (merge, [1, 2, 2]), (sweep, [0, 1, 1]), (read, [0, 1]))
    for act, numbers in counts:
        yield from ((f"{act.__name__}{at}", act) for at in range(chance.choice(numbers)))
