"""A rollup of the bank in some runs, and those who refresh it, crashing and racing as everybody does.

It takes its chances from a source of its own, so that runs without one are as they were.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from alluvia.api.lake import Lake
from alluvia.operations.reading.relations import Evaluate
from alluvia.pipelines.execution import LocalExecution
from alluvia.pipelines.rollup_runs import refresh_rollup
from alluvia.query.process.evaluator import evaluation
from alluvia.rollups.change import PROGRESS
from alluvia.rollups.creating import create_rollup
from tests.simulation.intents import Rows
from tests.simulation.model import TableModel, Version
from tests.simulation.scheduler import Violation
from tests.simulation.world import BANK, Actor, World

SHARE = 0.12
"""The share of runs about the bank that have a rollup: a refresh takes longer than all else."""
TOTALS = "totals/"
QUERIES = (
    "SELECT owner, count(*) AS n, sum(amount) AS total FROM bank GROUP BY owner",
    "SELECT owner, count(DISTINCT id) AS n, sum(amount) AS total FROM bank GROUP BY owner",
)


def chance_of(world: World) -> random.Random:
    """Return the source of chance of a run's rollup."""
    return random.Random(f"{world.seed} rollup")


def has_rollup(world: World) -> bool:
    """Whether a run has a rollup."""
    return world.scenario.focus in ("bank", "all") and chance_of(world).random() < SHARE


def computes(lake: Lake) -> Evaluate:
    return evaluation(lake.store)


def set_up(world: World, lake: Lake) -> None:
    """Create the rollup, empty."""
    query = chance_of(world).choice(QUERIES)
    create_rollup(lake.catalog, "totals", query, computes(lake), properties={"delta.checkpointInterval": "3"})
    world.checker.sorted_by[TOTALS] = ("owner",)


@dataclass
class ShowsSource:
    """The rollup shows the version of the bank that the same commit records, which is newer than that of before."""

    world: World

    def check(self, table: TableModel, before: Version, after: Version, removed: Rows, added: Rows) -> None:
        shown = table.apps.get(PROGRESS)
        if after.operation != "REFRESH" or shown is None:
            raise Violation("a refresh records what it shows", f"{after.operation} records {shown}")
        source = self.world.model(BANK).versions[shown]
        if after.rows != expected(source):
            detail = f"of version {shown}: lacks {expected(source) - after.rows}, has {after.rows - expected(source)}"
            raise Violation("a rollup shows one version of its source", detail)
        if shown <= self.world.shown:
            raise Violation("a rollup applies each version once", f"{shown} after {self.world.shown}")
        self.world.shown = shown


def expected(source: Version) -> Rows:
    """Return the rows of the rollup for a version of the bank."""
    numbers: Counter[object] = Counter()
    totals: Counter[object] = Counter()
    owner, amount = source.columns.index("owner"), source.columns.index("amount")
    for row in source.rows.elements():
        numbers[row[owner]] += 1
        totals[row[owner]] += row[amount]
    return Counter((each, number, totals[each]) for each, number in numbers.items())


def refresher(actor: Actor) -> None:
    """Refresh the rollup; now and then see that it is up to date, or behind."""
    actor.intent = ShowsSource(actor.world)
    least = actor.world.model(BANK).tip.number
    report = refresh_rollup(actor.lake.catalog, "totals", LocalExecution(computes(actor.lake)))
    if report.source_version < least:
        raise Violation("a refresh brings the newest version", f"{report.source_version}, not {least} or later")


def refreshers(world: World) -> Iterator[str]:
    """Yield the names of those who refresh."""
    for at in range(chance_of(world).choice([1, 2, 2, 3])):
        yield f"refresher{at}"
