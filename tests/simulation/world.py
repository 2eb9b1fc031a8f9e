"""One run: a lake, its actors, their faults and the checker, all from one seed."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import blake2b

import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.errors import AlluviaError, Corrupt, Invalid, Unsupported
from tests.simulation.branched import BranchModel
from tests.simulation.checker import Checker, Event, Limits, OnBranch
from tests.simulation.faults import HOUR_US, MINUTE_US, SECOND_US, Fault, FaultSource, Without, draw_rates
from tests.simulation.intents import AddEvents, UnderWay
from tests.simulation.model import TableModel, tuples
from tests.simulation.offers import crowd
from tests.simulation.runtime import running
from tests.simulation.s3 import Bucket, Crash, Process, SimulatedStore
from tests.simulation.scheduler import Scheduler, SimulatedClock, Violation

SMALL = 0.95
"""The share of runs with few actors and little upkeep at the end: the same odd moments, for a quarter of the time."""
START_US = 1_700_000_000_000_000
EVENTS, REJECTS, BANK, HITS = "events/", "events/_rejects/", "bank/", "hits/"
ACCOUNTS = 6
TTL_SECONDS = (0, 0, 0, 3570, 3580, 3590, 14_400)
"""How long events are kept, 0 for ever. They happened an hour before the first of them is sent, 7 seconds apart."""
SKEWS_US = (0, 0, 40 * SECOND_US, -40 * SECOND_US, 3 * MINUTE_US, -3 * MINUTE_US)
SKEW_MS_MAX = 180_000
BANK_SCHEMA = pa.schema([pa.field("id", pa.string()), pa.field("amount", pa.int64()), pa.field("owner", pa.string())])


@dataclass(frozen=True)
class Result:
    """What a run was: the digest of its trace, and how much happened."""

    seed: int
    digest: str
    requests: int
    versions: int
    faults: tuple[Fault, ...]
    trace: Sequence[str]


class Failure(Exception):
    """A run that broke an invariant."""

    def __init__(self, seed: int, error: BaseException, result: Result) -> None:
        super().__init__(f"seed {seed}: {error}")
        self.seed = seed
        self.error = error
        self.result = result

    @property
    def rule(self) -> str:
        """Return which invariant it was, or the kind of error."""
        return self.error.rule if isinstance(self.error, Violation) else type(self.error).__name__


@dataclass
class Scenario:
    """What a seed says about the run as a whole."""

    focus: str
    small: bool
    epochs: int
    gap_us: int
    window_hours: int
    file_retention_hours: int
    checkpoint_interval: int
    target_file_size: str
    rates: dict[str, float]
    skews: bool

    @classmethod
    def draw(cls, chance: random.Random) -> Scenario:
        """Return a seed's scenario."""
        focus = chance.choice(["events", "events", "bank", "bank", "upkeep", "all"])
        short = [10 * SECOND_US, 5 * MINUTE_US, HOUR_US]
        gap_us = chance.choice([*(short if focus != "upkeep" else []), 5 * HOUR_US, 13 * HOUR_US, 30 * HOUR_US])
        small = chance.random() < SMALL
        return cls(
            focus=focus,
            small=small,
            epochs=chance.choice([1, 1, 2, 2, 3] if small else [2, 3, 3, 4, 5]),
            gap_us=gap_us,
            window_hours=chance.choice([1, 6, 72]),
            file_retention_hours=chance.choice([1, 12]),
            checkpoint_interval=chance.choice([2, 4, 100]),
            target_file_size=chance.choice(["4 kb", "128 MB"]),
            rates=draw_rates(chance),
            skews=chance.random() < 0.5,
        )


@dataclass
class Actor:
    """Whoever acts: one thread of one process."""

    name: str
    world: World
    process: Process
    chance: random.Random
    faults: FaultSource
    skew_us: int
    wanted: object = None
    lakes: dict[int, Lake] = field(default_factory=dict)
    on: BranchModel | None = None
    """The branch that it works on now."""

    @property
    def intent(self) -> object:
        """Return what it is about to do, in the lake or on a branch."""
        return self.wanted if self.on is None else OnBranch(self.wanted)

    @intent.setter
    def intent(self, wanted: object) -> None:
        self.wanted = wanted

    def sends(self, ids: Iterable[str]) -> AddEvents:
        """Return the intent to add events, whose rows a commit may hold with those of the process's other threads."""
        threads = [other for other in self.world.actors.values() if other.process is self.process]
        return AddEvents(UnderWay(ids, lambda: [each.wanted for each in threads if each.on is self.on]))

    @property
    def lake(self) -> Lake:
        """Return the lake that it works on."""
        return self.main if self.on is None else self.main.on_branch(self.on.name)

    @property
    def main(self) -> Lake:
        """Return the process's lake; a cold one after a crash."""
        generation = self.process.generation
        if generation not in self.lakes:
            self.lakes.clear()
            self.lakes[generation] = self.world.open(self.process, f"{self.name} {generation}", self.skew_us)
        return self.lakes[generation]

    def table(self, root: str) -> Table:
        """Return one of the tables."""
        return self.lake.table(root.rstrip("/"))


