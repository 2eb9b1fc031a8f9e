"""Columns renamed, dropped and added at random among other writes, compared with rows as plain dicts."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import alluvia
from alluvia.api.lake import Table
from tests import judges

NAMES = ["a", "b", "c", "d", "e"]
STEPS = 25
KINDS = {
    "copied": {"delta.checkpointInterval": "5"},
    "vectors, fed": {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"},
}


class Model:
    """A table with a key `id` and columns of whole numbers that come, go and change their names, as plain dicts."""

    def __init__(self, table: Table, seed: int) -> None:
        self.table = table
        self.random = random.Random(seed)
        self.rows: list[dict[str, Any]] = []
        self.columns = ["a", "b"]
        self.next_id = 0

    def step(self) -> None:
        """Do one thing to the table and to the rows."""
        actions = [self.append, self.append, self.update, self.upsert, self.delete, self.optimize]
        self.random.choice([*actions, self.rename, self.drop, self.add, self.grow])()

    def _row(self, columns: list[str]) -> dict[str, Any]:
        self.next_id += 1
        given = {name: self.random.randrange(5) for name in columns if self.random.random() < 0.8}
        return {"id": self.next_id, **given}

    def _put(self, row: dict[str, Any]) -> None:
        self.rows.append({"id": row["id"], **{name: row.get(name) for name in self.columns}})

    def append(self) -> None:
        new = [self._row(self.columns) for _ in range(3)]
        self.table.append(new)
        for row in new:
            self._put(row)

    def update(self) -> None:
        name, where = self.random.choice(self.columns), self.random.choice(self.columns)
        self.table.update({name: "id * 10"}, f"{where} > 2")
        for row in self.rows:
            if row[where] is not None and row[where] > 2:
                row[name] = row["id"] * 10

    def upsert(self) -> None:
        known = [row["id"] for row in self.random.sample(self.rows, min(2, len(self.rows)))]
        new = [*({"id": key, self.columns[0]: 7} for key in known), self._row(self.columns[:1])]
        self.table.upsert(new, on=["id"], columns=[self.columns[0]])
        for row in self.rows:
            if row["id"] in known:
                row[self.columns[0]] = 7
        self._put(new[-1])

    def delete(self) -> None:
        name, value = self.random.choice(self.columns), self.random.randrange(5)
        self.table.delete(f"{name} = {value}")
        self.rows = [row for row in self.rows if row[name] != value]

    def optimize(self) -> None:
        self.table.optimize(full=self.random.random() < 0.5)

    def _free(self) -> list[str]:
        return [name for name in NAMES if name not in self.columns]

    def rename(self) -> None:
        old = self.random.sample(self.columns, self.random.choice([1, 2]) if len(self.columns) > 1 else 1)
        new = list(reversed(old)) if len(old) > 1 else self._free()[:1]
        if not new:
            return
        names = dict(zip(old, new, strict=True))
        self.table.evolve(rename=names)
        self.columns = [names.get(name, name) for name in self.columns]
        self.rows = [{names.get(name, name): value for name, value in row.items()} for row in self.rows]

    def drop(self) -> None:
        if len(self.columns) > 1:
            name = self.random.choice(self.columns)
            self.table.evolve(drop=[name])
            self.columns.remove(name)
            for row in self.rows:
                del row[name]

    def _added(self, name: str) -> None:
        self.columns.append(name)
        for row in self.rows:
            row[name] = None

    def add(self) -> None:
        if free := self._free():
            self.table.evolve(add={free[0]: "long"})
            self._added(free[0])

    def grow(self) -> None:
        if free := self._free():
            row = self._row(self.columns) | {free[-1]: 3}
            self.table.append([row], evolve=True)
            self._added(free[-1])
            self._put(row)

    def check(self) -> None:
        """Assert that the table holds the rows, whoever reads them."""
        found = self.table.to_arrow()
        assert set(found.column_names) == {"id", *self.columns}
        expected = sorted(tuple(sorted(row.items())) for row in map(_comparable, self.rows))
        assert sorted(tuple(sorted(row.items())) for row in map(_comparable, found.to_pylist())) == expected


def _comparable(row: dict[str, Any]) -> dict[str, int]:
    return {name: -1 if value is None else value for name, value in row.items()}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(3))
def test_rows_keep_their_values_under_every_name(kind: str, seed: int, tmp_path: Path) -> None:
    schema = {"id": "long", "a": "long", "b": "long"}
    table = alluvia.connect(str(tmp_path)).create_table("t", schema, properties=KINDS[kind])
    model = Model(table, seed)
    for _ in range(STEPS):
        model.step()
        model.check()
    rows = judges.ours(alluvia.connect(str(tmp_path)).table("t"))
    assert judges.duckdb_rows(table) == rows
    assert not table.verify(full=True).findings
