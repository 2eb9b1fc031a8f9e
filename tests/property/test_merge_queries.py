"""Tables with merge queries, merged in any grouping: `_final` is what plain DuckDB makes of all rows ever appended.

Rows are deleted by their keys, restores go back, and clean-up runs in between.
"""

from __future__ import annotations

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from alluvia.api.lake import Lake
from alluvia.clock import ManualClock
from alluvia.store import MemoryStore
from tests.examples import seeds_from

SCHEMA = pa.schema(
    [
        pa.field("user", pa.string()),
        pa.field("ts", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("place", pa.string()),
        pa.field("hits", pa.int64()),
        pa.field("paid", pa.decimal128(12, 2)),
    ]
)
SUMS = "max(ts) AS ts, sum(hits) AS hits, sum(paid) AS paid"
QUERIES = {
    "sums": f"SELECT user, place, {SUMS} FROM source GROUP BY user, place",
    "sums of days": f"SELECT user, place, {SUMS} FROM source GROUP BY 1, 2, date_trunc('day', ts)",
    "sums of weeks": f"SELECT user, place, {SUMS} FROM source GROUP BY user, place, date_trunc('week', ts)",
    "newest": "SELECT DISTINCT ON (user, place) * FROM source ORDER BY user, place, ts DESC, hits, paid",
    "once": "SELECT DISTINCT user, ts, place, hits, paid FROM source",
    "filtered": f"SELECT user, place, {SUMS} FROM source WHERE user <> 'u1' GROUP BY user, place",
}
LAYOUTS: list[list[str]] = [[], ["day(ts)"], ["place", "month(ts)"]]
STEPS = ["append", "append", "append", "merge", "merge", "delete", "restore", "vacuum"]
CONDITIONS = [
    *("user = 'u0'", "user IS NULL", "place = 'a' AND hits > 1", "user = 'u1' OR hits < 0", "hits IS NULL"),
    *("ts >= TIMESTAMPTZ '2026-03-02 00:00:00+00'", "place IS NOT NULL AND user > 'u0'", "paid = 1.2", "NOT hits = 2"),
]
START = datetime(2026, 3, 1, tzinfo=UTC)
Row = tuple[Any, ...]


class Run:
    """A table, and the rows that it would have without merges, by version."""

    def __init__(self, query: str, layout: list[str], seed: int) -> None:
        self.chance = random.Random(seed)
        self.clock = ManualClock(seed=seed)
        self.lake = Lake(MemoryStore("m", self.clock), self.clock)
        self.query = query
        vectors = {"delta.enableDeletionVectors": "true"} if self.chance.random() < 0.5 else {}
        properties = {"alluvia.merge_query": query, **vectors}
        self.table = self.lake.create_table("t", SCHEMA, layout, sort_by=["user"], properties=properties)
        self.versions: dict[int, Counter[Row]] = {0: Counter()}
        self.done: list[str] = []
        self.folded = 0

    @property
    def rows(self) -> Counter[Row]:
        return self.versions[max(self.versions)]

    def step(self) -> None:
        name = self.chance.choice(STEPS)
        expected = getattr(self, name)()
        for version in range(max(self.versions) + 1, self.table.version + 1):
            self.versions[version] = expected
        self.done.append(f"{self.table.version}: {name}")

    def check(self) -> None:
        wanted = expected_rows(self.query, self.rows)
        assert as_rows(self.lake.sql("FROM t_final")) == wanted, self.done
        assert as_rows(self.table.final()) == wanted, self.done
        where = self.chance.choice(CONDITIONS)
        some = expected_rows(f"SELECT * FROM ({self.query}) WHERE {where}", self.rows)
        assert as_rows(self.lake.sql(f"FROM t_final WHERE {where}")) == some, (where, self.done)
        assert as_rows(self.table.final(where=where)) == some, (where, self.done)
        version = self.chance.choice(list(self.versions))
        before = self.lake.sql(f"FROM t_final(version => {version})")
        assert as_rows(before) == expected_rows(self.query, self.versions[version]), (version, self.done)

    def append(self) -> Counter[Row]:
        rows = [self.row() for _ in range(self.chance.randint(1, 6))]
        self.table.append([dict(zip(SCHEMA.names, row, strict=True)) for row in rows])
        return self.rows + Counter(rows)

    def row(self) -> Row:
        chance = self.chance
        ts = START + timedelta(hours=chance.choice([0, 1, 5, 23, 24, 30, 24 * 9, 24 * 40]))
        cents = chance.choice([None, 0, 5, 120])
        paid = None if cents is None else pa.scalar(cents, pa.decimal128(14, 0)).as_py().scaleb(-2)
        return (
            chance.choice([None, "u0", "u1", "u2"]),
            ts,
            chance.choice([None, "a", "b"]),
            chance.choice([None, -1, 2]),
            paid,
        )

    def merge(self) -> Counter[Row]:
        limit = self.chance.choice([None, 2, 3])
        order = self.chance.choice(["smallest", "oldest", "newest"])
        done = self.table.optimize(full=self.chance.random() < 0.7, max_files=limit, order=order)
        self.folded += done.rows_folded
        return self.rows

    def delete(self) -> Counter[Row]:
        user = self.chance.choice(["u0", "u1", "u2"])
        if "once" in self.query or self.chance.random() < 0.5:
            self.table.delete(f"user = '{user}' AND place IS NULL")
            return Counter({row: n for row, n in self.rows.items() if (row[0], row[2]) != (user, None)})
        self.table.delete(f"user = '{user}'")
        return Counter({row: n for row, n in self.rows.items() if row[0] != user})

    def restore(self) -> Counter[Row]:
        version = self.chance.choice([one for one in self.versions if one >= max(self.versions) - 3])
        self.table.restore(version=version)
        return self.versions[version]

    def vacuum(self) -> Counter[Row]:
        if self.chance.random() < 0.4:
            self.table.checkpoint()
            self.clock.advance(3600 * 24 * 40)
            self.table.vacuum(timedelta(hours=1))
            self.versions = {max(self.versions): self.rows}
        return self.rows


def as_rows(table: pa.Table) -> Counter[str]:
    return Counter(repr(tuple(row[name] for name in SCHEMA.names)) for row in table.to_pylist())


@cache
def plain_duckdb() -> duckdb.DuckDBPyConnection:
    return duckdb.connect()


def expected_rows(query: str, rows: Counter[Row]) -> Counter[str]:
    with plain_duckdb().cursor() as plain:
        plain.execute("SET TimeZone = 'UTC'")
        given = list(rows.elements())
        columns = [pa.array([row[at] for row in given], field.type) for at, field in enumerate(SCHEMA)]
        plain.register("source", pa.table(columns, schema=SCHEMA))
        found = plain.execute(query).to_arrow_table().select(SCHEMA.names)
    return as_rows(found.cast(pa.schema([field.with_nullable(True) for field in SCHEMA])))


def run(name: str, layout: list[str], seed: int, steps: int) -> Run:
    found = Run(QUERIES[name], layout, seed)
    for _ in range(steps):
        found.step()
        if found.chance.random() < 0.3:
            found.check()
    found.check()
    assert not found.table.verify(full=True).findings
    return found


@pytest.mark.slow
@pytest.mark.parametrize("name", QUERIES)
@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_final_through_many_merges(name: str, layout: list[str]) -> None:
    assert sum(run(name, layout, seed, steps=20).folded for seed in seeds_from(7, 1))
