"""Tables that our code writes, one for each feature, and how many rows each of their versions holds."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from alluvia.api.lake import Lake, Table
from tests.reach.every_type import HIGHEST, LOWEST, ORDINARY, SCHEMA

OPEN = {"alluvia.writers": "any"}
NASTY = [
    *("a/b", "a b", "50%", "%41", "x=y", "a:b", "ü→€", "'\"`", "\\", "#?&+", "[*]{}", ".."),
    "__HIVE_DEFAULT_PARTITION__",
]


@dataclass(frozen=True, slots=True)
class Feature:
    """What a table shows. `rows` counts the rows of its versions from 0, None for what cannot be read any more.

    `refused` says, by reader, how it refuses the table; `nulls` which column it takes for null, from which version
    on.
    """

    name: str
    build: Callable[[Lake], Table]
    rows: Sequence[int | None]
    refused: Mapping[str, str] = field(default_factory=dict)
    nulls: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.name


def numbers(*values: int, **more: Any) -> list[dict[str, Any]]:
    """Return rows of the columns `n` and `name`."""
    return [{"n": value, "name": f"row {value}", **more} for value in values]


def simple(lake: Lake, properties: Mapping[str, str] | None = None) -> Table:
    """Create a table of the columns `n` and `name`."""
    return lake.create_table("simple", {"n": "long", "name": "string"}, properties=dict(properties or {}))


def _guarded(lake: Lake) -> Table:
    return _appended_and_merged(simple(lake))


def _open(lake: Lake) -> Table:
    return _appended_and_merged(simple(lake, OPEN))


def _appended_and_merged(table: Table) -> Table:
    table.append(numbers(1, 2, 3))
    table.append(numbers(4), txn=("app", 1))
    table.optimize()
    table.append([{"n": None, "name": None}, {"n": -(2**63), "name": ""}])
    return table


def _transforms(lake: Lake) -> Table:
    schema = {"ts": "timestamp", "day": "date", "n": "long"}
    table = lake.create_table("times", schema, partition_by=["hour(ts)", "month(day)"], sort_by=["n"])
    moments = [datetime(2024, 2, 29, 23, 59, 59, 999_999, UTC), datetime(1969, 12, 31, 23, 0, 0, 1, UTC), None]
    days = [date(2024, 2, 29), date(1, 1, 1), None]
    pairs = [(ts, day) for ts in moments for day in days]
    rows = [{"ts": ts, "day": day, "n": n} for n, (ts, day) in enumerate(pairs)]
    for part in (rows[:8], [{**rows[0], "n": 10}, rows[8]]):  # so few values have a file each
        table.append(part)
    table.optimize()
    table.append([{"ts": ts, "day": day, "n": n} for n, (ts, day) in enumerate(pairs, 20)])  # more share one
    return table


def _special_characters(lake: Lake) -> Table:
    table = lake.create_table("special", {"key": "string", "n": "long"}, partition_by=["key"])
    table.append([{"key": key, "n": n} for n, key in enumerate([*NASTY, None])])
    table.append([{"key": key, "n": 100} for key in NASTY[:2]])
    table.optimize()
    return table


def _typed_partitions(lake: Lake) -> Table:
    kinds = {"i": "integer", "s": "short", "b": "boolean", "d": "date", "t": "timestamp", "m": "decimal(10,2)"}
    table = lake.create_table("typed", {**kinds, "n": "long"}, partition_by=list(kinds))
    full = {"i": -1, "s": 7, "b": True, "d": date(2024, 2, 29), "m": Decimal("12.30"), "n": 1}
    table.append([{**full, "t": datetime(2024, 1, 1, 1, 2, 3, 456_789, UTC)}, {**dict.fromkeys(kinds), "n": 2}])
    table.append([{**full, "b": False, "t": datetime(1969, 12, 31, tzinfo=UTC), "n": 3}])
    return table


def _negative_decimals(lake: Lake) -> Table:
    table = lake.create_table("decimals", {"m": "decimal(10,2)", "n": "long"}, partition_by=["m"])
    table.append([{"m": Decimal("-12.30"), "n": 1}, {"m": Decimal("-0.01"), "n": 2}])
    return table


def _evolution(lake: Lake) -> Table:
    table = simple(lake)
    table.append(numbers(1, 2))
    table.evolve({"price": "decimal(12,3)", "seen": "timestamp"})
    table.append(numbers(3, price=Decimal("1.250"), seen=datetime(2024, 5, 6, tzinfo=UTC)))
    inner = pa.struct([("x", pa.int32()), ("tags", pa.list_(pa.string()))])
    table.evolve(pa.schema([("inner", inner), ("scores", pa.map_(pa.string(), pa.float64()))]))
    table.append(numbers(4, inner={"x": 1, "tags": ["a", None]}, scores=[("k", 0.5)]))
    table.optimize(full=True)
    return table


def _types(lake: Lake) -> Table:
    table = lake.create_table("kinds", SCHEMA, properties={"alluvia.row_group_rows": "1"})
    table.append([ORDINARY])
    table.append([HIGHEST])
    table.append([LOWEST])
    table.append([dict.fromkeys(SCHEMA.names)])
    table.optimize()
    return table


def _naive(text: str) -> datetime:
    return datetime.fromisoformat(text)


def _without_zone(lake: Lake) -> Table:
    schema = {"key": "timestamp_ntz", "at": "timestamp_ntz", "n": "long"}
    table = lake.create_table("ntz", schema, partition_by=["key"])
    early, late = _naive("2024-02-29 01:02:03.000004"), _naive("9999-12-31")
    table.append([{"key": early, "at": _naive("1582-10-04 23:59:59.999999"), "n": 1}])
    table.append([{"key": None, "at": None, "n": 2}, {"key": _naive("1969-01-01"), "at": late, "n": 3}])
    return table


def _checkpoints(lake: Lake) -> Table:
    table = simple(lake, {"delta.checkpointInterval": "3"})
    for n in range(4):
        table.append(numbers(n))
    table.optimize()
    table.checkpoint()
    table.append(numbers(9))
    return table


def _events(lake: Lake) -> Table:
    table = lake.create_events("events", pa.schema([("status", pa.int64())]))
    received = datetime(2024, 3, 1, tzinfo=UTC)
    rest = {"event": "view", "source": "web", "status": 200, "properties": '{"a":1}', "received_at": received}
    for ids in (("a", "b"), ("b", "c", "c"), ("a",), ("d",)):
        rows = [{"event_id": each, "ts": datetime(2024, 2, 29, 23, 59, 59, 1, UTC), **rest} for each in ids]
        table.ingest(pa.Table.from_pylist(rows, table.snapshot().schema))
    table.optimize()
    return table


def edited(table: Table) -> Table:
    """Use every operation on rows, so that the versions hold as many rows as `EDITED` says."""
    table.append(numbers(1, 2, 3, 4, 5, 6))
    table.append([{"n": 7, "name": None}])
    table.delete("n <= 2")
    table.update({"name": "'new'"}, where="n = 4 OR name IS NULL")
    table.upsert([*numbers(6), {"n": 8, "name": "in"}], on=["n"])
    table.delete("n = 8")
    table.delete("true")
    table.append(numbers(9))
    return table


def _rewrites(lake: Lake) -> Table:
    return edited(simple(lake))


def _deletion_vectors(lake: Lake) -> Table:
    return edited(simple(lake, {"delta.enableDeletionVectors": "true"}))


def _partitioned_vectors(lake: Lake) -> Table:
    properties = {"delta.enableDeletionVectors": "true", **OPEN}
    table = lake.create_table("vectors", {"key": "string", "n": "long"}, partition_by=["key"], properties=properties)
    table.append([{"key": key, "n": n} for key in ("a/b", None) for n in range(3000)])
    table.delete("n % 2 = 0")
    table.delete("n % 3 = 0")
    table.delete("key IS NULL")
    return table


def _change_feed(lake: Lake) -> Table:
    return edited(simple(lake, {"delta.enableChangeDataFeed": "true"}))


def _constraints(lake: Lake) -> Table:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False), ("name", pa.string())])
    table = lake.create_table("checked", schema, properties={"delta.constraints.positive": "n > 0"})
    table.append(numbers(1, 2))
    table.update({"n": "n + 1"})
    return table


def _restore(lake: Lake) -> Table:
    table = edited(simple(lake))
    table.restore(version=2)
    table.append(numbers(10))
    return table


def _renamed(lake: Lake) -> Table:
    table = simple(lake)
    table.append(numbers(1, 2))
    table.evolve(rename={"name": "label"}, add={"name": "long", "s": "date"})
    table.append([{"n": 3, "label": "row 3", "name": 3, "s": date(2024, 2, 29)}])
    table.evolve(drop=["s"])
    table.upsert([{"n": 1, "name": 1}, {"n": 4, "label": "row 4"}], on=["n"])
    table.optimize(full=True)
    table.delete("label = 'row 2'")
    table.evolve(add={"s": "string"})
    table.append([{"n": 5, "label": "row 5", "s": "text"}])
    return table


def _renamed_with_partitions(lake: Lake) -> Table:
    table = lake.create_table("parted", {"n": "long", "name": "string", "place": "string"}, ["place"])
    table.append(numbers(1, 2, place="a"))
    table.evolve(rename={"name": "label"})
    table.append([{"n": 3, "label": "row 3", "place": "b"}])
    return table


def _growing(lake: Lake) -> Table:
    table = simple(lake)
    table.append(numbers(1))
    table.append(numbers(2, more={"deep": [1.5]}), evolve=True)
    return table


def _v2_checkpoints(lake: Lake) -> Table:
    table = simple(lake, {"delta.checkpointPolicy": "v2"})
    for n in range(3):
        table.append(numbers(n))
    table.checkpoint()
    table.append(numbers(3, 4))
    table.delete("n = 3")
    table.checkpoint()
    table.append(numbers(5))
    return table


def _converted(lake: Lake) -> Table:
    for key in ("a b", "c%2Fd"):
        folder = _folder(lake, "old") / f"key={key}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"n": [1, 2], "name": ["x", None]}), folder / "part-0 (1).parquet")
    table = lake.convert("old", "old")
    table.append(numbers(3, key="e=f"))
    table.delete("key = 'a b' AND n = 1")
    return table


def _made_anew(lake: Lake) -> Table:
    simple(lake).append(numbers(1, 2))
    lake.drop_table("simple")
    table = lake.create_table("simple", {"other": "string"})
    table.append([{"other": "x"}])
    return table


def _cleaned(lake: Lake) -> Table:
    table = simple(lake, {"delta.checkpointInterval": "4"})
    for n in range(4):
        table.append(numbers(n))
    table.optimize()
    for file in (_folder(lake, "simple") / "_delta_log").iterdir():
        os.utime(file, (0, 0))
    table.append(numbers(4))
    assert table.vacuum(timedelta(0)).log_files
    table.append(numbers(5))
    return table


def _dropped(lake: Lake) -> Table:
    table = simple(lake)
    table.append(numbers(1, 2))
    lake.drop_table("simple")
    lake.undrop("simple")
    table = lake.table("simple")
    table.append(numbers(3))
    return table


def _together(lake: Lake) -> Table:
    on = ("delta.enableDeletionVectors", "delta.enableChangeDataFeed")
    table = simple(lake, {**dict.fromkeys(on, "true"), "delta.checkpointPolicy": "v2", "delta.checkpointInterval": "4"})
    edited(table)
    table.checkpoint()
    table.evolve({"more": "date"})
    table.append(numbers(10, 11, more=date(2024, 2, 29)))
    table.delete("n = 10")
    table.checkpoint()
    return table


def _cloned(lake: Lake, **options: Any) -> Table:
    """Version 0 has a file that is whole, one with a deletion vector and one in a folder with special characters."""
    source = lake.create_table(
        "source",
        {"n": "long", "name": "string", "p": "string"},
        ["p"],
        properties={"delta.enableDeletionVectors": "true"},
    )
    source.append([{"n": n, "name": f"row {n}", "p": "a b/ü%"} for n in range(3)])
    source.append([{"n": n, "name": f"row {n}", "p": "c"} for n in range(3, 6)])
    source.delete("n = 4")
    table = lake.clone("source", "simple", **options)
    table.append([{"n": 10, "name": "own", "p": "c"}])
    table.delete("n = 0")
    table.checkpoint()
    source.delete("true")
    source.vacuum(timedelta(0))
    return table


def _folder(lake: Lake, name: str) -> Path:
    return Path(unquote(urlsplit(lake.uri).path), name)


EDITED = [0, 6, 7, 5, 5, 6, 5, 0, 1]
NO_VECTORS = {"deltalake": "deletionVectors"}
FEATURES = [
    Feature("default", _guarded, [0, 3, 4, 4, 6]),
    Feature("open to any writer", _open, [0, 3, 4, 4, 6]),
    Feature("partition transforms", _transforms, [0, 8, 10, 10, 10, 19]),
    Feature("special characters in partitions", _special_characters, [0, 14, 16, 16, 16]),
    Feature("partitions of every type", _typed_partitions, [0, 2, 3]),
    Feature("negative decimal partitions", _negative_decimals, [0, 2], {"deltalake": "not a valid decimal"}),
    Feature("columns added", _evolution, [0, 2, 2, 3, 3, 4, 4]),
    Feature("every type", _types, [0, 1, 2, 3, 4, 4]),
    Feature("times without a zone", _without_zone, [0, 1, 3]),
    Feature("checkpoints", _checkpoints, [0, 1, 2, 3, 4, 4, 5]),
    Feature("events, ingested", _events, [0, 2, 3, 4, 4]),
    Feature("delete, update, upsert", _rewrites, EDITED),
    Feature("deletion vectors", _deletion_vectors, EDITED, NO_VECTORS),
    Feature("deletion vectors in partitions", _partitioned_vectors, [0, 6000, 3000, 2000, 1000], NO_VECTORS),
    Feature("change feed", _change_feed, EDITED),
    Feature("NOT NULL and CHECK", _constraints, [0, 2, 2]),
    Feature("restore", _restore, [*EDITED, 7, 8]),
    Feature("append that adds columns", _growing, [0, 1, 2]),
    Feature("columns renamed and dropped", _renamed, [0, 2, 2, 3, 3, 4, 4, 3, 3, 4], {"deltalake": "columnMapping"}),
    Feature(
        "columns renamed, with partitions",
        _renamed_with_partitions,
        [0, 2, 2, 3],
        {"deltalake": "columnMapping"},
        {"DuckDB": ("place", 2)},
    ),
    Feature("v2 checkpoints", _v2_checkpoints, [0, 1, 2, 3, 5, 4, 5], {"deltalake": "v2Checkpoint"}),
    Feature("vectors, change feed and v2 checkpoints", _together, [*EDITED, 1, 3, 2], NO_VECTORS),
    Feature("drop, then undrop", _dropped, [0, 2, None, 2, 3]),
    Feature("converted Parquet", _converted, [4, 5, 4]),
    Feature("shallow clone", _cloned, [5, 6, 5], {**NO_VECTORS, "DuckDB": "Cannot open file"}),
    Feature("deep clone", partial(_cloned, deep=True), [5, 6, 5], NO_VECTORS),
    Feature("drop, then create", _made_anew, [None, None, None, 0, 1]),
    Feature("vacuum and log cleanup", _cleaned, [None, None, None, None, None, 4, 5, 5, 6]),
]
(EVERY_TYPE,) = (feature for feature in FEATURES if feature.name == "every type")
APART = 4
"""The version of that table in which each of its rows has a file of its own."""
