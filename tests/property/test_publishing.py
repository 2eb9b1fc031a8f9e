"""Branches of a table that is compacted before, after and between their publishes."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

from alluvia.api.lake import Lake, Table
from alluvia.api.lake_branch import Branch
from alluvia.clock import ManualClock
from alluvia.errors import Conflict
from alluvia.store import MemoryStore
from tests.examples import seeds_from

Rows = dict[int, str]
VECTORS = {"delta.enableDeletionVectors": "true"}


@dataclass
class Cut:
    """A branch, the rows that it began with, and those that it must show."""

    branch: Branch
    began: Rows
    shown: Rows


class Run:
    """A table, what it must hold, and branches of it."""

    def __init__(self, seed: int) -> None:
        self.chance, self.clock = random.Random(seed), ManualClock()
        self.lake = Lake(MemoryStore(f"publishing {seed}", self.clock), self.clock)
        schema = {"id": "long", "v": "string"}
        self.table = self.lake.create_table("orders", schema, properties=self.chance.choice([{}, VECTORS]))
        self.known: Rows = {}
        self.cuts: list[Cut] = []

    def append(self) -> None:
        new = {1000 * self.clock.now_ms() + at: "new" for at in range(2)}
        self.table.append([{"id": number, "v": text} for number, text in new.items()])
        self.known.update(new)

    def compact(self) -> None:
        self.table.optimize(full=True)

    def cut(self) -> None:
        branch = self.lake.branch(f"b{self.clock.now_ms()}")
        self.cuts.append(Cut(branch, dict(self.known), dict(self.known)))

    def change(self, on: Table, rows: Rows) -> None:
        if not rows:
            return
        number = self.chance.choice(sorted(rows))
        if self.chance.random() < 0.5:
            on.delete(f"id = {number}")
            del rows[number]
        else:
            rows[number] = f"changed {self.clock.now_ms()}"
            on.update({"v": f"'{rows[number]}'"}, where=f"id = {number}")

    def publish(self, cut: Cut) -> None:
        """Publish a branch. Rows that it has changed must be as it found them, else this is a conflict."""
        self.cuts.remove(cut)
        try:
            cut.branch.publish(isolation=self.chance.choice(["serializable", "snapshot"]))
        except Conflict:
            return
        finally:
            cut.branch.drop()
        for number in {number for number, text in cut.began.items() if cut.shown.get(number) != text}:
            assert self.known.pop(number, None) == cut.began[number]
            if number in cut.shown:
                self.known[number] = cut.shown[number]

    def step(self) -> None:
        """Do something to the table, or to a branch."""
        self.clock.advance(1)
        act = self.chance.random()
        if act < 0.12:
            self.append()
        elif act < 0.42:
            self.compact()
        elif act < 0.55 or not self.cuts:
            self.cut()
        elif act < 0.57:
            self.change(self.table, self.known)
        else:
            cut = self.chance.choice(self.cuts)
            if act < 0.77:
                self.change(cut.branch["orders"], cut.shown)
            elif act < 0.8:
                cut.branch["orders"].optimize(full=True)
            else:
                self.publish(cut)


@pytest.mark.parametrize("seed", seeds_from(0, 40))
def test_what_is_published_is_what_the_branch_has_changed(seed: int) -> None:
    run = Run(seed)
    run.append()
    for _ in range(40):
        run.step()
        rows = {row["id"]: row["v"] for row in run.table.to_arrow().to_pylist()}
        assert (rows, run.table.count()) == (run.known, len(run.known))
    assert run.table.verify(full=True).ok
