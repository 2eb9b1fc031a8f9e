"""Random nested queries whose columns' names collide in every way, over tables of many files, from a seed.

A query is valid more often than not; where plain DuckDB refuses it, there is nothing to compare. To run many:
`python -m tests.unit.query.nested_queries --seeds 20000 --from 0`.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from dataclasses import dataclass
from unittest.mock import patch

import duckdb
import pyarrow as pa

import alluvia
from alluvia.delta.skipping.predicate import Unknown
from alluvia.errors import AlluviaError, Invalid
from alluvia.query import scans
from alluvia.query.engine import run

STRUCT = pa.struct([("id", pa.int64()), ("k", pa.int64())])
TABLES = {
    "a": pa.schema([(name, pa.int64()) for name in ("id", "k", "id_1", "n")] + [("s", STRUCT)]),
    "b": pa.schema([("k", pa.int64()), ("s", STRUCT), *((name, pa.int64()) for name in ("n_1", "id", "k_1"))]),
    "c": pa.schema([(name, pa.int64()) for name in ("id", "n", "k_2")]),
}
NAMES = ("id", "k", "n", "id_1", "k_1", "n_1", "id_2", "k_2", "s")
ALIASES = ("x", "y", "z", "s", "g", "h")
FILES = 8
FILE_ROWS = 3
VALUES_MAX = 2 * FILES
REFUSALS = (duckdb.BinderException, duckdb.ParserException, duckdb.NotImplementedException, duckdb.ConversionException)
"""Errors of a query. After any other, DuckDB might refuse all that follow, and nothing would be compared any more."""


def file_rows(chance: random.Random, schema: pa.Schema, file: int) -> pa.Table:
    """Return rows whose values lie close together, differently for each column, with a null now and then."""

    def value(at: int) -> int | None:
        return None if chance.random() < 0.05 else (file + 3 * at) % FILES * 2 + chance.randint(0, 1)

    rows = [
        {
            field.name: {"id": value(at), "k": value(at + 1)} if field.type == STRUCT else value(at)
            for at, field in enumerate(schema)
        }
        for _ in range(FILE_ROWS)
    ]
    return pa.Table.from_pylist(rows, schema)


def build(path: str) -> tuple[alluvia.Lake, duckdb.DuckDBPyConnection]:
    """Make a lake whose tables have many files, and plain DuckDB views of the same rows."""
    chance = random.Random(1)
    lake, plain = alluvia.connect(path), duckdb.connect()
    for name, schema in TABLES.items():
        table = lake.create_table(name, schema)
        parts = [file_rows(chance, schema, file) for file in range(FILES)]
        for rows in parts:
            table.append(rows)
        plain.register("rows", pa.concat_tables(parts))
        plain.execute(f"CREATE TABLE {name}_rows AS FROM rows")
        plain.execute(f"CREATE VIEW {name} AS FROM {name}_rows")
        plain.unregister("rows")
    return lake, plain


@dataclass(frozen=True)
class Entry:
    """An entry of FROM: its name and its columns', as far as the generator knows them."""

    alias: str
    names: tuple[str, ...]


