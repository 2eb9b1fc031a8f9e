"""A table of events and a rollup of it."""

from __future__ import annotations

from datetime import date
from typing import Any

from alluvia.api.lake import Table
from tests.light_engines import light as light  # noqa: PLC0414 - a fixture

HITS = "SELECT day, path, count(*) AS hits, sum(n) AS total FROM events GROUP BY day, path"
MEANS = "SELECT day, avg(n) AS mean FROM events GROUP BY day"
DAYS = [date(2026, 1, day) for day in range(1, 6)]


def event(day: int, path: str | None = "/", n: int | None = 1) -> dict[str, Any]:
    return {"day": DAYS[day], "path": path, "n": n}


def rows(table: Table | Any) -> set[tuple[Any, ...]]:
    found = table.to_arrow() if isinstance(table, Table) else table
    return set(zip(*(column.to_pylist() for column in found.columns), strict=True))


START = {(DAYS[0], "/", 2, 2), (DAYS[1], None, 1, None)}
