"""Random operations on rows, one after another, against a plain model: every version, and every version's changes."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

import alluvia
from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.store import MemoryStore
from tests import judges
from tests.examples import seeds_from
from tests.property import row_model as model
from tests.property.row_model import KINDS, Rows

OPERATIONS = [
    "append",
    "append",
    "delete",
    "delete",
    "update",
    "update",
    "upsert",
    "upsert",
    "merge",
    "restore",
    "other",
]


class Run:
    """A table and its model, by version."""

    def __init__(self, lake: Lake, kind: str, seed: int) -> None:
        self.chance = random.Random(seed)
        self.lake = lake
        self.table = model.create(lake, kind, self.chance)
        self.versions: dict[int, Rows] = {0: Counter()}
        self.done: list[str] = []

    @property
    def rows(self) -> Rows:
        return self.versions[max(self.versions)]

    def step(self) -> None:
        name = self.chance.choice(OPERATIONS)
        expected = getattr(self, name)()
        version = self.table.snapshot().version
        found = model.rows_of(self.table)
        assert found == expected, f"{self.done}: {found - expected} too many, {expected - found} missing"
        for between in range(max(self.versions) + 1, version + 1):
            self.versions[between] = expected
        if version not in self.versions:
            raise AssertionError(self.done)

    def append(self) -> Rows:
        rows = [model.random_row(self.chance) for _ in range(self.chance.randint(1, 6))]
        self.done.append(f"append {rows}")
        self.table.append(model.as_dicts(rows))
        return self.rows + Counter(rows)

    def delete(self) -> Rows:
        condition = self.chance.choice(model.CONDITIONS)
        self.done.append(f"delete {condition.sql}")
        report = self.table.delete(condition.sql)
        expected = model.delete(self.rows, condition)
        assert report.rows_deleted == self.rows.total() - expected.total(), self.done
        return expected

    def update(self) -> Rows:
        condition, change = self.chance.choice(model.CONDITIONS), self.chance.choice(model.UPDATES)
        self.done.append(f"update {change.values} where {condition.sql}")
        report = self.table.update(change.values, where=condition.sql)
        matching = sum(times for row, times in self.rows.items() if condition.holds(row))
        assert report.rows_updated == matching, self.done
        return model.update(self.rows, change, condition)

    def upsert(self) -> Rows:
        rows = model.random_source(self.chance, self.chance.randint(0, 4))
        matched = self.chance.choice(["update", "update", "delete", "ignore"])
        unmatched = self.chance.choice(["insert", "insert", "ignore"])
        self.done.append(f"upsert {rows} {matched} {unmatched}")
        self.table.upsert(model.as_dicts(rows), on=["id"], matched=matched, unmatched=unmatched)
        return model.upsert(self.rows, rows, matched, unmatched == "insert")

    def merge(self) -> Rows:
        self.done.append("merge")
        self.table.optimize(full=self.chance.random() < 0.5)
        return self.rows

    def restore(self) -> Rows:
        version = self.chance.choice(sorted(self.versions))
        self.done.append(f"restore {version}")
        self.table.restore(version=version)
        return self.versions[version]

    def other(self) -> Rows:
        """Look at the table as a process does that has just started, maybe from a checkpoint."""
        if self.chance.random() < 0.5:
            self.table.checkpoint()
        self.done.append("another process")
        self.table = Lake(self.lake.store, self.lake.clock).table("t")
        return self.rows

    def check_past(self) -> None:
        """Every version reads as it was, and its changes lead to it from the one before."""
        fresh = Lake(self.lake.store, self.lake.clock).table("t")
        for version, rows in self.versions.items():
            assert model.rows_of(fresh, version) == rows, f"version {version}: {self.done}"
        feed = fresh.changes(0).read_all()
        rows_changed = zip(*(feed[name].to_pylist() for name in model.SCHEMA.names), strict=True)
        versions, kinds = feed["_commit_version"].to_pylist(), feed["_change_type"].to_pylist()
        changes = zip(versions, kinds, rows_changed, strict=True)
        come: dict[int, Rows] = {version: Counter() for version in self.versions}
        gone: dict[int, Rows] = {version: Counter() for version in self.versions}
        for version, kind, row in changes:
            (come if kind in ("insert", "update_postimage") else gone)[version][row] += 1
        for version in sorted(self.versions)[1:]:
            before, after = self.versions[version - 1], self.versions[version]
            assert before - gone[version] + come[version] == after, f"changes of {version}: {self.done}"
            assert gone[version] <= before, f"changes of {version}: {self.done}"
            if not fresh._handle.log.read_commits([version])[0].cdc:
                assert not gone[version] & come[version], f"changes of {version}: {self.done}"


def run(lake: Lake, kind: str, seed: int, steps: int) -> Run:
    found = Run(lake, kind, seed)
    for _ in range(steps):
        found.step()
    found.check_past()
    return found


def memory_lake(seed: int) -> Lake:
    clock = ManualClock(seed=seed)
    return Lake(MemoryStore("m", clock), clock)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", seeds_from(100, 4))
def test_many_operations(kind: str, seed: int) -> None:
    run(memory_lake(seed), kind, seed, steps=30)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", seeds_from(200, 2))
def test_other_readers_see_the_same_rows(tmp_path: Path, kind: str, seed: int) -> None:
    found = run(alluvia.connect(str(tmp_path)), kind, seed, steps=15)
    for version, rows in found.versions.items():
        expected = as_judges_see(rows)
        assert as_counted(judges.duckdb_rows(found.table, version)) == expected, f"delta_scan, version {version}"
        if "vectors" in kind:
            read = judges.canonical(judges.deltalake_sql_table(found.table, version))
        else:
            read = judges.deltalake_rows(found.table, version)
        assert as_counted(read) == expected, f"deltalake, version {version}"


def as_judges_see(rows: Rows) -> Counter[str]:
    return Counter({repr(tuple(zip(model.SCHEMA.names, row, strict=True))): times for row, times in rows.items()})


def as_counted(rows: judges.Rows) -> Counter[str]:
    return Counter(repr(tuple((name, dict(row)[name]) for name in model.SCHEMA.names)) for row in rows)


def test_the_model_itself_knows_nothing() -> None:
    rows: Rows = Counter({(None, None, None, None): 1})
    unknown = next(each for each in model.CONDITIONS if each.sql == "id > 3")
    assert model.delete(rows, unknown) == rows
    assert Table.delete.__doc__
