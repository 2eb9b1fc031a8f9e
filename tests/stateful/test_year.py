"""A lake after a month in the suite, after a year in `make deep`: nothing lost, nothing left behind, `verify` green."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from alluvia.operations import checkpointing
from tests import judges
from tests.examples import TIMES
from tests.inline_pool import InlinePool
from tests.stateful.year import Year

MONTH = 30
DAYS = 365 if TIMES > 1 else 30
BOUNDS = {
    "commits": 1500, "checkpoints": 150, "decisions": 20, "windows": 70, "data files": 350, "keepers": 40,
    "branches": 10, "offers": 10, "streams": 400, "other": 60,
}  # fmt: skip
"""The most objects of a kind that there ever are, whatever the day: what a week or a month of the work makes."""


@pytest.mark.slow
def test_a_lake_that_lives_long_stays_right_and_bounded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(checkpointing, "ThreadPoolExecutor", InlinePool)
    year = Year()
    for day in range(DAYS):
        year.day(day)
        for kind, count in year.objects().items():
            assert count <= BOUNDS[kind], (day, kind, count)
        if day % MONTH == MONTH - 1 or day == DAYS - 1:
            year.check_rows()
            year.check_verified()
            disk = year.on_disk(tmp_path / str(day))
            for name in disk.tables(rejects=True):
                table = disk.table(name)
                for version in year.kept_versions(disk, name):
                    expected = shown(judges.ours(table, version))
                    theirs = judges.canonical(judges.deltalake_sql_table(table, version))
                    assert shown(theirs) == expected, (name, version)
                    assert shown(judges.duckdb_rows(table, version)) == expected, (name, version)


def shown(rows: judges.Rows) -> judges.Rows:
    """Return rows with the field that became a column in that column alone: others read each file as it is stored."""
    found = []
    for row in map(dict, rows):
        if "user_id" in row and row.get("properties") is not None:
            fields = json.loads(row["properties"])
            sent = fields.pop("user_id", None)
            row |= {"user_id": row["user_id"] or sent, "properties": json.dumps(fields) if fields else None}
        found.append(tuple(row.items()))
    return sorted(found, key=repr)
