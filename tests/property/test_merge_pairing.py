"""MERGE INTO does the same whether keys in memory or a query pair the rows, and what DuckDB's own does."""

from __future__ import annotations

import random
import re
from typing import Any

import duckdb
import pytest

import alluvia
from alluvia.errors import AlluviaError, Invalid
from alluvia.operations.rows import keyed_merge
from alluvia.sql import merging
from tests.examples import seeds_from

KEYS = {
    "INT": ("BIGINT", ["1", "2", "2147483647", "NULL"], ["1", "2", "5000000000", "NULL"]),
    "BIGINT": ("INT", ["1", "2", "3", "NULL"], ["1", "2", "9", "NULL"]),
    "FLOAT": ("DOUBLE", ["0.1", "0.5", "'nan'", "-0.0", "NULL"], ["0.1", "0.5", "'nan'", "0.0", "NULL"]),
    "DOUBLE": ("FLOAT", ["0.1", "0.5", "'nan'", "-0.0", "NULL"], ["0.1", "0.5", "'nan'", "0.0", "NULL"]),
    "DECIMAL(8, 2)": ("DECIMAL(10, 3)", ["1.5", "2", "NULL"], ["1.5", "1.501", "2", "1234567.5", "NULL"]),
    "STRING": ("VARCHAR", ["'a'", "'A'", "''", "'ä'", "NULL"], ["'a'", "'b'", "''", "NULL"]),
    "DATE": ("DATE", ["'2026-01-01'", "'2026-01-02'", "NULL"], ["'2026-01-01'", "'2026-05-01'", "NULL"]),
    "TIMESTAMP": ("TIMESTAMPTZ", ["'2026-01-01 00:00:00Z'", "NULL"], ["'2026-01-01 01:00:00+01'", "NULL"]),
    "BINARY": ("BLOB", ["'a'", "'b'", "NULL"], ["'a'", "'c'", "NULL"]),
}
"""The type of the table's column, with that of the source's, and values of both."""
ACTIONS = {
    "MATCHED": ["DELETE", "UPDATE SET n = t.n + u.n", "UPDATE SET n = w, s = 'new'", "DO NOTHING",
                "UPDATE SET l = [u.n, t.n]", "UPDATE SET st = {'a': u.n, 'b': t.s}"],
    "NOT MATCHED": ["INSERT (n, s) VALUES (u.n, 'i')", "INSERT (n, l) VALUES (w, [w])", "DO NOTHING"],
    "NOT MATCHED BY SOURCE": ["DELETE", "UPDATE SET n = n - 1", "UPDATE SET s = 'gone', n = 0"],
}  # fmt: skip
CONDITIONS = {
    "MATCHED": ["t.n > u.n", "u.n < 3", "t.s = 'x'", "s IS NULL", "w > 1", "t.n + u.n > 4", "true"],
    "NOT MATCHED": ["u.n < 3", "w > 1", "u.k IS NULL"],
    "NOT MATCHED BY SOURCE": ["t.n > 2", "t.s = 'x'", "s IS NULL"],
}
TEXTS = ["NULL", "'x'", "'y'"]
LAYOUTS = [
    "",
    "PARTITION BY (n)",
    "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
    "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')",
]


ROWS = "SELECT k::VARCHAR AS k, n, s, l, st FROM t"
DUCKDB_TYPES = {
    " ARRAY<BIGINT>": " BIGINT[]",
    " STRUCT<a: BIGINT, b: STRING>": " STRUCT(a BIGINT, b VARCHAR)",
    " BINARY": " BLOB",
    " TIMESTAMP": " TIMESTAMPTZ",
}


@pytest.mark.parametrize("seed", seeds_from(100, 12))
def test_both_ways_to_pair_rows_do_the_same_as_duckdb(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    setup, merge = drawn(random.Random(seed))
    in_memory = merged(f"memory://pairs-{seed}-keys", setup, merge)
    monkeypatch.setattr(merging, "SOURCE_BYTES", 1)
    monkeypatch.setattr(keyed_merge, "merge", None)  # a query pairs the rows
    by_query = merged(f"memory://pairs-{seed}-query", setup, merge)
    assert in_memory == by_query, f"{setup}\n{merge}"
    pairs, expected = judged(setup, merge)
    if in_memory is Invalid:
        assert pairs > 1, f"{setup}\n{merge}"
    else:
        assert in_memory[1] == expected, f"{setup}\n{merge}"


def judged(setup: list[str], merge: str) -> tuple[int, list[str]]:
    """Return with how many rows of the source a row of the table pairs at most, and the rows after DuckDB's MERGE."""
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    create, *inserts = setup
    for ours, theirs in DUCKDB_TYPES.items():
        create = create.replace(ours, theirs)
    for text in [re.sub(r"\) (PARTITION BY|TBLPROPERTIES) .*", ")", create), *inserts]:
        connection.execute(text)
    using, on = re.fullmatch(r"MERGE INTO t USING (.*?) ON (.*?) WHEN .*", merge).groups()  # type: ignore[union-attr]
    counts = f"SELECT count(*) AS number FROM t JOIN {using} ON {on} GROUP BY t.rowid"
    pairs = connection.execute(f"SELECT coalesce(max(number), 0) FROM ({counts})").fetchall()[0][0]
    connection.execute(merge)
    return pairs, sorted(map(repr, connection.execute(ROWS).to_arrow_table().to_pylist()))


def merged(uri: str, setup: list[str], merge: str) -> Any:
    """Return the counts and the rows after a merge, or the kind of its error."""
    lake = alluvia.connect(uri)
    for text in setup:
        lake.sql(text)
    try:
        done = lake.sql(merge).to_pylist()[0]
    except AlluviaError as error:
        return type(error)
    return done, sorted(map(repr, lake.sql(ROWS).to_pylist()))


def drawn(chance: random.Random) -> tuple[list[str], str]:
    """Return statements that make a table, and a merge into it."""
    kind, (source_kind, mine, theirs) = chance.choice(list(KEYS.items()))
    columns = f"(first STRING, k {kind}, n BIGINT, s STRING, l ARRAY<BIGINT>, st STRUCT<a: BIGINT, b: STRING>)"
    setup = [f"CREATE TABLE t {columns} {chance.choice(LAYOUTS)}"]
    stored = {"STRING": "VARCHAR", "BINARY": "BLOB"}.get(kind, kind)
    for _ in range(chance.randint(1, 3)):
        rows = [f"({chance.choice(mine)}::{stored}, {chance.randint(0, 5)}, {chance.choice(TEXTS)})" for _ in range(3)]
        setup.append(f"INSERT INTO t (k, n, s) VALUES {', '.join(rows)}")
    keys = chance.sample(theirs, chance.randint(1, len(theirs)))
    if chance.random() < 0.3:
        keys += keys[:1]
    given = [f"SELECT {key}::{source_kind} AS k, {n} AS n, {n * 2 % 7} AS w" for n, key in enumerate(keys)]
    clauses = [
        f"WHEN {when} AND {chance.choice(CONDITIONS[when])} THEN {chance.choice(ACTIONS[when])}"
        for when in chance.choices(list(ACTIONS), k=chance.randint(1, 4))
    ]
    clauses += [f"WHEN {when} THEN {chance.choice(ACTIONS[when])}" for when in ACTIONS if chance.random() < 0.4]
    on = f"t.k = u.k{chance.choice(['', '', ' AND u.n < 4', ' AND t.n <> 3'])}"
    return setup, f"MERGE INTO t USING ({' UNION ALL '.join(given)}) AS u ON {on} {' '.join(clauses)}"
