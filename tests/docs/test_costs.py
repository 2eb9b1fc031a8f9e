"""What the READMEs say that events cost is what the code sends and logs, at AWS's prices."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import costs

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "functions" / "ingest" / "README.md").read_text()
ROWS = re.findall(r"^\| ([\d,]+) \| ([\d.]+) \| ([\d.]+) \| ([\d.]+) \|$", PAGE, re.MULTILINE)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_million_events(row: tuple[str, str, str, str]) -> None:
    events = int(row[0].replace(",", ""))
    one = costs.counted(events)
    assert (one.put, one.get, one.list) == (2, 0, 0)
    found = (costs.direct(one, events), costs.grouped(one, events), costs.queued(one, events))
    assert found == pytest.approx(tuple(map(float, row[1:])), rel=0.05)


def test_each_size_of_posts_is_there() -> None:
    assert [int(row[0].replace(",", "")) for row in ROWS] == list(costs.EVENTS_A_POST)
    assert f"${costs.commits_a_day():.2f} a day" in PAGE
