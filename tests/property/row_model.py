"""A table as a plain list of rows, what operations do to it, and random operations."""

from __future__ import annotations

import operator
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa

from alluvia.api.lake import Lake, Table

Row = tuple[int | None, int | None, str | None, str | None]
Rows = Counter[Row]
SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64()), ("name", pa.string()), ("place", pa.string())])
IDS = range(14)
LONG = "x" * 40
NAMES = [None, "", "a", "b", LONG + "a", LONG + "b"]
PLACES = [None, "a", "b", "c d/%25"]
KINDS: dict[str, Mapping[str, str]] = {
    "copied": {},
    "vectors": {"delta.enableDeletionVectors": "true"},
    "copied, fed": {"delta.enableChangeDataFeed": "true"},
    "vectors, fed": {"delta.enableDeletionVectors": "true", "delta.enableChangeDataFeed": "true"},
}


@dataclass(frozen=True)
class Condition:
    """SQL, and what it means: true, false or unknown (None) for a row."""

    sql: str
    holds: Callable[[Row], bool | None]


def _compared(at: int, compare: Callable[[Any], bool]) -> Callable[[Row], bool | None]:
    return lambda row: None if row[at] is None else compare(row[at])


def _conditions() -> list[Condition]:
    found = [Condition("true", lambda _: True), Condition("false", lambda _: False)]
    for number in (0, 3, 7, 13):
        found += [
            Condition(f"id = {number}", _compared(0, partial(operator.eq, number))),
            Condition(f"id > {number}", _compared(0, partial(operator.lt, number))),
            Condition(f"NOT n < {number}", _compared(1, partial(operator.le, number))),
        ]
    for place in ("a", "c d/%25"):
        found.append(Condition(f"place = '{place}'", _compared(3, partial(operator.eq, place))))
    found += [
        Condition("place IS NULL", lambda row: row[3] is None),
        Condition("place IS NOT NULL AND id < 5", lambda row: _both(row[3] is not None, _less(row[0], 5))),
        Condition("id IN (1, 2, 9)", _compared(0, lambda value: value in (1, 2, 9))),
        Condition("id NOT IN (1, 2, 9)", _compared(0, lambda value: value not in (1, 2, 9))),
        Condition(f"name > '{LONG}a'", _compared(2, lambda value: value > LONG + "a")),
        Condition(f"name <= '{LONG}a'", _compared(2, lambda value: value <= LONG + "a")),
        Condition("name = '' OR n IS NULL", lambda row: row[1] is None or (None if row[2] is None else row[2] == "")),
        Condition("id % 3 = 0", _compared(0, lambda value: value % 3 == 0)),
    ]
    return found


def _less(value: int | None, bound: int) -> bool | None:
    return None if value is None else value < bound


def _both(one: bool | None, other: bool | None) -> bool | None:
    if one is False or other is False:
        return False
    return None if one is None or other is None else True


CONDITIONS = _conditions()


@dataclass(frozen=True)
class Update:
    """Assignments as SQL, and what they make of a row."""

    values: Mapping[str, str]
    apply: Callable[[Row], Row]


UPDATES = [
    Update({"n": "n + 1"}, lambda row: (row[0], None if row[1] is None else row[1] + 1, row[2], row[3])),
    Update({"n": "NULL", "name": "'b'"}, lambda row: (row[0], None, "b", row[3])),
    Update({"n": "id", "id": "n"}, lambda row: (row[1], row[0], row[2], row[3])),
    Update({"place": "'a'"}, lambda row: (*row[:3], "a")),
    Update({"place": "NULL", "name": "place"}, lambda row: (row[0], row[1], row[3], None)),
    Update({"id": "(id + 5) % 14"}, lambda row: (None if row[0] is None else (row[0] + 5) % 14, *row[1:])),
]


def delete(rows: Rows, condition: Condition) -> Rows:
    """Return what is left."""
    return Counter({row: times for row, times in rows.items() if condition.holds(row) is not True})


def update(rows: Rows, change: Update, condition: Condition) -> Rows:
    """Return the rows with new values."""
    found: Rows = Counter()
    for row, times in rows.items():
        found[change.apply(row) if condition.holds(row) else row] += times
    return found


def upsert(rows: Rows, new: Sequence[Row], matched: str, inserts: bool) -> Rows:
    """Return the rows after an upsert by `id` of rows whose keys differ."""
    by_key = {row[0]: row for row in new if row[0] is not None}
    found: Rows = Counter()
    for row, times in rows.items():
        given = by_key.get(row[0]) if row[0] is not None else None
        if given is None or matched == "ignore":
            found[row] += times
        elif matched == "update":
            found[given] += times
    known = {row[0] for row in rows}
    for row in new if inserts else []:
        if row[0] is None or row[0] not in known:
            found[row] += 1
    return found


def random_row(chance: random.Random) -> Row:
    return (
        chance.choice([None, *IDS]),
        chance.choice([None, -1, 0, 3, 8]),
        chance.choice(NAMES),
        chance.choice(PLACES),
    )


def random_source(chance: random.Random, count: int) -> list[Row]:
    """Return rows for an upsert: no key stands twice, but several may have none."""
    keys = chance.sample([*IDS, 100, 101], count)
    return [(key, *random_row(chance)[1:]) for key in keys] + [
        (None, *random_row(chance)[1:]) for _ in range(chance.randint(0, 1))
    ]


def as_dicts(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [dict(zip(SCHEMA.names, row, strict=True)) for row in rows]


def as_rows(table: pa.Table) -> Rows:
    return Counter(zip(*(table[name].to_pylist() for name in SCHEMA.names), strict=True))


def rows_of(table: Table, version: int | None = None) -> Rows:
    """Return the rows that a table holds."""
    return as_rows(table.scan(version=version).read_all())


def create(lake: Lake, kind: str, chance: random.Random) -> Table:
    """Create a table `t` of a kind, partitioned and sorted or not."""
    partition_by = chance.choice([[], ["place"]])
    sort_by, cluster_by = chance.choice([([], []), (["id"], []), (["name", "id"], []), ([], ["id", "name"])])
    properties = {**KINDS[kind], "delta.checkpointInterval": "3", "alluvia.row_group_rows": "2"}
    return lake.create_table("t", SCHEMA, partition_by, sort_by, properties, cluster_by=cluster_by)