class Generator:
    """Writes one query from a seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._ctes: list[Entry] = []
        self._given = 0

    def query(self) -> str:
        """Return a whole query: nested at random, or a condition on a query whose columns' names may repeat."""
        if self._maybe(0.3):
            return self._query(3)[0]
        text, names = self._select(self._chance.randint(1, 2))
        shown = _shown(names, "")
        doubtful = [name for name in shown if names.count(name.rpartition("_")[0]) or names.count(name) > 1]
        column = self._one(doubtful if doubtful and self._maybe(0.7) else shown or NAMES)
        operator, number = self._one(("=", "=", "<", ">")), self._chance.randint(0, VALUES_MAX)
        return f"SELECT * FROM ({text}) WHERE {column}{'.id' * (column == 's')} {operator} {number}"

    def _one(self, choices: tuple[str, ...] | list[str]) -> str:
        return self._chance.choice(choices)

    def _maybe(self, share: float) -> bool:
        return self._chance.random() < share

    def _query(self, depth: int) -> tuple[str, tuple[str, ...]]:
        kept = list(self._ctes)
        clauses: list[str] = []
        taken: set[str] = set()
        while depth > 1 and len(taken) < 3 and self._maybe(0.2):
            text, names = self._query(depth - 1)
            alias, given = self._one([name for name in ("a", "q", "r") if name not in taken]), self._aliases(names)
            taken.add(alias)
            clauses.append(f"{alias}{given and f'({given})'} AS ({text})")
            self._ctes.append(Entry(alias, _shown(names, given)))
        body, names = self._body(depth)
        self._ctes = kept
        return (f"WITH {', '.join(clauses)} {body}" if clauses else body), names

    def _body(self, depth: int) -> tuple[str, tuple[str, ...]]:
        if depth > 0 and self._maybe(0.12):
            left, names = self._select(depth - 1)
            right, _ = self._select(depth - 1, len(names) if self._maybe(0.9) else None)
            operation = self._one(("UNION ALL", "UNION", "EXCEPT", "INTERSECT", "UNION ALL BY NAME", "UNION BY NAME"))
            return f"({left}) {operation} ({right})", names
        if depth > 0 and self._maybe(0.05):
            source, names = self._select(depth - 1)
            on, by = self._one(names or ("id",)), self._one(NAMES)
            group = f" GROUP BY {by}" if self._maybe(0.6) else ""
            return f"PIVOT ({source}) ON {on} IN (1, 2) USING count(*){group}", (by, "1", "2")
        return self._select(depth)

    def _select(self, depth: int, width: int | None = None) -> tuple[str, tuple[str, ...]]:
        source, entries = self._from(depth)
        where = f" WHERE {self._condition(entries)}" if self._maybe(0.75) else ""
        if width is not None:
            columns = [self._column(entries) for _ in range(width)]
            return f"SELECT {', '.join(columns)} FROM {source}{where}", tuple(columns)
        if self._maybe(0.2):
            column, alias = self._column(entries, whole=False), self._one(NAMES[:4])
            aggregate = self._one(("count(*)", "max(1)", f"max({self._column(entries, whole=False)})"))
            named = f" AS {self._one(NAMES[:4])}" if self._maybe(0.7) else ""
            text = f"SELECT {column} AS {alias}, {aggregate}{named} FROM {source}{where} GROUP BY ALL"
            return text, (alias, named.removeprefix(" AS ") or "made_up")
        items, names = self._items(entries)
        distinct = "DISTINCT " if self._maybe(0.1) else ""
        return f"SELECT {distinct}{items} FROM {source}{where}{self._tail()}", names

    def _tail(self) -> str:
        draw = self._chance.random()
        if draw < 0.04:
            return f" ORDER BY ALL LIMIT {self._chance.randint(1, 20)}"
        return " ORDER BY ALL" if draw < 0.1 else ""

    def _items(self, entries: list[Entry]) -> tuple[str, tuple[str, ...]]:
        every = tuple(name for entry in entries for name in entry.names)
        if self._maybe(0.5):
            return "*", every
        items: list[str] = []
        names: list[str] = []
        for _ in range(self._chance.randint(1, 4)):
            item, shown = self._item(entries, every)
            items.append(item)
            names += shown
        return ", ".join(items), tuple(names)

    def _item(self, entries: list[Entry], every: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
        entry = self._chance.choice(entries)
        column, alias = self._column(entries), self._one(NAMES)
        draw = self._chance.random()
        if draw < 0.12:
            return "*", every
        if draw < 0.27:
            return f"{entry.alias}.*", entry.names
        if draw < 0.55:
            return column, (column.rpartition(".")[2],)
        if draw < 0.8:
            return f"{column} AS {alias}", (alias,)
        odd = [
            (f"{column} IS NULL", ()),
            (f"{self._column(entries, whole=False)} + 1 AS {alias}", (alias,)),
            (f"count(*) OVER (PARTITION BY {column}) AS {alias}", (alias,)),
            (f"max({self._column(entries, whole=False)}) OVER ()", ()),
            ("NULL", ("null",)),
            (f"5 AS {alias}", (alias,)),
            (f"* EXCLUDE ({self._one(every or NAMES)})", every),
            (f"* REPLACE (7 AS {self._one(every or NAMES)})", every),
            (f"* RENAME ({self._one(every or NAMES)} AS {alias})", (*every, alias)),
            (f"COLUMNS('{self._one(NAMES)}')", every),
            ("s.*", ("id", "k")),
            ("unnest(s)", ("id", "k")),
            (f"(SELECT max(id) FROM c WHERE c.id < {entry.alias}.id) AS {alias}", (alias,)),
            ("#1", every[:1]),
            (f"{{'id': 1, 'k': {self._chance.randint(0, VALUES_MAX)}}} AS s", ("s",)),
        ]
        return self._chance.choice(odd)

    def _column(self, entries: list[Entry], among: list[Entry] | None = None, *, whole: bool = True) -> str:
        """Return a column that there seems to be, and now and then one that there may be by DuckDB's renaming."""
        entry = self._chance.choice(entries)
        name = self._one(entry.names) if entry.names and self._maybe(0.96) else self._one(NAMES)
        name = f"{name}_1" if self._maybe(0.015) else name
        if name == "s" and (not whole or self._maybe(0.8)):
            name = self._one(("s.id", "s.k", "s.k"))
        owners = sum(name.partition(".")[0] in other.names for other in among or entries)
        return f"{entry.alias}.{name}" if self._maybe(0.99 if owners > 1 else 0.3) else name

    def _condition(self, entries: list[Entry], depth: int = 2) -> str:
        draw = self._chance.random()
        if depth and draw < 0.3:
            operator = self._one(("AND", "AND", "OR"))
            return f"({self._condition(entries, depth - 1)} {operator} {self._condition(entries, depth - 1)})"
        column, number = self._column(entries, whole=False), self._chance.randint(0, VALUES_MAX)
        if draw < 0.36:
            return f"{column} IS {self._one(('', 'NOT '))}NULL"
        if draw < 0.42:
            return f"NOT {self._condition(entries, 0)}"
        if draw < 0.5:
            return f"{column} IN ({number}, {number + 1})"
        if draw < 0.54:
            return f"EXISTS (FROM c WHERE c.id = {column} AND {self._condition([*entries, Entry('c', ('k_2',))], 0)})"
        return f"{column} {self._one(('=', '=', '<', '>', '<=', '>=', '<>'))} {number}"

    def _from(self, depth: int) -> tuple[str, list[Entry]]:
        text, entry = self._entry(depth)
        entries = [entry]
        while len(entries) < 3 and self._maybe(0.45):
            text, entries = self._joined(text, entries, depth)
        return text, entries

    def _joined(self, left: str, entries: list[Entry], depth: int) -> tuple[str, list[Entry]]:
        right, entry = self._entry(depth)
        if depth and self._maybe(0.1):
            column, alias = self._column(entries, whole=False), self._alias()
            lateral = f"LATERAL (SELECT {column} AS k_1, * FROM c WHERE c.id = {column}) AS {alias}"
            return f"{left}, {lateral}", [*entries, Entry(alias, ("k_1", *TABLES["c"].names))]
        kind = self._one(("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "SEMI JOIN", "ANTI JOIN"))
        both = [*entries, entry]
        visible = entries if kind in ("SEMI JOIN", "ANTI JOIN") else both
        draw = self._chance.random()
        if draw < 0.1:
            return f"{left}, {right}", both
        if draw < 0.17:
            return f"{left} NATURAL {kind} {right}", visible
        shared = [name for name in entry.names if any(name in other.names for other in entries) and name != "s"]
        if shared and draw < 0.4:
            return f"{left} {kind} {right} USING ({self._one(shared)})", visible
        more = f" AND {self._condition(both, 1)}" if self._maybe(0.4) else ""
        equal = f"{self._column(entries, both, whole=False)} = {self._column([entry], both, whole=False)}"
        joined = f"{left} {kind} {right} ON {equal}{more}"
        return (f"({joined})" if self._maybe(0.15) else joined), visible

    def _entry(self, depth: int) -> tuple[str, Entry]:
        if depth > 0 and self._maybe(0.45):
            text, names = self._query(depth - 1)
            return self._named(f"({text})", names, "", always=0.8)
        if self._ctes and self._maybe(0.4):
            cte = self._chance.choice(self._ctes)
            return self._named(cte.alias, cte.names, cte.alias)
        draw = self._chance.random()
        if draw < 0.05:
            first = self._chance.randint(0, VALUES_MAX - 2)
            rows = f"(VALUES ({first}, {first + 1}), ({first + 1}, {first + 2}))"
            return self._named(rows, ("col0", "col1"), "", always=0.9)
        if draw < 0.08:
            return self._named(f"range({VALUES_MAX})", ("range",), "range")
        table = self._one(tuple(TABLES))
        return self._named(table, tuple(TABLES[table].names), table)

    def _named(self, text: str, names: tuple[str, ...], alias: str, always: float = 0.5) -> tuple[str, Entry]:
        if self._maybe(always):
            alias, given = self._alias(), self._aliases(names)
            return f"{text} AS {alias}{given and f'({given})'}", Entry(alias, _shown(names, given))
        return text, Entry(alias or "unnamed_subquery", _shown(names, ""))

    def _alias(self) -> str:
        """Return the next of the aliases, which seldom meets itself, or any."""
        self._given += 1
        return self._one(ALIASES) if self._maybe(0.05) else ALIASES[self._given % len(ALIASES)]

    def _aliases(self, names: tuple[str, ...]) -> str:
        if not names or not self._maybe(0.25):
            return ""
        return ", ".join(self._one(NAMES[:6]) for _ in range(self._chance.randint(1, min(3, len(names)))))


def _shown(names: tuple[str, ...], given: str) -> tuple[str, ...]:
    """Return a query's columns as DuckDB shows them outside of it: renamed, and made distinct by numbers."""
    renamed = given.split(", ") if given else []
    shown: list[str] = []
    for base in (*renamed, *names[len(renamed) :]):
        name, number = base, 1
        while name in shown:
            name, number = f"{base}_{number}", number + 1
        shown.append(name)
    return tuple(shown)


def rows_of(table: pa.Table) -> tuple[list[str], list[str]]:
    """Return a result's columns, and its rows in an order of their own."""
    return table.column_names, sorted(map(repr, zip(*(column.to_pylist() for column in table.columns), strict=True)))


@dataclass
class Seen:
    """What became of some queries.

    refused: by plain DuckDB. disagreeing: those that DuckDB itself answers otherwise over Parquet. failing: those of
    which another plan reaches a number that is compared with a struct.
    """

    valid: int = 0
    refused: int = 0
    disagreeing: int = 0
    failing: int = 0
    pruning: int = 0
    files_pruned: int = 0


def compare(lake: alluvia.Lake, plain: duckdb.DuckDBPyConnection, text: str, seen: Seen) -> None:
    """Check a query's columns and rows against plain DuckDB's."""
    try:
        expected = plain.execute(text).to_arrow_table()
    except REFUSALS:
        seen.refused += 1
        return
    try:
        with run(lake.catalog, text) as result:
            found = pa.Table.from_batches(list(result), result.schema)
        if rows_of(found) != rows_of(expected) and rows_of(found) == rows_of(_unpruned(lake, text)):
            seen.disagreeing += 1
            return
    except Invalid as error:
        if "Conversion Error" not in str(error):
            raise
        seen.failing += 1
        return
    assert rows_of(found) == rows_of(expected), text
    pruned = sum(scan.files_pruned for scan in result.tables)
    seen.valid += 1
    seen.pruning += pruned > 0
    seen.files_pruned += pruned


def _unpruned(lake: alluvia.Lake, text: str) -> pa.Table:
    with patch.object(scans, "table_predicate", lambda *_: Unknown()):
        return run(lake.catalog, text).read_all()


def main() -> int:
    """Run many queries; print those that fail, and what was seen."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--from", type=int, default=0, dest="first")
    given = parser.parse_args()
    seen, failed = Seen(), 0
    with tempfile.TemporaryDirectory() as folder:
        lake, plain = build(folder)
        for seed in range(given.first, given.first + given.seeds):
            text = Generator(seed).query()
            try:
                compare(lake, plain, text, seen)
            except (AssertionError, AlluviaError) as error:
                failed += 1
                sys.stdout.write(f"seed {seed}: {type(error).__name__} {str(error)[:100]}\n  {text}\n")
    sys.stdout.write(f"{given.seeds} queries from seed {given.first}, {failed} failed; {seen}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
