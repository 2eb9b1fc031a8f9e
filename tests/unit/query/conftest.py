"""Small lakes to query."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest

import alluvia
from alluvia.query.engine import run
from alluvia.query.scans import TableScan

SCHEMA = pa.schema(
    [
        ("ts", pa.timestamp("us", tz="UTC")),
        ("kind", pa.string()),
        ("n", pa.int64()),
        ("value", pa.float64()),
        ("day", pa.date32()),
        ("place", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
    ]
)


def rows_of_day(day: int) -> list[dict[str, object]]:
    """Ten rows: one an hour, `n` is ten times the day and the hour."""
    return [
        {
            "ts": datetime(2024, 1, day, hour, tzinfo=UTC),
            "kind": f"kind-{day}",
            "n": day * 10 + hour,
            "value": float(day),
            "day": date(2024, 1, day),
            "place": {"city": f"city-{day}", "zip": day},
        }
        for hour in range(10)
    ]


def fill(lake: alluvia.Lake, name: str = "events", days: int = 5) -> alluvia.Table:
    """Create a table of one file and one version a day; version 1 holds the first."""
    table = lake.create_table(name, SCHEMA, partition_by=["day(ts)"])
    for day in range(1, days + 1):
        table.append(rows_of_day(day))
    return table


@pytest.fixture(scope="session")
def lake(tmp_path_factory: pytest.TempPathFactory) -> alluvia.Lake:
    """Tables `events`, of five days, and `users`; tests only read it."""
    lake = alluvia.connect(str(tmp_path_factory.mktemp("lake")))
    fill(lake)
    users = lake.create_table("users", {"n": "long", "name": "string"})
    users.append([{"n": 10, "name": "Ada"}, {"n": 21, "name": "Grace"}])
    users.append([{"n": 99, "name": "Nobody"}])
    return lake


@pytest.fixture
def own_lake(tmp_path: Path) -> alluvia.Lake:
    return alluvia.connect(str(tmp_path / "lake"))


def query(lake: alluvia.Lake, text: str) -> list[tuple[object, ...]]:
    """Return the rows of a query."""
    table = run(lake.catalog, text).read_all()
    return list(zip(*(column.to_pylist() for column in table.columns), strict=True))


def scans(lake: alluvia.Lake, text: str) -> list[TableScan]:
    """Return what a query read of each table that it names. It takes all rows, or the process would end."""
    with run(lake.catalog, text) as result:
        result.read_all()
        return list(result.tables)
