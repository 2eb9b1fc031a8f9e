"""Rollups of a table that changes at random, compared with what plain DuckDB makes of the same rows.

The rows come from the model of `row_model`: keys are null, rows are repeated, updates move rows from one group to
another, restores go back, and the source is merged and vacuumed in between.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import timedelta
from functools import cache

import duckdb
import pyarrow as pa
import pytest

from alluvia.api.lake import Lake, Table
from alluvia.clock import ManualClock
from alluvia.pipelines.rollup_runs import refresh_rollup
from alluvia.rollups.refresh import RefreshReport
from alluvia.store import MemoryStore
from tests.examples import seeds_from
from tests.property import row_model as model
from tests.property.row_model import KINDS, SCHEMA, Rows
from tests.property.shared_rows import SharedRows

QUERIES = {
    "folded": (
        "SELECT place, count(*) AS c, count(n) AS cn, sum(n) AS s, min(name) AS lo, max(n) AS hi, "
        "bool_and(n > 0) AS every, sum(id) FILTER (WHERE n > 0) AS some FROM t GROUP BY place"
    ),
    "recomputed": (
        "SELECT id % 3 AS k, x.place, avg(n) AS a, count(DISTINCT name) AS d, list(n ORDER BY n) AS l "
        "FROM t AS x WHERE id IS NOT NULL GROUP BY x.place, 1"
    ),
    "whole": "SELECT count(*) AS c, max(id) AS hi, sum(n) AS s FROM t WHERE n <> 3",
    "by_value": "SELECT id, n, count(*) AS c, string_agg(place, ',' ORDER BY place) AS l FROM t GROUP BY id, n",
    "by_alias": "SELECT upper(place) AS p, n AS k, arg_max(name, (n, name)) AS m FROM t WHERE p <> 'B' GROUP BY k, p",
}
ALIASES = ["P", "k", "c", "s"]
"""Names that the queries give, and that the table gains columns of."""
STEPS = ["append", "append", "append", "delete", "update", "upsert", "merge", "restore", "vacuum", "evolve"]


class Run:
    """A source, its model by version, and rollups of it that are refreshed now and then."""

    def __init__(self, kind: str, seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock(seed=seed)
        self.lake = Lake(MemoryStore("m", self.clock), self.clock)
        self.table = model.create(self.lake, kind, self.chance)
        self.versions: dict[int, Rows] = {0: Counter()}
        self.done: list[str] = []
        self.more = 0
        self.modes: Counter[str] = Counter()
        self.shared = 0
        self.rollups = {
            name: self.lake.create_rollup(name, query, fill=self.chance.random() < 0.5)
            for name, query in QUERIES.items()
        }

    @property
    def rows(self) -> Rows:
        return self.versions[max(self.versions)]

    def step(self) -> None:
        name = self.chance.choice(STEPS)
        expected = getattr(self, name)()
        version = self.table.version
        for between in range(max(self.versions) + 1, version + 1):
            self.versions[between] = expected
        self.done.append(f"{version}: {name}")
        for rollup in self.rollups.values():
            if self.chance.random() < 0.4:
                self.refresh(rollup)

    def refresh(self, rollup: Table) -> None:
        report = self.refreshed(rollup)
        self.done.append(f"refresh {rollup.name}: {report.mode} {report.reason or ''}")
        self.modes[report.mode] += 1
        assert report.source_version == max(self.versions)
        assert as_rows(rollup.to_arrow()) == expected_rows(QUERIES[rollup.name], self.rows), self.done
        if self.chance.random() < 0.2:
            rollup.optimize(full=True)

    def refreshed(self, rollup: Table) -> RefreshReport:
        """Refresh a rollup as a whole, or share by share, as Spark does."""
        if self.chance.random() < 0.6:
            return rollup.refresh()
        execution = SharedRows(self.lake.evaluation())
        report = refresh_rollup(self.lake.catalog, rollup.name, execution)
        self.shared += execution.shared
        return report

    def check_live(self) -> None:
        for rollup in self.rollups.values():
            found = as_rows(self.lake.sql(f"FROM {rollup.name}_live"))
            assert found == expected_rows(QUERIES[rollup.name], self.rows), [*self.done, rollup.name]

    def append(self) -> Rows:
        rows = [model.random_row(self.chance) for _ in range(self.chance.randint(1, 4))]
        self.table.append(model.as_dicts(rows))
        return self.rows + Counter(rows)

    def delete(self) -> Rows:
        condition = self.chance.choice(model.CONDITIONS)
        self.table.delete(condition.sql)
        return model.delete(self.rows, condition)

    def update(self) -> Rows:
        condition, change = self.chance.choice(model.CONDITIONS), self.chance.choice(model.UPDATES)
        self.table.update(change.values, where=condition.sql)
        return model.update(self.rows, change, condition)

    def upsert(self) -> Rows:
        rows = model.random_source(self.chance, self.chance.randint(0, 4))
        self.table.upsert(model.as_dicts(rows), on=["id"])
        return model.upsert(self.rows, rows, "update", inserts=True)

    def merge(self) -> Rows:
        self.table.optimize(full=True)
        return self.rows

    def restore(self) -> Rows:
        version = self.chance.choice([one for one in self.versions if one >= max(self.versions) - 3])
        self.table.restore(version=version)
        return self.versions[version]

    def vacuum(self) -> Rows:
        if self.chance.random() < 0.4:
            self.table.checkpoint()
            self.clock.advance(3600 * 24 * 40)
            self.table.vacuum(timedelta(hours=1))
            self.versions = {max(self.versions): self.rows}
        return self.rows

    def evolve(self) -> Rows:
        self.more += 1
        name = f"more{self.more}" if self.more > len(ALIASES) else ALIASES[self.more - 1]
        self.table.evolve(add={name: self.chance.choice(["long", "string"])})
        return self.rows


def as_rows(table: pa.Table) -> Counter[str]:
    return Counter(repr(sorted(row.items())) for row in table.to_pylist())


@cache
def plain_duckdb() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def expected_rows(query: str, rows: Rows) -> Counter[str]:
    with plain_duckdb().cursor() as plain:
        given = list(rows.elements())
        columns = [pa.array([row[at] for row in given], field.type) for at, field in enumerate(SCHEMA)]
        plain.register("t", pa.table(columns, schema=SCHEMA))
        found = plain.execute(query).to_arrow_table()
    longs = [pa.field(one.name, pa.int64() if pa.types.is_decimal(one.type) else one.type) for one in found.schema]
    return as_rows(found.cast(pa.schema(longs)))


def run(kind: str, seed: int, steps: int) -> Run:
    found = Run(kind, seed)
    for _ in range(steps):
        found.step()
    found.check_live()
    for rollup in found.rollups.values():
        found.refresh(rollup)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", seeds_from(100, 1))
def test_rollups_through_many_changes(kind: str, seed: int) -> None:
    found = run(kind, seed, steps=25)
    assert found.more
    assert found.shared
    assert {"nothing", "rebuilt"} <= set(found.modes)
