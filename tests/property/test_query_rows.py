"""Random queries give the rows that they give over the same rows in memory, however many files these lie in.

The other engines are DuckDB over one table of its own, and SQLite for the queries that both read alike.
"""

from __future__ import annotations

import math
import sqlite3
from datetime import date
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import alluvia
from alluvia.api.lake import Table
from tests.examples import seeds_from

FILES = (1, 8, 40)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()), ("k", pa.int64()), ("i", pa.int32()), ("s", pa.string()), ("x", pa.float64()),
        ("day", pa.date32()), ("part", pa.string()),
    ]
)  # fmt: skip
LONGS = (0, 1, -1, 7, 100, 2**31 - 1, -(2**31), 2**31, 2**53 + 1, 2**63 - 1, -(2**63), None)
INTS = (0, 1, 2, 3, 127, 128, -129, 2**31 - 1, -(2**31), None)
TEXTS = ("", "a", "A", "b", "ab", "é", "\U0001f30a", "z" * 40, "10", None)
DOUBLES = (0.0, -0.0, 1.5, -1.5, 1e300, -1e300, 5e-324, math.inf, -math.inf, math.nan, None)
QUERIES_EACH = 24
Row = dict[str, Any]


def rows_of(chance: Random, first: int, count: int) -> list[Row]:
    return [
        {
            "id": first + at,
            "k": chance.choice((*LONGS, first + at, first + at)),
            "i": chance.choice((*INTS, at)),
            "s": chance.choice(TEXTS),
            "x": chance.choice(DOUBLES),
            "day": f"2026-01-{1 + chance.randrange(28):02}" if chance.random() < 0.9 else None,
            "part": chance.choice(("p", "q", None)),
        }
        for at in range(count)
    ]


