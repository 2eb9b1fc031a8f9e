"""What planning costs: statements that DuckDB runs for constants, whatever the number of conditions."""

from __future__ import annotations

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
