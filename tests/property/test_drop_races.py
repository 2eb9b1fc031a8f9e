"""Drops, undrops and creations against everything else, in every order of their requests that some seeds give."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.errors import Conflict, TableExists, TableNotFound, VersionExpired
from alluvia.store import MemoryStore
from tests.contract.workers import events
from tests.examples import seeds_from
from tests.property.interleaving import Scheduler, TakingTurns

SEEDS = seeds_from(0, 20)


class Race:
    """A table of events, and tasks on it that each have a lake of their own."""

    def __init__(self, seed: int) -> None:
        self.clock = ManualClock(seed=seed)
        self.store = MemoryStore("m", self.clock)
        self.scheduler = Scheduler(seed)
        self.acknowledged = {"before"}
        self.outcomes: list[str] = []
        self.lake = Lake(self.store, self.clock)
        table = self.lake.create_events("t", partition_by=(), properties={"delta.checkpointInterval": "2"})
        self.schema = table.snapshot().schema
        table.ingest(events(self.schema, ["before"]))

    def of(self, task: int) -> Lake:
        return Lake(TakingTurns(self.store, self.clock, self.scheduler, task), self.clock)

    def ingest(self, task: int) -> None:
        """Each event once: what the answer says is there must be there."""
        table = self.of(task).table("t")
        for number in range(4):
            event_id = f"{task}-{number}"
            try:
                done = table.ingest(events(self.schema, [event_id]))
            except TableNotFound:
                continue
            assert (done.appended, done.duplicates) == (1, 0)
            self.acknowledged.add(event_id)

    def merge(self, task: int) -> None:
        try:
            self.of(task).table("t").optimize()
        except TableNotFound:
            self.outcomes.append("merge: no table")

    def attempt(self, name: str, call: Callable[[], object]) -> None:
        try:
            call()
            self.outcomes.append(name)
        except (TableNotFound, TableExists, VersionExpired) as error:
            self.outcomes.append(type(error).__name__)

    def drop(self, task: int) -> None:
        self.attempt("drop", lambda: self.of(task).drop_table("t"))

    def undrop(self, task: int) -> None:
        self.attempt("undrop", lambda: self.of(task).undrop("t"))

    def create(self, task: int) -> None:
        self.attempt("create", lambda: self.of(task).create_events("t", partition_by=()))

    def vacuum(self, task: int) -> None:
        try:
            self.of(task).table("t").vacuum(timedelta(0))
        except Conflict as error:  # nothing was deleted
            self.outcomes.append(type(error).__name__)

    def run(self, *tasks: Callable[[int], None]) -> None:
        errors = self.scheduler.run(tasks)
        assert not errors, errors

    def ids(self) -> list[str]:
        found = Lake(self.store, self.clock).table("t").scan(["event_id"]).read_all()["event_id"].to_pylist()
        return sorted(found)


@pytest.mark.parametrize("seed", SEEDS)
def test_whatever_was_acknowledged_before_a_drop_comes_back(seed: int) -> None:
    race = Race(seed)
    race.run(race.ingest, race.ingest, race.drop, race.merge)
    assert race.lake.tables() == []
    race.lake.undrop("t")
    assert race.ids() == sorted(race.acknowledged)


@pytest.mark.parametrize("seed", SEEDS)
def test_an_event_is_in_the_old_table_or_in_the_new_one(seed: int) -> None:
    race = Race(seed)

    def replace(task: int) -> None:
        lake = race.of(task)
        lake.drop_table("t")
        lake.create_events("t", partition_by=())

    race.run(race.ingest, race.ingest, replace, race.merge)
    new = race.ids()
    race.lake.drop_table("t")
    race.lake.undrop("t", race.lake.dropped()[0].version)
    old = race.ids()
    assert sorted(old + new) == sorted(race.acknowledged)


@pytest.mark.parametrize("seed", SEEDS)
def test_of_two_that_create_bring_back_or_drop_one_does(seed: int) -> None:
    race = Race(seed)
    race.run(race.drop, race.drop)
    assert sorted(race.outcomes) == ["TableNotFound", "drop"]
    race.outcomes.clear()
    race.scheduler = Scheduler(seed)
    race.run(race.create, race.create, race.undrop)
    assert sorted(race.outcomes) in (["TableExists", "TableExists", "create"], ["TableExists", "TableExists", "undrop"])
    assert race.ids() == (["before"] if "undrop" in race.outcomes else [])
    assert race.lake.tables() == ["t"]


@pytest.mark.parametrize("seed", SEEDS)
def test_vacuum_takes_no_file_of_a_table_that_came_back(seed: int) -> None:
    race = Race(seed)
    race.lake.drop_table("t")
    race.clock.advance(1)
    race.run(race.undrop, race.vacuum, race.vacuum)
    if "undrop" in race.outcomes:
        assert race.ids() == ["before"]
    else:
        assert "VersionExpired" in race.outcomes
        with pytest.raises(TableNotFound):
            race.ids()


@pytest.mark.parametrize("seed", SEEDS)
def test_drops_and_undrops_lose_nothing(seed: int) -> None:
    race = Race(seed)

    def down_and_up(task: int) -> None:
        for _ in range(3):
            race.drop(task)
            race.undrop(task)

    race.run(down_and_up, race.ingest, race.ingest, race.merge)
    assert race.lake.tables() == ["t"]
    assert race.ids() == sorted(race.acknowledged)