def make(folder: Path, chance: Random, files: int) -> Table:
    """A table of about so many files: appended, partitioned and renamed at times, with rows deleted and updated."""
    lake = alluvia.connect(str(folder))
    table = lake.create_table(
        "t",
        SCHEMA,
        partition_by=["part"] if files > 1 and chance.random() < 0.5 else [],
        properties={"delta.enableDeletionVectors": chance.choice(("true", "false"))},
    )
    if chance.random() < 0.4:
        lake.sql("ALTER TABLE t RENAME COLUMN i TO j")
        lake.sql("ALTER TABLE t RENAME COLUMN j TO i")
    per_file = max(2, 160 // files)
    with lake.transaction() as tx:
        for number in range(files):
            rows = rows_of(chance, number * per_file, per_file)
            tx.table("t").append(pa.Table.from_pylist([_dated(row) for row in rows], SCHEMA))
    if chance.random() < 0.6:
        table.delete(f"id % 7 = {chance.randrange(7)}")
    if chance.random() < 0.4:
        table.update({"k": "-1", "s": "'changed'"}, where=f"id % 11 = {chance.randrange(11)}")
    return table


def _dated(row: Row) -> Row:
    return {**row, "day": None if row["day"] is None else date.fromisoformat(row["day"])}


def _literal(chance: Random, column: str) -> str:
    if column == "s":
        return "'" + chance.choice([text for text in TEXTS if text is not None]) + "'"
    if column == "x":
        return chance.choice(("0", "1.5", "-1.5", "1e300"))
    values = LONGS if column in ("k", "id") else INTS
    return str(chance.choice([value for value in values if value is not None and value > -(2**63)]))


def condition(chance: Random, depth: int = 2) -> str:
    """Return a condition that DuckDB and SQLite read alike, but for doubles."""
    if depth and chance.random() < 0.5:
        inner = condition(chance, depth - 1), condition(chance, depth - 1)
        return chance.choice((f"({inner[0]} AND {inner[1]})", f"({inner[0]} OR {inner[1]})", f"NOT ({inner[0]})"))
    column = chance.choice(("id", "k", "i", "s", "x"))
    one, two = _literal(chance, column), _literal(chance, column)
    other = chance.choice(("k", "i", "id")) if column in ("k", "i", "id") else column
    return chance.choice(
        (
            f"{column} {chance.choice(('=', '<>', '<', '<=', '>', '>='))} {one}",
            f"{column} BETWEEN {one} AND {two}",
            f"{column} IN ({one}, {two})",
            f"{column} NOT IN ({one}, {two})",
            f"{column} IS {chance.choice(('', 'NOT '))}NULL",
            f"{column} IN (SELECT {other} FROM t WHERE {other} > {_literal(chance, other)})",
            f"{column} NOT IN (SELECT {other} FROM t WHERE {other} < {_literal(chance, other)})",
            f"EXISTS (SELECT 1 FROM t AS u WHERE u.i = t.i AND u.id <> t.id AND u.s = {_literal(chance, 's')})",
        )
    )


def query(chance: Random) -> tuple[str, bool]:
    """Return a query whose rows have one order, or none, and whether SQLite reads it alike."""
    where = condition(chance)
    if chance.random() < 0.2:
        where = f"({where}) AND (i, s) IN (SELECT i, s FROM t AS u WHERE u.id % 3 = 0)"
    plain = " x " not in f" {where.replace('(', ' ').replace(')', ' ')} "
    kind = chance.randrange(6)
    if kind == 0:
        return f"SELECT count(*), sum(id), min(i), max(i), min(s), max(s), count(k) FROM t WHERE {where}", plain
    if kind == 1:
        return f"SELECT i, count(*), min(id) FROM t WHERE {where} GROUP BY i ORDER BY count(*) DESC, i LIMIT 5", False
    if kind == 2:
        key = chance.choice(("k", "i", "s", "x", "day", "part", "TRY_CAST(k AS INT)", "TRY_CAST(k AS SMALLINT)"))
        way = f"{chance.choice(('ASC', 'DESC'))} NULLS {chance.choice(('FIRST', 'LAST'))}"
        limit = chance.randrange(1, 9)
        return f"SELECT id, {key} AS v FROM t WHERE {where} ORDER BY {key} {way}, id LIMIT {limit}", False
    if kind == 3:
        return "SELECT a.id, b.id FROM t AS a JOIN t AS b ON a.i = b.k AND a.id <= b.id WHERE a.id % 2 = 0", True
    if kind == 4:
        return f"SELECT part, day, count(*) FROM t WHERE {where} GROUP BY part, day", False
    return f"SELECT id, k, i, s FROM t WHERE {where}", plain


def canonical(rows: list[tuple[Any, ...]]) -> list[str]:
    """Return rows as texts; a sum is a decimal to one engine and an integer to another, and no zero has a sign."""

    def plain(value: Any) -> Any:
        if isinstance(value, float):
            return value + 0.0
        return int(value) if isinstance(value, (bool, Decimal)) else value

    return [repr(tuple(map(plain, row))) for row in rows]


@pytest.mark.parametrize("files", FILES)
@pytest.mark.parametrize("seed", seeds_from(0, 3))
def test_rows_do_not_depend_on_files_nor_on_the_engine(seed: int, files: int, tmp_path: Path) -> None:
    chance = Random(f"{seed} {files}")
    table = make(tmp_path, chance, files)
    rows = table.scan().read_all()
    lite = sqlite3.connect(":memory:")
    lite.execute("CREATE TABLE t (id INTEGER, k INTEGER, i INTEGER, s TEXT)")
    columns = [rows[name].to_pylist() for name in ("id", "k", "i", "s")]
    lite.executemany("INSERT INTO t VALUES (?, ?, ?, ?)", zip(*columns, strict=True))
    with duckdb.connect() as memory:
        memory.execute("SET TimeZone = 'UTC'")
        memory.execute("CREATE TABLE t AS FROM rows")
        for _ in range(QUERIES_EACH):
            text, plain = query(chance)
            wanted = memory.execute(text).fetchall()
            found = [tuple(row) for row in zip(*(c.to_pylist() for c in table.lake.sql(text).columns), strict=True)]
            sides = [canonical(found), canonical(wanted)]
            if plain:
                sides.append(canonical(lite.execute(text).fetchall()))
            if " LIMIT " not in text:
                sides = [sorted(side) for side in sides]
            assert all(side == sides[0] for side in sides), (text, sides)
    lite.close()
