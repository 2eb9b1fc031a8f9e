"""Runs of their own for clones: tables are written, cloned, dropped, brought back and vacuumed by processes that race,
sleep and crash, and each deletion is held against every version of every table that can still be read.

What is known of the tables comes from the commits as the bucket got them, and not from the library.
"""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from urllib.parse import unquote

from alluvia.errors import AlluviaError, Corrupt, TableNotFound, Unsupported
from alluvia.lake import Lake
from alluvia.table.keepers import KEPT
from tests.simulation.faults import HOUR_US, SECOND_US, FaultSource, Without, draw_rates
from tests.simulation.runtime import running
from tests.simulation.s3 import BUCKET, Bucket, Crash, Process, SimulatedStore
from tests.simulation.scheduler import Scheduler, SimulatedClock, Violation
from tests.simulation.world import START_US

ACTORS = 4
ACTS = 5
_COMMIT = re.compile(r"(\w+)/_delta_log/(\d{20})\.json")
_OLDEST = "alluvia.oldest_readable_version"
PROPERTIES = {
    "delta.checkpointInterval": "3",
    "delta.logRetentionDuration": "interval 24 hours",
    "delta.deletedFileRetentionDuration": "interval 1 hours",
}


class Ledger:
    """The files of each version of each table, and from which version on a table can be read."""

    def __init__(self) -> None:
        self.bucket: Bucket | None = None
        self.versions: dict[str, list[frozenset[str]]] = defaultdict(list)
        self.oldest: dict[str, int] = defaultdict(int)
        self.clones = 0

    def put(self, key: str, data: bytes, intent: object) -> None:
        """Take note of a commit, whose files must be there."""
        match = _COMMIT.fullmatch(key)
        if match is None:
            return
        table, known = match[1], self.versions[match[1]]
        if len(known) != int(match[2]):
            raise Violation("versions have no gap", key)
        files = set(known[-1] if known else ())
        for action in map(json.loads, data.splitlines()):
            if "remove" in action:
                files.discard(_key(table, action["remove"]["path"]))
            if "domainMetadata" in action and action["domainMetadata"]["domain"] == _OLDEST:
                self.oldest[table] = int(action["domainMetadata"]["configuration"])
            self.clones += action.get("commitInfo", {}).get("operation") == "CLONE"
        for action in map(json.loads, data.splitlines()):
            if "add" in action:
                file = _key(table, action["add"]["path"])
                files.add(file)
                if self.bucket is not None and file not in self.bucket.objects:
                    raise Violation("a commit names files that are there", f"{key}: {file}")
        known.append(frozenset(files))

    def deleted(self, keys: list[str]) -> None:
        """Raise `Violation` if a version needs what was deleted."""
        gone = set(keys)
        for table, versions in self.versions.items():
            for version in range(self.oldest[table], len(versions)):
                if lost := gone & versions[version]:
                    raise Violation("what can be read is there", f"version {version} of {table} needs {min(lost)}")

    @property
    def needed(self) -> set[str]:
        """Return the files that some version needs which can be read."""
        return set().union(*(files for table, each in self.versions.items() for files in each[self.oldest[table] :]))


def _key(table: str, path: str) -> str:
    whole = unquote(path)
    return whole.removeprefix(f"s3://{BUCKET}/") if "://" in whole else f"{table}/{whole}"


