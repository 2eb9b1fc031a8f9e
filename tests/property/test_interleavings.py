"""Ingest, merge, checkpoint and vacuum in every order of their requests that some seeds give."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.errors import ConcurrentDomain, VersionExpired
from alluvia.store import MemoryStore
from tests.contract.workers import events
from tests.examples import seeds_from
from tests.property.interleaving import Scheduler, TakingTurns

BATCHES = [["a", "b"], ["b", "c"], ["c", "d", "d"], ["a", "e"]]
ALL = set("abcde")


class Race:
    """A table, and tasks on it that each have a handle of their own."""

    def __init__(self, seed: int) -> None:
        self.clock = ManualClock(seed=seed)
        self.store = MemoryStore("m", self.clock)
        self.random = random.Random(seed)
        self.scheduler = Scheduler(seed)
        self.answers: list[tuple[int, int]] = []
        table = self.table()
        Lake(self.store, self.clock).create_events("t", partition_by=(), properties={"delta.checkpointInterval": "2"})
        self.schema = table.snapshot().schema
        for number in range(3):
            table.ingest(events(self.schema, [f"before {number}"]))
        if self.random.random() < 0.5:
            table.checkpoint()

    def table(self, task: int | None = None) -> Table:
        store = self.store if task is None else TakingTurns(self.store, self.clock, self.scheduler, task)
        return Lake(store, self.clock).table("t")

    def ingest(self, task: int) -> None:
        table = self.table(task)
        for batch in self.random.sample(BATCHES, len(BATCHES)):
            answer = table.ingest(events(self.schema, batch))
            self.answers.append((answer.appended, answer.duplicates))

    def merge(self, task: int) -> None:
        table = self.table(task)
        for _ in range(2):
            table.optimize()

    def checkpoint(self, task: int) -> None:
        self.table(task).checkpoint()

    def vacuum(self, task: int) -> None:
        for _ in range(2):
            try:
                self.table(task).vacuum(timedelta(0))
            except ConcurrentDomain:  # another vacuum at the same time; nothing was deleted
                self.clock.advance(0.001)

    def evolve(self, task: int) -> None:
        self.table(task).evolve({"extra": "long"})

    def check(self) -> None:
        table = self.table()
        newest = table.snapshot().version
        expected = ALL | {f"before {number}" for number in range(3)}
        earlier: Counter[str] = Counter()
        readable = 0
        for version in range(newest + 1):
            try:
                found = Counter(table.scan(["event_id"], version=version).read_all()["event_id"].to_pylist())
            except VersionExpired:
                assert not readable, f"version {version} has expired, but an older one reads"
                continue
            readable += 1
            assert set(found.values()) <= {1}, f"version {version} holds an event twice"
            assert earlier <= found, f"version {version} lost an event"
            earlier = found
        assert set(earlier) == expected
        assert table.ingest(events(self.schema, sorted(expected))).appended == 0


def run(seed: int, *names: str) -> None:
    race = Race(seed)
    tasks: list[Callable[[int], None]] = [getattr(race, name) for name in names]
    errors = race.scheduler.run(tasks)
    assert not errors, f"seed {seed}: {errors}"
    race.check()
    ingesters = names.count("ingest")
    assert sum(rows for rows, _ in race.answers) == len(ALL)
    assert sum(rows + duplicates for rows, duplicates in race.answers) == ingesters * sum(map(len, BATCHES))


TEAMS = [
    ("ingest", "ingest", "ingest"),
    ("ingest", "ingest", "merge", "checkpoint"),
    ("ingest", "merge", "merge", "checkpoint"),
    ("ingest", "merge", "vacuum"),
    ("ingest", "ingest", "merge", "vacuum", "vacuum", "evolve"),
]


@pytest.mark.slow
@pytest.mark.parametrize("team", TEAMS, ids="+".join)
def test_many_orders_of_requests_keep_every_event_once(team: tuple[str, ...]) -> None:
    for seed in seeds_from(1000, 14):
        run(seed, *team)


def test_a_seed_gives_the_same_order_again() -> None:
    traces = []
    for _ in range(2):
        race = Race(5)
        assert race.scheduler.run([race.ingest, race.merge, race.vacuum]) == []
        traces.append(race.scheduler.trace)
    assert traces[0] == traces[1]
    assert {task for task, _, _ in traces[0]} == {0, 1, 2}
