"""Branches among all that happens to their lake: operations that interrupt each other between any two requests.

A run is one thread. Before each request that an operation sends, another operation may run to its end, which another
may interrupt in turn: what a process that was suspended there would meet. A publish may die before any request. Rows
have ids of their own, so a plain model of sets says what the lake and each branch must hold, whatever the order was.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from alluvia.clock import ManualClock
from alluvia.errors import AlluviaError, Conflict, Invalid, Unavailable
from alluvia.lake import Lake
from alluvia.operations.scan import scan
from alluvia.store import MemoryStore, Store, Wrapper

TABLES = ("a", "b")
STEPS = 22
INTERRUPTIONS_MAX = 60
SHARED = -1
"""The id of a row that the lake and branches upsert: there is never more than one of it."""
DAY_SECONDS = 24 * 3600
Row = tuple[str, int]


class Died(Unavailable):
    """The process has ended before a request."""


@dataclass
class BranchModel:
    """What a branch must show: `rows` now, besides what it has added and deleted since it was cut."""

    name: str
    rows: set[Row]
    added: set[Row] = field(default_factory=set)
    deleted: set[Row] = field(default_factory=set)
    busy: int = 0
    published: bool = False


class Interrupting(Wrapper):
    """Has the run do something else before requests."""

    def __init__(self, inner: Store, run: BranchRun) -> None:
        super().__init__(inner)
        self._run = run

    def request(self, kind: str, key: str, send: Callable[[], Any]) -> Any:
        self._run.before_request()
        return send()


class BranchRun:
    """One run, of a seed. Raises `AssertionError` where a rule is broken."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock(seed=seed)
        self.memory = MemoryStore(f"branches-{seed}", self.clock)
        self.rows: set[Row] = set()
        self.branches: dict[str, BranchModel] = {}
        self.next_id = 0
        self.depth = 0
        self.interruptions = 0
        self.dying = 0.0

    def run(self) -> None:
        """Do some things, then end all branches and look at what is left."""
        plain = Lake(self.memory, self.clock)
        for table in TABLES:
            vectors = {"delta.enableDeletionVectors": "true"} if self.chance.random() < 0.5 else {}
            plain.create_table(table, {"id": "long", "v": "long"}, properties=vectors)
        for _ in range(STEPS):
            self.step()
            if self.chance.random() < 0.1:
                self.clock.advance(2 * DAY_SECONDS)
        self.depth = 2  # nothing comes between any more
        for branch in [*self.branches.values()]:
            self._publish(branch)
            self._discard(branch)
        self._check_end(plain)

    def before_request(self) -> None:
        self.clock.advance(0.002)
        if self.depth < 2 and self.interruptions < INTERRUPTIONS_MAX and self.chance.random() < 0.06:
            self.interruptions += 1
            dying, self.dying = self.dying, 0.0
            self.depth += 1
            try:
                self.step()
            finally:
                self.depth -= 1
                self.dying = dying
        if self.chance.random() < self.dying:
            raise Died("the process died")

    def step(self) -> None:
        """Do one thing, on the lake or on a branch."""
        open_ones = [each for each in self.branches.values() if not each.published]
        if open_ones and self.chance.random() < 0.55:
            branch = self.chance.choice(open_ones)
            acts = [self._write, self._write, self._write, self._keep_up, self._look, self._publish, self._discard]
            self.chance.choice(acts)(branch)
        elif self.chance.random() < 0.3 and len(self.branches) < 3:
            self._cut()
        else:
            self.chance.choice([self._write, self._write, self._keep_up, self._erase])(None)

    def _open(self, branch: BranchModel | None) -> Lake:
        lake = Lake(Interrupting(self.memory, self), self.clock)
        return lake if branch is None else lake.on_branch(branch.name)

    @contextmanager
    def _at_work(self, branch: BranchModel | None) -> Iterator[None]:
        """Do something on a branch, to which nothing else is done that ends it; a lost race does nothing."""
        if branch is not None:
            branch.busy += 1
        try:
            yield
        except Conflict:
            return  # somebody else has won
        finally:
            if branch is not None:
                branch.busy -= 1

    def _write(self, branch: BranchModel | None) -> None:
        if branch is not None and branch.busy < 0:
            return
        known = self.rows if branch is None else branch.rows
        kind, table = self.chance.choice(["append", "both", "delete", "shared"]), self.chance.choice(TABLES)
        with self._at_work(branch):
            lake = self._open(branch)
            if kind == "delete":
                there = sorted(row for row in known if row[0] == table)
                if there:
                    row = self.chance.choice(there)
                    lake[table].delete(f"id = {row[1]}")
                    self._note(branch, deleted={row})
            elif kind == "shared":
                lake[table].upsert([{"id": SHARED, "v": self.chance.randrange(9)}], on=["id"])
            else:
                self.next_id += 1
                number = self.next_id
                tables = TABLES if kind == "both" else (table,)
                with lake.transaction() as tx:
                    for name in tables:
                        tx.table(name).append([{"id": number, "v": 0}])
                self._note(branch, added={(name, number) for name in tables})

    def _note(
        self, branch: BranchModel | None, added: AbstractSet[Row] = frozenset(), deleted: AbstractSet[Row] = frozenset()
    ) -> None:
        rows = self.rows if branch is None else branch.rows
        rows |= added
        rows -= deleted
        if branch is not None:
            branch.added |= added
            branch.deleted |= deleted

    def _keep_up(self, branch: BranchModel | None) -> None:
        if branch is not None and branch.busy < 0:
            return
        table = self.chance.choice(TABLES)
        with self._at_work(branch):
            handle = self._open(branch)[table]
            work: list[Callable[[], Any]] = [
                lambda: handle.optimize(full=True), lambda: handle.vacuum(timedelta(0)), handle.checkpoint,
            ]  # fmt: skip
            self.chance.choice(work)()

    def _erase(self, branch: BranchModel | None) -> None:
        there = sorted(self.rows)
        if not there:
            return
        row = self.chance.choice(there)
        try:
            with self._at_work(None):
                self._open(None)[row[0]].erase(f"id = {row[1]}", prove=False)
                self._note(None, deleted={row})
        except Invalid as error:
            if "by branch" not in str(error):
                raise

    def _cut(self) -> None:
        self.next_id += 1
        name = f"b{self.next_id}"
        self._open(None).branch(name)
        # What has been asked for is put with the last request: nothing else happens until here.
        shown = self._read(Lake(self.memory, self.clock))
        self.branches[name] = BranchModel(name, shown)

    def _look(self, branch: BranchModel) -> None:
        if branch.busy == 0:
            shown = self._read(Lake(self.memory, self.clock).on_branch(branch.name))
            assert shown == branch.rows, f"{branch.name} shows {shown ^ branch.rows}"

    def _publish(self, branch: BranchModel) -> None:
        if branch.busy or branch.name not in self.branches:
            return
        self._look(branch)
        branch.busy = -10  # nobody writes on it meanwhile; another may publish it as well
        try:
            if self.depth == 0 and self.chance.random() < 0.3:
                self._publish_twice(branch)
            self.dying = self.chance.choice([0.0, 0.0, 0.03, 0.1]) if self.depth == 0 else 0.0
            self._open(None).on_branch(branch.name).publish()
        except Conflict:
            return
        except Died:
            self.dying = 0.0
            self._recover(branch)
        else:
            self._note_published(branch)
        finally:
            self.dying, branch.busy = 0.0, 0

    def _publish_twice(self, branch: BranchModel) -> None:
        """Have a publish die, so that the one after it comes to what it has left."""
        self.dying = 0.15
        try:
            self._open(None).on_branch(branch.name).publish()
        except Died:
            self.dying = 0.0
            self._recover(branch)
        else:
            self._note_published(branch)

    def _recover(self, branch: BranchModel) -> None:
        """Look whether a publish that died has happened, which is so in all tables or in none."""
        plain = Lake(self.memory, self.clock)
        held = self._read(plain)
        new, gone = branch.added & branch.rows, branch.deleted - branch.added
        new, gone = new - self.rows, gone & self.rows
        if not new and not gone:
            return
        happened = {row in held for row in new} | {row not in held for row in gone}
        assert len(happened) == 1, f"{branch.name} was published in part"
        if happened == {True}:
            self._note_published(branch)

    def _note_published(self, branch: BranchModel) -> None:
        if not branch.published:
            branch.published = True
            self.rows |= branch.added & branch.rows
            self.rows -= branch.deleted

    def _discard(self, branch: BranchModel) -> None:
        if branch.busy or branch.name not in self.branches:
            return
        del self.branches[branch.name]
        branch.busy = -10
        self._open(None).discard_branch(branch.name)

    def _read(self, lake: Lake) -> set[Row]:
        """Return what is in the tables of a lake at one moment, but for the shared row."""
        found: list[Row] = []
        for name, snapshot in lake.readable(TABLES).items():
            found += [(name, number) for number in scan(snapshot, lake.store).read_all()["id"].to_pylist()]
        assert all(found.count((name, SHARED)) <= 1 for name in TABLES), "the shared row is there twice"
        assert len(found) == len({*found}), "a row is there twice"
        return {row for row in found if row[1] != SHARED}

    def _check_end(self, lake: Lake) -> None:
        assert self._read(lake) == self.rows, f"the lake holds {self._read(lake) ^ self.rows}"
        self.clock.advance(60 * DAY_SECONDS)
        for name in TABLES:
            lake[name].vacuum(timedelta(0))
            report = lake[name].verify(full=True)
            assert report.ok, report.findings
            assert report.orphans == 0, "something is kept that nobody needs"
        left = [info.key for info in self.memory.list("_alluvia/branches/")]
        assert not left, f"a branch has left {left}"
        assert not [info.key for info in self.memory.list("_alluvia/kept/_lake/")]


def broken(seed: int) -> str | None:
    """Run a seed; return what was wrong, None for nothing."""
    try:
        BranchRun(seed).run()
    except (AssertionError, AlluviaError) as error:
        return f"seed {seed}: {type(error).__name__}: {error}"
    return None
