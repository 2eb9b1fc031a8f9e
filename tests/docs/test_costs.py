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
    upkeep = costs.upkept()
    direct = costs.kept_up(costs.direct(one, events), events, upkeep)
    found = (direct, costs.crowded(one, events, upkeep), costs.queued(one, events))
    assert found == pytest.approx(tuple(map(float, row[1:])), rel=0.05)


def test_the_parts_of_a_post_that_is_a_commit_are_its_price() -> None:
    rows = [row.split("|")[2].strip() for row in PAGE.partition("consist of:")[2].splitlines()[4:13] if "|" in row]
    assert sum(float(part) for part in rows if part) == pytest.approx(float(ROWS[0][1]), abs=0.02)
    upkeep = costs.upkept()
    assert sum(map(float, rows[5:7])) == pytest.approx(upkeep.merge, rel=0.03)
    assert float(rows[7]) == pytest.approx(upkeep.vacuum, rel=0.1)


def test_the_pages_have_the_price_of_all_of_it() -> None:
    assert f"a million events cost US$ {ROWS[1][1]} in posts of a hundred" in (ROOT / "README.md").read_text()
    features = (ROOT / "docs" / "FEATURES.md").read_text()
    wanted = f"US$ {ROWS[0][1]} if each is posted alone, and ${ROWS[1][1]} in posts of a hundred"
    assert wanted in features
    assert f"through the queue, ${ROWS[0][3]}, and ${costs.commits_a_day():.2f} a day" in features


def test_each_size_of_posts_is_there() -> None:
    assert [int(row[0].replace(",", "")) for row in ROWS] == list(costs.EVENTS_A_POST)
    assert f"${costs.commits_a_day():.2f} a day" in PAGE
