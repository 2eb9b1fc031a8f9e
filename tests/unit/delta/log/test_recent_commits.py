"""The commits that a log keeps in memory: whole where they are asked for, and bounded however long a process lives."""

from __future__ import annotations

import pytest

from alluvia.delta.log import log as log_module
from alluvia.delta.log.commit import EVENT_CONTENTS, EVENT_IDS, CommitActions
from alluvia.delta.log.log import Log
from tests.unit.delta.log.build import new_log


def ids_commit(version: int, chars: int) -> CommitActions:
    """Return a commit with event ids of so many characters, and other words."""
    return CommitActions(version, {"timestamp": version, EVENT_IDS: "a" * chars, EVENT_CONTENTS: "b", "operation": "W"})


def advanced(chars: int, commits: int) -> Log:
    _, _, log = new_log(3)
    version = log.open().version
    for at in range(version + 1, version + 1 + commits):
        log.advance([ids_commit(at, chars)], 0)
    return log


def versions(log: Log, version: int, *, event_ids: bool = False) -> list[int] | None:
    found = log.since(version, event_ids=event_ids)
    return None if found is None else [commit.version for commit in found]


def test_since_gives_the_commits_after_a_version_in_order() -> None:
    log = advanced(10, 4)
    assert versions(log, -1) == [0, 1, 2, 3, 4, 5, 6]
    assert versions(log, 4) == [5, 6]
    assert versions(log, 6) == []
    assert versions(log, 7) is None


def test_a_log_keeps_so_many_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "RECENT_COMMITS_MAX", 4)
    log = advanced(10, 5)
    assert versions(log, 3) == [4, 5, 6, 7]
    assert versions(log, 2) is None


def test_a_log_keeps_all_that_it_was_opened_with_until_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "RECENT_COMMITS_MAX", 2)
    _, _, log = new_log(5)
    log.open()
    assert versions(log, -1) == [0, 1, 2, 3, 4]
    log.advance([ids_commit(5, 1)], 0)
    assert versions(log, 3) == [4, 5]
    assert versions(log, -1) is None


def test_a_log_keeps_so_much_text_of_event_ids(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "RECENT_ID_CHARS_MAX", 100)
    log = advanced(29, 6)
    assert versions(log, 5, event_ids=True) == [6, 7, 8]
    assert versions(log, 4) is None


def test_released_event_ids_are_gone_and_the_commits_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "RECENT_ID_CHARS_MAX", 100)
    log = advanced(29, 3)
    for version in range(6, 16):
        log.release_event_ids(version - 1)
        log.advance([ids_commit(version, 29)], 0)
    kept = log.since(2)
    assert kept is not None
    assert [EVENT_IDS in commit.info for commit in kept] == [False] * 12 + [True]
    assert [EVENT_CONTENTS in commit.info for commit in kept] == [False] * 12 + [True]
    assert [commit.info["operation"] for commit in kept] == ["W"] * 13


def test_commits_whose_event_ids_were_released_are_missing_for_who_wants_these() -> None:
    log = advanced(10, 4)
    log.release_event_ids(5)
    assert versions(log, 5, event_ids=True) == [6]
    assert versions(log, 4, event_ids=True) is None
    assert versions(log, 4) == [5, 6]
    log.open()
    assert versions(log, 0, event_ids=True) == [1, 2]
