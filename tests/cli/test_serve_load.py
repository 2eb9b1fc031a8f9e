"""Many connections to `alluvia serve` at once. `python -m benchmarks posts` does it for a minute."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

import alluvia
from tests.posting import post
from tests.serving import serving

CONNECTIONS = 50
MINUTE_SECONDS = 60.0
PAUSE_SECONDS = 0.3
POSTS = 6


def test_each_event_of_fifty_connections_is_stored_once_in_fewer_commits(tmp_path: Path) -> None:
    with serving(tmp_path / "lake", quiet=True) as (_, port):
        done = asyncio.run(post(port, CONNECTIONS, POSTS))
    assert done["answers"] == {200: CONNECTIONS * POSTS}
    table = alluvia.connect(str(tmp_path / "lake"))["app"]
    ids = table.to_arrow()["event_id"].to_pylist()
    assert sorted(ids) == sorted(done["acknowledged"])
    assert len(set(ids)) == CONNECTIONS * POSTS
    commits = sum(commit.operation == "WRITE" for commit in table.history())
    assert commits < CONNECTIONS * POSTS // 2


@pytest.mark.slow
def test_fifty_connections_are_held_for_a_minute_and_lose_nothing(tmp_path: Path) -> None:
    with serving(tmp_path / "lake", quiet=True) as (_, port):
        done = asyncio.run(post(port, CONNECTIONS, sys.maxsize, MINUTE_SECONDS, PAUSE_SECONDS))
    assert (list(done["answers"]), done["cut_off"]) == ([200], 0)
    ids = alluvia.connect(str(tmp_path / "lake"))["app"].to_arrow()["event_id"].to_pylist()
    assert sorted(ids) == sorted(done["acknowledged"])
    assert len(set(ids)) == done["answers"][200] == len(ids)
