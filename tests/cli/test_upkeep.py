"""What `serve` does in the background: which commits it is told of, and how it calls the functions."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import alluvia
from alluvia.api.lake import Lake
from alluvia.server import upkeep
from alluvia.server.upkeep import CommitWatch, Upkeep
from alluvia.store import PutResult
from tests.rejects import create_rejects

Handler = Callable[[dict[str, Any], Any], dict[str, Any]]
LONG = 3600.0


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return alluvia.connect(str(tmp_path))


def started(monkeypatch: pytest.MonkeyPatch, lake: Lake, handler: Handler, sweep_seconds: float = LONG) -> Upkeep:
    monkeypatch.setattr(upkeep, "load_handler", lambda _: handler)
    found = Upkeep(lake, "merge", sweep_seconds)
    found.start()
    return found


def test_every_commit_is_told_and_lost_races_are_not(lake: Lake) -> None:
    told: list[tuple[str, int]] = []
    watched = Lake(CommitWatch(lake.store, lambda table, version: told.append((table, version))), lake.clock)
    table = watched.create_table("a", {"n": "long"})
    table.append([{"n": 1}])
    assert told == [("a", 0), ("a", 1)]
    assert watched.store.put_if_absent("a/_delta_log/00000000000000000001.json", b"") is PutResult.EXISTS
    create_rejects(watched, "a", {"n": "long"})
    watched.store.put_if_absent("a/part-0.json", b"")
    assert told[2:] == [("a/_rejects", 0)]


class FixedTime:
    """A monotonic clock that stands still until it is told."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


def test_tables_that_change_during_a_call_wait_each_once_and_longest_the_one_that_took_long(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = FixedTime()
    monkeypatch.setattr(upkeep, "time", time)
    calls: list[Any] = []
    inside, go_on, done, at_last = (threading.Event() for _ in range(4))

    def handler(event: dict[str, Any], _: Any) -> dict[str, Any]:
        calls.append(event["tables"])
        inside.set()
        assert go_on.wait(30)
        time.seconds += {"a": 0.1}.get(event["tables"][0], 0.0)
        {"c": done, "d": at_last}.get(event["tables"][0], inside).set()
        return {"left": []}

    found = started(monkeypatch, lake, handler)
    found.changed("a")
    assert inside.wait(30)
    for table in ("a", "b", "a", "b", "c"):
        found.changed(table)
    go_on.set()
    assert done.wait(30)
    assert calls == [["a"], ["b"], ["c"]]
    time.seconds += 0.1 * upkeep.REST_TIMES
    found.changed("d")
    assert at_last.wait(30)
    found.stop()
    assert calls == [["a"], ["b"], ["c"], ["a"], ["d"]]


def test_no_table_rests_for_long(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    time = FixedTime()
    monkeypatch.setattr(upkeep, "time", time)
    calls: list[Any] = []
    done = threading.Semaphore(0)

    def handler(event: dict[str, Any], _: Any) -> dict[str, Any]:
        calls.extend(event["tables"])
        time.seconds += 600.0 if calls == ["a"] else 0.0
        done.release()
        return {"left": []}

    found = started(monkeypatch, lake, handler, 1e9)
    found.changed("a")
    assert done.acquire(timeout=30)
    for table in ("a", "b"):
        found.changed(table)
    assert done.acquire(timeout=30)
    time.seconds += upkeep.REST_SECONDS_MAX
    found.changed("c")
    assert done.acquire(timeout=30)
    assert done.acquire(timeout=30)
    found.stop()
    assert calls == ["a", "b", "a", "c"]


def test_a_failure_is_told_and_ends_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done = threading.Event()

    def handler(event: dict[str, Any], _: Any) -> dict[str, Any]:
        if event["tables"] == ["bad"]:
            raise RuntimeError("the disk is full")
        done.set()
        return {"left": []}

    found = started(monkeypatch, lake, handler)
    found.changed("bad")
    found.changed("good")
    assert done.wait(30)
    found.stop()
    assert capsys.readouterr().err == "merge failed: the disk is full\n"


def test_what_is_left_is_done_next_and_sweeps_are_for_all_tables(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[dict[str, Any]] = []
    done = threading.Event()

    def handler(event: dict[str, Any], _: Any) -> dict[str, Any]:
        calls.append(event)
        if len(calls) == 2:
            done.set()
        return {"left": ["big"] if len(calls) == 1 else []}

    found = started(monkeypatch, lake, handler)
    found.changed("big")
    assert done.wait(30)
    found.stop()
    assert calls == [{"tables": ["big"]}] * 2
    calls.clear()
    done.clear()
    found = started(monkeypatch, lake, handler, 0.001)
    assert done.wait(30)
    found.stop()
    assert calls[0] == {}


def test_stopping_has_a_call_end_early_and_waits_for_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    inside = threading.Event()
    remaining: list[int] = []

    def handler(_: dict[str, Any], context: Any) -> dict[str, Any]:
        remaining.append(context.get_remaining_time_in_millis())
        inside.set()
        while context.get_remaining_time_in_millis():
            pass
        remaining.append(context.get_remaining_time_in_millis())
        return {"left": ["a"]}

    found = started(monkeypatch, lake, handler)
    found.changed("a")
    assert inside.wait(30)
    found.stop()
    assert remaining[0] > 0
    assert remaining[1:] == [0]
