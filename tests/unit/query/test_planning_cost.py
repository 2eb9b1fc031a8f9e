"""What planning costs: statements that DuckDB runs for constants, whatever the number of conditions."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa
import pytest

import alluvia
from alluvia.engine.conditions import constants
from alluvia.engine.queries.parse import parse
from alluvia.engine.queries.references import find_references
from alluvia.query.scans import plan_scans

MOMENTS = [f"2024-02-01 00:00:00.{at:04d}" for at in range(4000)]


@pytest.mark.parametrize(
    ("condition", "statements", "files"),
    [
        (" AND ".join(f"n <> {at}" for at in range(100, 4100)), 0, 5),
        (" OR ".join(f"n = {at}.0" for at in range(100, 4100)), 0, 0),
        (" OR ".join(f"n = {at} OR kind = 'kind-{at}'" for at in range(100, 2100)), 0, 0),
        (f"n IN ({', '.join(map(str, range(100, 4100)))})", 0, 0),
        (" OR ".join(f"ts = '{moment}'" for moment in MOMENTS), 1, 0),
        (f"ts IN ({', '.join(map(repr, MOMENTS))})", 1, 0),
        (" OR ".join(f"ts > TIMESTAMPTZ '{moment}'" for moment in MOMENTS), 1, 0),
        (" OR ".join(f"n = {at} + 100" for at in range(1000)), 8, 0),
        (f"n = 100{' + 1' * 15}", 2, 0),
        # an expression of many parts is not computed
        (f"n = 100{' + 1' * 200}", 0, 5),
        # beyond so many expressions, and where DuckDB refuses them, nothing is left out
        (" OR ".join(f"n = {at} + 100" for at in range(4000)), 8, 5),
        (" OR ".join(f"n = CAST('x{at}' AS BIGINT)" for at in range(4000)), 1, 5),
        (" OR ".join(f"n = abs(CAST('x{at}' AS BIGINT))" for at in range(4000)), 128, 5),
    ],
)
def test_thousands_of_conditions_are_computed_in_few_statements(
    lake: alluvia.Lake, monkeypatch: pytest.MonkeyPatch, condition: str, statements: int, files: int
) -> None:
    run, ran = constants._run, []

    def counted(sql: str, parameters: list[Any]) -> pa.Table | None:
        ran.append(sql)
        return run(sql, parameters)

    monkeypatch.setattr(constants, "_run", counted)
    references = find_references(parse(f"FROM events WHERE {condition}").root)
    scans = plan_scans(lake.catalog, references, constants.Constants(0)).scans
    assert len(ran) <= statements
    (scan,) = scans.values()
    assert len(scan.files) == files


LIBRARY = Path(alluvia.__file__).parent
WAITING = LIBRARY / "processes"
"""What waits for a query's process calls the more, the longer that takes."""


def calls(lake: alluvia.Lake, query: str) -> int:
    """Return how many calls the library makes for a query, and how many it makes of others."""
    made: Counter[str] = Counter()

    def note(frame: FrameType, event: str, _: object) -> None:
        if event in ("call", "c_call"):
            made[frame.f_code.co_filename] += 1

    sys.setprofile(note)
    try:
        lake.sql(query)
    finally:
        sys.setprofile(None)
    counted = {Path(name): count for name, count in made.items()}
    return sum(
        count for path, count in counted.items() if path.is_relative_to(LIBRARY) and not path.is_relative_to(WAITING)
    )


@pytest.mark.parametrize(
    "query",
    [
        "SELECT count(*), sum(c1), max(c2) FROM t",
        "SELECT count(*) FROM t",
        "SELECT c1 FROM t AS a WHERE a.c2 > 5 AND c1 < 9 ORDER BY c1",
        "SELECT sum(a.c1) FROM t AS a JOIN t AS b ON a.id = b.id AND b.c2 > 5",
        "SELECT n FROM (SELECT c1 AS n FROM t) WHERE n > 3",
    ],
)
def test_a_warm_query_costs_by_the_columns_that_it_names(tmp_path: Path, query: str) -> None:
    counted = []
    for columns in (5, 500):
        lake = alluvia.connect(str(tmp_path / str(columns)))
        numbers = pa.array(range(10), pa.int64())
        rows = pa.table({"id": numbers, **{f"c{number}": numbers for number in range(1, columns)}})
        lake.create_table("t", rows.schema).append(rows)
        lake.sql(query)
        counted.append(calls(lake, query))
    assert abs(counted[1] - counted[0]) < 50