class _Actor:
    """One process, which forgets all that it knows when it crashes."""

    def __init__(self, run: CloneRun, name: str) -> None:
        self.run = run
        self.name = name
        self.process = Process()
        self.intent: object = None
        self.chance = random.Random(f"{run.seed} {name}")
        self.faults = FaultSource(str(run.seed), name, run.rates, Without())
        self.skew_us = self.chance.choice([0, 0, 40 * SECOND_US, -40 * SECOND_US])
        self._lakes: dict[int, Lake] = {}

    @property
    def lake(self) -> Lake:
        generation = self.process.generation
        if generation not in self._lakes:
            self._lakes = {generation: self.run.open(self.process, f"{self.name} {generation}", self.skew_us)}
        return self._lakes[generation]

    def live(self) -> None:
        scheduler = self.run.scheduler
        for _ in range(ACTS):
            scheduler.wait(int(self.chance.choice([SECOND_US, 300 * SECOND_US, 3 * HOUR_US, 30 * HOUR_US])
                               * self.chance.random()))  # fmt: skip
            try:
                self._act()
            except Crash:
                scheduler.wait(int(20 * SECOND_US * self.chance.random()))
            except (Corrupt, Unsupported) as error:
                raise Violation("no table is found damaged", f"{self.name}: {error}") from error
            except AlluviaError as error:
                scheduler.note(f"{self.name}: {type(error).__name__}")

    def _act(self) -> None:
        chance, lake = self.chance, self.lake
        names = [name for name in self.run.names if self.run.ledger.versions[name]]
        name = chance.choice(names)
        table = lake.table(name)
        match chance.choice(["append", "append", "delete", "optimize", "vacuum", "vacuum", "clone", "clone", "drop"]):
            case "append":
                table.append([{"id": chance.randrange(1000)}])
            case "delete":
                table.delete(f"id < {chance.randrange(1000)}")
            case "optimize":
                table.optimize(full=True)
            case "vacuum":
                table.vacuum()
            case "clone":
                self.run.names.append(f"t{len(self.run.names)}")
                lake.clone(name, chance.choice([*self.run.names[1:], self.run.names[-1]]))
            case _:
                if name == "t0":
                    return
                if chance.random() < 0.3:
                    lake.undrop(name)
                else:
                    lake.drop_table(name)


class CloneRun:
    """One run, all of it from its seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        chance = random.Random(f"{seed} clones")
        self.rates = draw_rates(chance)
        self.scheduler = Scheduler(START_US)
        self.ledger = Ledger()
        self.bucket = Bucket(self.scheduler, self.ledger)
        self.ledger.bucket = self.bucket
        self.names = ["t0"]
        self._actors: dict[str, _Actor] = {}

    def open(self, process: Process, seed: str, skew_us: int) -> Lake:
        """Open the lake from cold."""
        clock = SimulatedClock(self.scheduler, f"{self.seed} {seed}", skew_us)
        return Lake(SimulatedStore(self.bucket, clock, self._actor, process), clock)

    def _actor(self) -> _Actor | None:
        task = self.scheduler.current
        return None if task is None else self._actors.get(task.name)

    def run(self) -> int:
        """Run to the end, and return how many clones there were. Raises `Violation`."""
        with running(self.scheduler):
            table = self.open(Process(), "setup", 0).create_table("t0", {"id": "long"}, properties=PROPERTIES)
            for number in range(3):
                table.append([{"id": number}])
            for number in range(ACTORS):
                actor = _Actor(self, f"actor{number}")
                self._actors[actor.name] = actor
                self.scheduler.spawn(actor.name, actor.live, delay_us=number)
            self.scheduler.run()
            self._finish()
        return self.ledger.clones

    def _finish(self) -> None:
        """All that is there can be read; and once clones are dropped and all is vacuumed, nothing is left of them."""
        lake = self.open(Process(), "finish", 0)
        for name in lake.tables():
            rows = lake.table(name).to_arrow()
            assert len(rows) == lake.table(name).count()
            if name != "t0":
                lake.drop_table(name)
        lake.table("t0").append([{"id": 0}])
        lake.table("t0").delete("true")  # vacuum asks for keepers where it has anything to delete
        for _ in range(6):
            self.scheduler.now_us += 60 * HOUR_US
            for name in reversed(self.names):
                try:
                    lake.table(name).vacuum()
                except TableNotFound:
                    continue
        kept = [key for key in self.bucket.objects if key.startswith(KEPT)]
        if kept:
            raise Violation("nothing is kept for good", kept[0])
        data = {key for key in self.bucket.objects if key.endswith(".parquet") and "/_" not in key}
        if left := data - self.ledger.needed:
            raise Violation("nothing unreferenced is kept for good", min(left))