class World:
    """The lake and all that act on it."""

    def __init__(self, seed: int, without: Without) -> None:
        self.seed = seed
        self.without = without
        self.chance = random.Random(f"{seed} world")
        self.scenario = Scenario.draw(self.chance)
        self.scheduler = Scheduler(START_US)
        skewed = self.scenario.skews and not without.skews
        self.limits = Limits(
            window_ms=self.scenario.window_hours * 3_600_000,
            log_retention_ms=24 * 3_600_000,
            file_retention_ms=self.scenario.file_retention_hours * 3_600_000,
            skew_ms=SKEW_MS_MAX if skewed else 0,
        )
        self.skewed = skewed
        self.checker = Checker(self.scheduler, self.limits)
        self.bucket = Bucket(self.scheduler, self.checker)
        self.checker.objects = self.bucket.objects
        self.actors: dict[str, Actor] = {}
        self.next_event = 0
        self.clones: list[str] = []
        """The names of shallow clones, once somebody has begun to make them."""
        self.pairs = 0
        self.shown = -1
        """The version of the bank that the rollup shows, where there is one."""
        seconds = random.Random(f"{seed} ttl").choice(TTL_SECONDS)
        self.ttl_us = seconds * SECOND_US
        self.ttl = {"alluvia.ttl": f"{seconds} seconds"} if seconds else {}

    def actor(self) -> Actor | None:
        """Return who runs now."""
        task = self.scheduler.current
        return None if task is None else self.actors.get(task.name)

    def open(self, process: Process, seed: str, skew_us: int) -> Lake:
        """Open the lake from cold."""
        clock = SimulatedClock(self.scheduler, f"{self.seed} {seed}", skew_us)
        return Lake(SimulatedStore(self.bucket, clock, self.actor, process), clock)

    def model(self, root: str) -> TableModel:
        """Return what the model knows of a table."""
        return self.checker.tables[root]

    def new_event(
        self, *, reject: bool = False, disputed: bool = False, posted: bool = False, branch: str | None = None
    ) -> Event:
        """Return an event that has never been sent."""
        self.next_event += 1
        event = Event(f"e{self.next_event}", self.scheduler.now_us, reject, disputed, posted, branch)
        self.checker.events[event.id] = event
        return event

    def sendable(self, *, disputed: bool = False, posted: bool = False) -> list[Event]:
        """Return the events that a client may still send again: those within the window."""
        horizon_ms = self.limits.window_ms - 2 * self.limits.skew_ms - 10 * 60_000
        oldest_us = self.scheduler.now_us - 1000 * horizon_ms
        wanted = (disputed, posted)
        events = (event for event in self.checker.events.values() if (event.disputed, event.posted) == wanted)
        return [event for event in events if event.first_us > oldest_us and event.branch is None]

    def run(self) -> Result:
        """Run to the end. Raises `Failure`."""
        from tests.simulation import backfills, letting_go
        from tests.simulation.casts import cast

        with running(self.scheduler), pytest.MonkeyPatch.context() as patch:
            crowd(self.seed, patch)
            backfills.set_up(patch)
            try:
                self._set_up()
                self._set_up_others()
                for number, (name, body) in enumerate(cast(self)):
                    if name not in self.without.actors:
                        self.scheduler.spawn(name, body, delay_us=number)
                self.scheduler.run()
                self._finish_others()
                self._finish()
                letting_go.finish(self)
            except BaseException as error:
                if isinstance(error, KeyboardInterrupt):
                    raise
                raise Failure(self.seed, error, self._result()) from error
        return self._result()

    def _set_up_others(self) -> None:
        """Set up what only some runs have."""
        from tests.simulation import branching, following, merge_queries, rollups, transfers

        for what, has, set_up in (
            ("setup of the rollup", rollups.has_rollup, rollups.set_up),
            ("setup of the hits", merge_queries.has_hits, merge_queries.set_up),
            ("setup of the vault", transfers.has_vault, transfers.set_up),
            ("setup of the stream", following.has_stream, following.set_up),
            ("setup of branches", branching.has_branches, branching.set_up),
        ):
            if has(self):
                set_up(self, self.open(Process(), what, 0))

    def _finish_others(self) -> None:
        """Finish what only some runs have: first what was decided is carried out."""
        from tests.simulation import branching, cloning, following, transfers

        for what, has, finish in (
            ("decisions about branches", branching.has_branches, branching.carry_out),
            ("finish of transfers", transfers.has_vault, transfers.finish),
            ("finish of the stream", following.has_stream, following.finish),
            ("finish of branches", branching.has_branches, branching.finish),
            ("finish of clones", cloning.has_clones, cloning.finish),
        ):
            if has(self):
                finish(self, self.open(Process(), what, 0))

    def _result(self) -> Result:
        digest = blake2b("\n".join(self.scheduler.trace).encode(), digest_size=16).hexdigest()
        versions = sum(len(table.versions) for table in self.checker.tables.values())
        fired = tuple(self.bucket.fired)
        return Result(self.seed, digest, self.bucket.requests, versions, fired, self.scheduler.trace)

    def _set_up(self) -> None:
        lake = self.open(Process(), "setup", 0)
        scenario = self.scenario
        properties = {
            "alluvia.dedup_window": f"{scenario.window_hours} hours",
            "alluvia.target_file_size": scenario.target_file_size,
            "delta.checkpointInterval": str(scenario.checkpoint_interval),
            "delta.logRetentionDuration": "interval 24 hours",
            "delta.deletedFileRetentionDuration": f"interval {scenario.file_retention_hours} hours",
        }
        lake.create_events("events", properties=properties | self.ttl)
        lake.create_table("bank", BANK_SCHEMA, sort_by=["id"], properties=properties)
        accounts = [{"id": f"a{at}", "amount": 100, "owner": "bank"} for at in range(ACCOUNTS)]
        for half in (accounts[: ACCOUNTS // 2], accounts[ACCOUNTS // 2 :]):
            lake.table("bank").append(half)
        self.checker.sorted_by = {EVENTS: ("event", "ts"), BANK: ("id",), REJECTS: ("received_at",)}
        self.checker.totals[BANK] = 100 * ACCOUNTS

    def _finish(self) -> None:
        """When all is calm again, whoever opens the lake sees what the model says, and upkeep changes none of it."""
        self.checker.check_acknowledged(EVENTS, REJECTS)
        warm = self.open(Process(), "finish", 0)
        roots = [root for root in sorted(self.checker.tables) if len(self.model(root).versions) > 3 or root == REJECTS]
        roots = [root for root in roots if not root.startswith("_alluvia/")]  # logs of streams have no rows
        roots = [root for root in roots if root[:-1] not in self.clones]  # they may have been dropped
        if self.scenario.small:
            roots = self.chance.sample(roots, min(len(roots), 1))
        for root in roots:
            table = warm.table(root.rstrip("/"))
            self._compare("at the end", table, root)
            if self.scenario.small and self.chance.random() < 0.5:
                continue
            table.optimize(full=True)
            self._compare("after a merge", table, root)
            table.checkpoint()
            self._compare("after a checkpoint", self.open(Process(), f"cold {root}", 0).table(table.name), root)
            self.scheduler.now_us += 40 * HOUR_US
            table.vacuum()
            self._compare("after vacuum", self.open(Process(), f"later {root}", 0).table(table.name), root)
        self.checker.check_acknowledged(EVENTS, REJECTS)

    def _compare(self, what: str, table: Table, root: str) -> None:
        tip = self.model(root).tip
        snapshot = table.snapshot()
        if snapshot.version != tip.number:
            raise Violation("the newest version is seen", f"{what}: {snapshot.version} instead of {tip.number}")
        rows = tuples(table.scan().read_all())
        self.checker.same_rows(what, rows, tip, tuple(snapshot.schema.names))


def run(seed: int, without: Without | None = None) -> Result:
    """Run one seed. Raises `Failure`."""
    return World(seed, without or Without()).run()


EXPECTED = AlluviaError
UNEXPECTED = (Corrupt, Invalid, Unsupported)

__all__ = ["EXPECTED", "UNEXPECTED", "Actor", "Crash", "Failure", "Result", "World", "run", "timedelta"]
