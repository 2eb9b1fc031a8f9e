"""Deletes, updates, upserts, appends, merges, restores and vacuum in every order of their requests that seeds give.

Each commit must be what its operation makes of the version right before it: then the table is what it would be if its
operations had run one after another, in the order of their versions.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.errors import Conflict, VersionExpired
from alluvia.operations.rows.edits import RowChanges
from alluvia.store import MemoryStore
from tests.examples import seeds_from
from tests.property import row_model as model
from tests.property.interleaving import Scheduler, TakingTurns
from tests.property.row_model import Row, Rows

Effect = Callable[[Rows], Rows]
STEPS = 3
KEYS = range(1000, 1006)


def unchanged(rows: Rows) -> Rows:
    return rows


def _plus(rows: Rows, *, new: Sequence[Row]) -> Rows:
    return rows + Counter(new)


def _replaced(_: Rows, *, target: Rows) -> Rows:
    return target


class Race:
    """A table, and tasks on it that each have a handle of their own. `effects` has what each version must have done."""

    def __init__(self, seed: int, kind: str) -> None:
        self.clock = ManualClock(seed=seed)
        self.store = MemoryStore("m", self.clock)
        self.random = random.Random(seed)
        self.scheduler = Scheduler(seed)
        self.effects: dict[int, Effect] = {}
        table = model.create(Lake(self.store, self.clock), kind, self.random)
        for _ in range(3):
            table.append(model.as_dicts([model.random_row(self.random) for _ in range(6)]))
        self.start = table.snapshot().version

    def table(self, task: int | None = None) -> Table:
        store = self.store if task is None else TakingTurns(self.store, self.clock, self.scheduler, task)
        return Lake(store, self.clock).table("t")

    def did(self, report: RowChanges, effect: Effect) -> None:
        if report.files_added or report.files_removed:
            assert report.version not in self.effects
            self.effects[report.version] = effect

    def append(self, task: int) -> None:
        table = self.table(task)
        for _ in range(STEPS):
            rows = [model.random_row(self.random) for _ in range(2)]
            commit = table.append(model.as_dicts(rows))
            self.effects[commit.version] = partial(_plus, new=rows)

    def delete(self, task: int) -> None:
        table = self.table(task)
        for condition in self.random.sample(model.CONDITIONS, STEPS):
            report = table.delete(condition.sql)
            self.did(report, partial(model.delete, condition=condition))

    def update(self, task: int) -> None:
        table = self.table(task)
        for condition in self.random.sample(model.CONDITIONS, STEPS):
            change = self.random.choice(model.UPDATES)
            report = table.update(change.values, where=condition.sql)
            self.did(report, partial(model.update, change=change, condition=condition))

    def upsert(self, task: int) -> None:
        table = self.table(task)
        for _ in range(STEPS):
            rows: Sequence[Row] = model.random_source(self.random, 3)
            report = table.upsert(model.as_dicts(rows), on=["id"])
            self.did(report, partial(model.upsert, new=rows, matched="update", inserts=True))

    def merge(self, task: int) -> None:
        table = self.table(task)
        for _ in range(STEPS):
            for version in table.optimize(full=True).versions:
                self.effects[version] = unchanged

    def restore(self, task: int) -> None:
        table = self.table(task)
        target = model.rows_of(self.table(), self.start)
        for _ in range(2):
            try:
                report = table.restore(version=self.start)
            except VersionExpired:
                return
            if report.files_restored or report.files_removed:
                self.effects[report.version] = partial(_replaced, target=target)

    def vacuum(self, task: int) -> None:
        for _ in range(2):
            self.table(task).vacuum(timedelta(0))

    def check(self, seed: int) -> None:
        table = self.table()
        newest = table.snapshot().version
        before: Rows | None = None
        for version in range(self.start, newest + 1):
            try:
                rows = model.rows_of(table, version)
            except VersionExpired:
                assert before is None, f"seed {seed}: version {version} has expired, but an older one reads"
                continue
            if before is not None:
                expected = self.effects.get(version, unchanged)(before)
                assert rows == expected, f"seed {seed}, version {version}: {rows - expected}, {expected - rows}"
            before = rows
        assert before is not None


TEAMS = [
    ("delete", "delete"),
    ("delete", "merge"),
    ("delete", "append", "merge"),
    ("update", "update", "merge"),
    ("upsert", "upsert", "append"),
    ("upsert", "delete", "merge", "update"),
    ("delete", "restore", "append"),
    ("update", "restore", "vacuum", "merge"),
    ("upsert", "delete", "vacuum", "vacuum"),
]


def run(seed: int, kind: str, team: tuple[str, ...]) -> None:
    race = Race(seed, kind)
    errors = race.scheduler.run([getattr(race, name) for name in team])
    assert not [error for error in errors if not isinstance(error, Conflict)], f"seed {seed}: {errors}"
    assert not errors, f"seed {seed}: {errors}"
    race.check(seed)


@pytest.mark.slow
@pytest.mark.parametrize("kind", model.KINDS)
@pytest.mark.parametrize("team", TEAMS, ids="+".join)
def test_many_orders_of_requests_are_serial_orders_of_commits(team: tuple[str, ...], kind: str) -> None:
    for seed in seeds_from(1000, 3):
        run(seed, kind, team)


@pytest.mark.parametrize("kind", ["copied", "vectors"])
def test_upserts_of_the_same_keys_leave_one_row_for_each(kind: str) -> None:
    for seed in range(4):
        race = Race(seed, kind)

        def upsert(task: int, race: Race = race) -> None:
            table = race.table(task)
            for key in KEYS:
                table.upsert([{"id": key, "n": task, "name": "x", "place": "a"}], on=["id"])

        assert race.scheduler.run([upsert, upsert, upsert]) == []
        found = [row[0] for row in model.rows_of(race.table()).elements() if row[0] is not None and row[0] >= 1000]
        assert sorted(found) == list(KEYS), f"seed {seed}"
