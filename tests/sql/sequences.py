"""Random statements on a lake and on a plain DuckDB table, which must hold the same rows after each.

`python -m tests.sql.sequences --seeds 1000` runs more of them than the tests do, and prints the first difference.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest import mock

import duckdb
import pyarrow as pa

import alluvia
from alluvia.errors import AlluviaError
from alluvia.sql import merging

STATEMENTS = 12
_DRAWN = re.compile(r"<(\d+)>")
COLUMNS = ("k", "g", "n", "s", "d")
LAYOUTS = ("", "PARTITION BY (g)", "SORT BY (n)", "PARTITION BY (g) SORT BY (k)", "CLUSTER BY (k, n)")
PROPERTIES = ("", "TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
              "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')")  # fmt: skip


class Sequence:
    """One lake and one database, and statements drawn from a seed for both."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lake = alluvia.connect(f"memory://sequence-{seed}-{time.monotonic_ns()}")
        self.plain = duckdb.connect(":memory:")
        columns = "(k BIGINT, g INTEGER, n BIGINT, s VARCHAR, d DOUBLE)"
        layout, properties = self.random.choice(LAYOUTS), self.random.choice(PROPERTIES)
        self.lake.sql(f"CREATE TABLE t {columns} {layout} {properties}")
        self.plain.execute(f"CREATE TABLE t {columns}")
        for run in (self.lake.sql, self.plain.execute):
            run("CREATE TABLE o (id BIGINT, n BIGINT, w VARCHAR)")
            run("INSERT INTO o SELECT range * 2, range * 15, 'b' || range FROM range(6)")
        self.ran: list[tuple[str, list[Any]]] = []
        self.counts: Counter[str] = Counter()
        self.drawn: list[Any] = []
        self.source_bytes = merging.SOURCE_BYTES

    def run(self, statements: int = STATEMENTS) -> None:
        """Run statements, and compare after each. Raises `AssertionError` with all of them at the first difference."""
        kinds = [
            self.insert,
            self.insert,
            self.insert_select,
            self.update,
            self.delete,
            self.update_by_subquery,
            self.delete_by_subquery,
            self.merge,
            self.merge,
            self.merge_many,
            self.many,
        ]
        for _ in range(statements):
            self.drawn = []
            text, parameters = self.bound(self.random.choice(kinds)())
            self.ran.append((text, parameters))
            self.both(text, parameters)
            if self.counts["failed in DuckDB"]:
                return
            assert self.of_lake() == self.of_plain(), self.story()

    def bound(self, text: str) -> tuple[str, list[Any]]:
        """Return a statement with ? for the values that are drawn as parameters, and these in order."""
        parameters = [self.drawn[int(number)] for number in _DRAWN.findall(text)]
        return _DRAWN.sub("?", text), parameters

    def both(self, text: str, parameters: list[Any]) -> None:
        """Run a text on both: both must take it, or refuse it."""
        with mock.patch.object(merging, "SOURCE_BYTES", self.source_bytes):
            refused = self.attempt(lambda: self.lake.sql(text, parameters), AlluviaError)
        wanted = self.attempt(lambda: self.of_duckdb(text, parameters), duckdb.Error)
        if isinstance(wanted, duckdb.InternalException):  # of 1.5.5: a MERGE with subqueries in some places
            self.counts["failed in DuckDB"] += 1
            return
        assert (refused is None) == (wanted is None), f"{self.story()}\nthe lake: {refused}\nDuckDB: {wanted}"
        self.counts["refused by both" if refused else text.split(maxsplit=1)[0]] += 1

    def of_duckdb(self, text: str, parameters: list[Any]) -> None:
        parts, left = text.split("; "), list(parameters)
        self.plain.execute("BEGIN")
        try:
            for part in parts:
                given = [left.pop(0) for _ in range(part.count("?"))]
                self.plain.execute(part, given)
        except duckdb.Error:
            self.plain.execute("ROLLBACK")
            raise
        self.plain.execute("COMMIT")

    @staticmethod
    def attempt(what: Callable[[], object], error: type[Exception]) -> Exception | None:
        try:
            what()
        except error as caught:
            return caught
        return None

    def story(self) -> str:
        return "\n".join(f"{text}  -- {parameters}" for text, parameters in self.ran)

    def of_lake(self) -> list[Any]:
        return _sorted(self.lake.table("t").to_arrow(list(COLUMNS)))

    def of_plain(self) -> list[Any]:
        return _sorted(self.plain.execute(f"SELECT {', '.join(COLUMNS)} FROM t").to_arrow_table())

    def value(self, column: str) -> str:
        """Return a literal, or a parameter with a value."""
        choices: dict[str, list[Any]] = {
            "k": list(range(12)),
            "g": [0, 1, 2, None],
            "n": [None, -1, self.random.randrange(100)],
            "s": ["", "a", "B'b", "ccc", "?", None],
            "d": [0.5, -1.25, 1e10, None],
        }
        value = self.random.choice(choices[column])
        if self.random.random() < 0.3:
            self.drawn.append(value)
            return f"<{len(self.drawn) - 1}>"
        if value is None:
            return "NULL"
        return "'" + value.replace("'", "''").replace("?", "!") + "'" if isinstance(value, str) else repr(value)

    def row(self) -> str:
        return f"({', '.join(self.value(column) for column in COLUMNS)})"

    def number(self, name: str) -> str:
        return self.random.choice([
            f"{name}n + 1", f"{name}k * 2", f"abs({name}n)", f"coalesce({name}n, {name}k)",
            f"CASE WHEN {name}g = 1 THEN {name}n ELSE {name}k END", f"length({name}s)", self.value("n"),
        ])  # fmt: skip

    def text(self, name: str) -> str:
        return self.random.choice([f"upper({name}s)", f"{name}s || '-'", f"coalesce({name}s, 'none')", self.value("s")])

    def condition(self, name: str = "") -> str:
        one = self.random.choice([
            f"{name}k = {self.value('k')}", f"{name}k < {self.random.randrange(12)}",
            f"{name}g = {self.random.randrange(3)}", f"{name}n IS NULL",
            f"{name}s LIKE '%b%'", f"{name}k IN (1, 3, 5, {self.value('k')})",
            f"{name}d > 0", f"{name}n BETWEEN 10 AND 60", f"{name}s = {self.value('s')}",
        ])  # fmt: skip
        if self.random.random() < 0.3:
            return f"({one} {self.random.choice(['AND', 'OR'])} {self.condition(name)})"
        return f"NOT ({one})" if self.random.random() < 0.15 else one

    def insert(self) -> str:
        if self.random.random() < 0.3:
            return f"INSERT INTO t (s, k) VALUES ({self.value('s')}, {self.value('k')})"
        return f"INSERT INTO t VALUES {', '.join(self.row() for _ in range(self.random.randrange(1, 6)))}"

    def insert_select(self) -> str:
        return self.random.choice([
            f"INSERT INTO t (k, n, s) SELECT k + 1, {self.number('')}, s FROM t WHERE {self.condition()}",
            "INSERT INTO t (k, n) SELECT 100 + coalesce(g, 9), sum(n) FROM t WHERE k < 100 GROUP BY g",
            f"INSERT INTO t (k, g) SELECT range, range % 3 FROM range({self.random.randrange(5)})",
        ])  # fmt: skip

    def update(self) -> str:
        name = self.random.choice(["", "t."])
        sets = self.random.sample(
            [f"n = {self.number(name)}", f"s = {self.text(name)}", "g = (k % 3)::INTEGER", f"d = {name}d * 2"],
            self.random.randrange(1, 4),
        )
        return f"UPDATE t SET {', '.join(sets)} WHERE {self.condition(name)}"

    def update_by_subquery(self) -> str:
        sets = self.random.sample(
            ["n = (SELECT max(n) FROM o)", "n = (SELECT n FROM o WHERE o.id = t.k)", "s = (SELECT min(w) FROM o)",
             "n = (SELECT sum(o.n) FROM o WHERE o.id < t.k) + t.n", "g = (SELECT count(*) FROM t AS i WHERE i.k = t.k)",
             f"d = {self.value('d')}", f"s = {self.text('t.')}", "n = (SELECT min(n) FROM t WHERE k = 1)"],
            self.random.randrange(1, 4),
        )  # fmt: skip
        if len({each[0] for each in sets}) < len(sets):
            return self.update_by_subquery()
        return f"UPDATE t SET {', '.join(sets)} WHERE {self.random.choice([self.found(), self.condition('t.')])}"

    def delete(self) -> str:
        return f"DELETE FROM t WHERE {self.condition(self.random.choice(['', 't.']))}"

    def delete_by_subquery(self) -> str:
        return f"DELETE FROM t WHERE {self.found()}"

    def found(self) -> str:
        """Return a condition on `t` with a subquery."""
        one = self.random.choice([
            f"k IN (SELECT id FROM o WHERE n < {self.value('n')})", "EXISTS (FROM o WHERE o.id = t.k AND o.n > t.n)",
            f"k = (SELECT max(k) FROM t WHERE {self.condition()})", "n < (SELECT avg(n) FROM t AS i WHERE i.g = t.g)",
            f"NOT EXISTS (FROM o WHERE id = t.k OR w = {self.value('s')})", "k NOT IN (SELECT n FROM t WHERE n < 20)",
            "k > ALL (SELECT id FROM o WHERE n < 30)", "s = ANY (SELECT w FROM o)",
        ])  # fmt: skip
        return f"{one} AND {self.condition('t.')}" if self.random.random() < 0.4 else one

    def many(self) -> str:
        return f"{self.insert()}; {self.delete()}; {self.insert_select()}"

    def merge(self) -> str:
        keys = self.random.sample(range(14), self.random.randrange(6))
        rows = ", ".join(f"({key}, {self.value('n')}, {self.value('s')}::VARCHAR)" for key in keys) or "(NULL, 1, 'x')"
        source = f"(SELECT id::BIGINT AS id, n::BIGINT AS n, s FROM (VALUES {rows}) v(id, n, s))"
        on = self.random.choice([
            "x.k = y.id", "x.k = y.id", "x.k = y.id AND x.n > 5", "x.k = y.id AND x.g = 1",
            "x.k = y.id AND y.n IS NOT NULL", "x.k + 1 = y.id + 1", "x.k >= y.id AND x.k <= y.id AND x.n <> 3",
            "abs(x.k - y.id) < 0.5 OR (x.k IS NULL AND y.id IS NULL)", "x.k = 3 AND y.id = 3", "x.k = y.id AND false",
        ])  # fmt: skip
        self.source_bytes = self.random.choice([1, 1 << 20])
        kinds = [
            ("MATCHED", ("x.", "y.")),
            ("MATCHED", ("x.", "y.")),
            ("NOT MATCHED", ("y.",)),
            ("NOT MATCHED BY SOURCE", ("x.",)),
        ]
        clauses: list[str] = []
        ended: set[str] = set()  # DuckDB lets conditions that come after a clause without one go first
        for when, names in self.random.sample(kinds, self.random.randrange(1, 5)):
            condition = self.maybe(names)
            if when not in ended:
                clauses.append(f"WHEN {when}{condition} THEN {self.action(when, names)}")
            ended |= set() if condition else {when}
        return f"MERGE INTO t AS x USING {source} AS y ON {on} {' '.join(clauses)}"

    def merge_many(self) -> str:
        """Return a MERGE in which rows have several counterparts: it inserts, or deletes."""
        on = self.random.choice(
            ["x.k < y.id", "x.k = y.id", "x.g = y.id % 3", "x.s = y.w OR x.n = y.id", "x.k <> y.id"]
        )
        # Not of `t` itself: DuckDB 1.5.5 then loses an inserted row in one of ten runs.
        source = "(SELECT id + 1 AS id, n + 5 AS n, w FROM o UNION ALL FROM o)" if self.random.random() < 0.3 else "o"
        clauses = self.random.sample(
            ["WHEN MATCHED THEN DELETE",
             f"WHEN NOT MATCHED{self.maybe(('y.',), 'w')} THEN INSERT (k, s) VALUES (id, w)",
             f"WHEN NOT MATCHED BY SOURCE{self.maybe(('x.',))} THEN UPDATE SET n = n + 1"],
            self.random.randrange(1, 4),
        )  # fmt: skip
        return f"MERGE INTO t AS x USING {source} AS y ON {on} {' '.join(clauses)}"

    def maybe(self, names: tuple[str, ...], text: str = "s") -> str:
        """Return a condition of a clause, or nothing."""
        if self.random.random() < 0.3:
            return ""
        name = self.random.choice(names)
        key = "x.k" if name == "x." else "y.id"
        return " AND " + self.random.choice([
            f"{name}n > 20", f"{name}{text} IS NULL", f"{name}n + {names[-1]}n > 10",
            self.random.choice([
                f"{key} IN (SELECT id FROM o WHERE n < {self.value('n')})", f"{name}n < (SELECT avg(n) FROM t)",
                f"NOT EXISTS (FROM o WHERE o.id = {key} AND o.n > {names[-1]}n)", f"{key} < ALL (SELECT n FROM o)",
            ]),
        ])  # fmt: skip

    def action(self, when: str, names: tuple[str, ...]) -> str:
        name = self.random.choice(names)
        if when == "NOT MATCHED":
            return self.random.choice([
                "INSERT (k, n, s) VALUES (y.id, y.n * 2, y.s)", "INSERT (s, k) VALUES (upper(y.s), id + 0)",
                "INSERT (k, n, s) VALUES (id, (SELECT count(*) FROM t), (SELECT min(w) FROM o))",
                "DO NOTHING",
            ])  # fmt: skip
        return self.random.choice([
            f"UPDATE SET n = coalesce({name}n, 0) + coalesce({names[-1]}n, 1)", "DELETE", "DO NOTHING",
            f"UPDATE SET s = {name}s || x.s, g = 2", "UPDATE SET k = x.k + 1",
            # DuckDB 1.5.5 fails internally for values of a MERGE with subqueries that name its rows.
            f"UPDATE SET n = (SELECT max(n) FROM o WHERE id < 7) + {name}n, s = (SELECT max(s) FROM t), d = 0.5",
        ])  # fmt: skip


def _sorted(table: pa.Table) -> list[Any]:
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=repr)


def run(seeds: range, seconds: float | None = None) -> Counter[str]:
    """Run the sequences of some seeds, until time is up. Returns how often each kind of statement ran."""
    counts: Counter[str] = Counter()
    began = time.monotonic()
    for seed in seeds:
        if seconds is not None and time.monotonic() - began > seconds:
            break
        sequence = Sequence(seed)
        try:
            sequence.run()
        except BaseException as error:
            raise AssertionError(f"seed {seed}\n{sequence.story()}") from error
        counts += sequence.counts
    return counts


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seeds", type=int, default=100)
    arguments.add_argument("--first", type=int, default=0)
    asked = arguments.parse_args()
    found = run(range(asked.first, asked.first + asked.seeds))
    sys.stdout.write(f"{found.total()} statements: {dict(found.most_common())}\n")
