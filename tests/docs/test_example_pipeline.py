"""The example of `events/pipelines`: its README runs as it stands there, and its tables are those of plain Python."""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections import defaultdict
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import alluvia
from tests.serving import serving

ROOT = Path(__file__).parents[2]
DATA = ROOT / "events" / "data"
README = ROOT / "events" / "pipelines" / "README.md"
BLOCK = re.compile(r"^```(sh|text)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NO_PAGE = re.compile(
    r"\.(png|jpe?g|gif|svg|ico|css|js|woff|ttf|eot|pdf|zip|gz|rb|txt|xml|rss|atom)(\?|$)|/feed|flav=|/robots"
)
ROBOT = re.compile("bot|crawl|spider|slurp|feed|reader|monitor|curl|wget")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the blocks of the page have run; each of its answers is the one that the page shows."""
    folder = tmp_path_factory.mktemp("example")
    (folder / "events").symlink_to(ROOT / "events")
    (folder / ".venv").symlink_to(Path(sys.executable).parents[1])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ALLUVIA_")}
    script = list[str]()
    shown = list[tuple[int, str]]()
    for kind, text in BLOCK.findall(README.read_text()):
        if kind == "sh":
            script.append(f"{{\n{text}}} > {len(script)}.out\n")
        else:
            shown.append((len(script) - 1, text))
    subprocess.run(["bash", "-ec", "set -o pipefail\n" + "".join(script)], cwd=folder, env=environment, check=True)
    assert len(shown) == 4
    for number, text in shown:
        assert (folder / f"{number}.out").read_text() == text
    return folder


def lines(name: str) -> Iterator[dict[str, Any]]:
    with gzip.open(DATA / name, "rt") as file:
        yield from map(json.loads, file)


def pages() -> list[dict[str, Any]]:
    """Return the pages of the access log, each with its `visitor`."""
    return [
        {
            **each,
            "ts": datetime.fromisoformat(each["ts"]),
            "visitor": each["ip"],
            "path": each["path"].partition("?")[0],
        }
        for each in lines("access_log.ndjson.gz")
        if each["method"] == "GET"
        and not NO_PAGE.search(each["path"])
        and not ROBOT.search((each["agent"] or "").lower())
    ]


def rows(folder: Path, sql: str) -> list[tuple[Any, ...]]:
    found = alluvia.connect(str(folder / "example")).sql(sql).to_pylist()
    return [tuple(row.values()) for row in found]


def test_sessions_are_those_of_all_pages_in_their_order(folder: Path) -> None:
    of_visitor: dict[str, list[tuple[datetime, str, str]]] = defaultdict(list)
    for page in pages():
        of_visitor[page["visitor"]].append((page["ts"], page["event_id"], page["path"]))
    expected = []
    for visitor, seen in of_visitor.items():
        seen.sort()
        ends = [at for at, (a, b) in enumerate(pairwise(seen), 1) if b[0] - a[0] > timedelta(minutes=30)]
        for number, (start, end) in enumerate(pairwise([0, *ends, len(seen)]), 1):
            part = seen[start:end]
            expected.append((visitor, number, part[0][0], part[-1][0], len(part), part[0][2]))
    found = rows(folder, "SELECT visitor, session, begins, ends, pages, entry FROM silver.sessions")
    assert sorted(found) == sorted(expected)


def test_the_answers_by_day_are_those_of_the_whole_log(folder: Path) -> None:
    by_day: dict[date, list[dict[str, Any]]] = defaultdict(list)
    days_of: dict[str, set[date]] = defaultdict(set)
    for page in pages():
        by_day[page["ts"].date()].append(page)
        days_of[page["visitor"]].add(page["ts"].date())
    traffic, funnel = [], []
    for day, seen in sorted(by_day.items()):
        failed = sum(page["status"] >= 400 for page in seen)
        traffic.append((day, len(seen), len({page["visitor"] for page in seen}), failed))
        articles, projects = defaultdict(set), set()
        good = [page for page in seen if page["status"] < 400]
        for page in good:
            if page["path"].startswith(("/blog/", "/articles/")):
                articles[page["visitor"]].add(page["path"])
            if page["path"].startswith("/projects/"):
                projects.add(page["visitor"])
        two = {visitor for visitor, paths in articles.items() if len(paths) >= 2}
        funnel.append((day, len({page["visitor"] for page in good}), len(articles), len(two), len(two & projects)))
    assert rows(folder, "FROM gold.daily_traffic ORDER BY day") == traffic
    assert rows(folder, "FROM gold.funnel ORDER BY day") == funnel
    returned: dict[tuple[date, int], int] = defaultdict(int)
    for days in days_of.values():
        for day in days:
            returned[min(days), (day - min(days)).days] += 1
    expected = [(*key, visitors) for key, visitors in sorted(returned.items())]
    assert rows(folder, "FROM gold.retention ORDER BY ALL") == expected


def test_users_and_repositories_follow_webhooks_that_come_late_and_twice(folder: Path) -> None:
    users: dict[int, tuple[datetime, str, str]] = {}
    states: dict[int, dict[datetime, tuple[str, Any]]] = defaultdict(dict)
    for line in lines("github_webhooks.ndjson.gz"):
        payload = line["payload"]
        repository, sender = payload.get("repository") or {}, payload.get("sender") or {}
        if "updated_at" not in repository:
            continue
        at = datetime.fromisoformat(repository["updated_at"])
        state = (repository["full_name"], repository.get("open_issues"))
        known = states[repository["id"]].get(at)
        states[repository["id"]][at] = state if known is None else max(known, state)
        if "id" in sender:
            seen = (at, sender["login"], sender["type"])
            users[sender["id"]] = max(users.get(sender["id"], seen), seen)
    expected = [(key, *value) for key, value in sorted(users.items())]
    assert rows(folder, "SELECT id, seen, login, type FROM silver.users ORDER BY id") == expected
    history = []
    for key, by_time in sorted(states.items()):
        times = sorted(by_time)
        history += [(key, *by_time[at], at, until) for at, until in zip(times, [*times[1:], None], strict=True)]
    sql = "SELECT id, name, open_issues, valid_from, valid_to FROM silver.repositories ORDER BY id, valid_from"
    assert rows(folder, sql) == history


def test_a_second_run_does_nothing_and_the_answers_come_over_http(folder: Path) -> None:
    lake = alluvia.connect(str(folder / "example"))
    assert {each.mode for each in lake.pipeline(str(README.parent)).run()} == {"nothing"}
    with serving(folder / "example", quiet=True) as (_, port):
        body = json.dumps({"query": "SELECT sum(pages) AS pages FROM gold.daily_traffic"}).encode()
        headers = {"content-type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/q", body, headers)
        with urllib.request.urlopen(request) as answer:
            assert json.load(answer) == {"pages": len(pages())}
