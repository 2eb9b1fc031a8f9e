"""Readers of changes, and a rollup, of a table whose rows expire, are moved, deleted and restored at random.

The model keeps for each version the rows of the table, and the rows that whoever follows the changes has: those that
expired stay with the latter, and a restore gives both what they were in the version that it restores.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.store import MemoryStore
from tests.examples import seeds_from
from tests.property.row_model import KINDS

START = datetime(2026, 3, 1, tzinfo=UTC)
STEPS = ["append", "append", "append", "expire", "expire", "restore", "restore", "wait", "merge", "delete", "update"]
SIGNS = {"insert": 1, "update_postimage": 1, "delete": -1, "update_preimage": -1, "expire": -1}
State = tuple[Counter[int], Counter[int]]


class Run:
    """A table, a rollup of it, and by version what the table and who follows its changes have."""

    def __init__(self, kind: str, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock(int(START.timestamp() * 1e6), seed=seed)
        self.lake = Lake(MemoryStore("m", self.clock), self.clock)
        by = self.chance.choice([["day(ts)"], ["month(ts)"]])
        given = {"alluvia.ttl": "5 days", **KINDS[kind]}
        self.table = self.lake.create_table("t", {"id": "long", "ts": "timestamp"}, by, properties=given)
        self.rollup = self.lake.create_rollup("r", "SELECT id, count(*) AS n, max(ts) AS last FROM t GROUP BY id")
        self.states: list[State] = [(Counter(), Counter())]
        self.ids = 0
        self.done: list[str] = []

    def step(self) -> None:
        name = self.chance.choice(STEPS)
        self.done.append(name)
        after = getattr(self, name)(*self.states[-1])
        self.states += [after] * (self.table.version + 1 - len(self.states))
        if self.chance.random() < 0.3:
            self.check_rollup()

    def append(self, held: Counter[int], known: Counter[int]) -> State:
        now = datetime.fromtimestamp(self.clock.now_us() / 1e6, UTC)
        rows = [
            (self.ids + at, now - timedelta(days=self.chance.randrange(8))) for at in range(self.chance.choice([1, 3]))
        ]
        self.ids += len(rows)
        self.table.append([{"id": number, "ts": time} for number, time in rows])
        new = Counter(number for number, _ in rows)
        return held + new, known + new

    def wait(self, held: Counter[int], known: Counter[int]) -> State:
        self.clock.advance(86400 * self.chance.choice([1, 2]))
        return held, known

    def expire(self, _: Counter[int], known: Counter[int]) -> State:
        self.table.expire()
        return Counter(self.table.to_arrow(["id"])["id"].to_pylist()), known

    def merge(self, held: Counter[int], known: Counter[int]) -> State:
        self.table.optimize(full=True)
        return held, known

    def delete(self, held: Counter[int], known: Counter[int]) -> State:
        gone = Counter(self.chance.sample(sorted(held), min(len(held), 2)))
        if gone:
            self.table.delete(f"id IN ({', '.join(map(str, gone))})")
        return held - gone, known - gone

    def update(self, held: Counter[int], known: Counter[int]) -> State:
        """Give rows other ids: 1000 more."""
        old = Counter(self.chance.sample(sorted(held), min(len(held), 1)))
        new = Counter(number + 1000 for number in old)
        for number in old:
            self.table.update({"id": "id + 1000"}, where=f"id = {number}")
        return held - old + new, known - old + new

    def restore(self, *_: Counter[int]) -> State:
        version = self.chance.randrange(len(self.states))
        self.done[-1] += f" {version}"
        self.table.restore(version=version)
        return self.states[version]

    def check_rollup(self) -> None:
        self.rollup.refresh()
        self.done.append("refresh")
        found = self.rollup.to_arrow()
        assert Counter(dict(zip(found["id"].to_pylist(), found["n"].to_pylist(), strict=True))) == self.states[-1][1], (
            self
        )

    def check_feed(self) -> None:
        for expired, at in ((False, 1), (True, 0)):
            balance: Counter[int] = Counter()
            rows = self.table.changes(0, expired=expired).read_all().to_pylist()
            for version, state in enumerate(self.states):
                for row in rows:
                    if row["_commit_version"] == version:
                        balance[row["id"]] += SIGNS[row["_change_type"]]
                assert balance == state[at], (self, version)

    def __repr__(self) -> str:
        return f"{self.done}"


def run(kind: str, seed: int) -> None:
    found = Run(kind, seed)
    for _ in range(20):
        found.step()
    found.check_rollup()
    found.check_feed()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", seeds_from(100, 4))
def test_who_follows_the_changes_through_many_runs(kind: str, seed: int) -> None:
    run(kind, seed)
