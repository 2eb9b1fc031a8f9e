"""When the next commit of offers is expected."""

from __future__ import annotations

import pytest

from alluvia.commit.commit_offers import CommitInterval


def test_the_next_commit_is_due_as_long_after_the_last_as_that_after_the_one_before() -> None:
    found = CommitInterval.of([1000, 1180, 1420], 1500, 50)
    assert (found.last_ms, found.each_ms, found.due_ms) == (1470, 210, 1680)
    assert [found.missed(now) for now in (1500, 1620, 1690, 1830, 1900)] == [1, 1, 1, 2, 2]
    assert not found.is_stale(1680 + 3 * 210)
    assert found.is_stale(1681 + 3 * 210)


@pytest.mark.parametrize("times", [[], [1000]])
def test_few_commits_tell_little(times: list[int]) -> None:
    assert CommitInterval.of(times, 1040, 50) == CommitInterval(1040, 200)


@pytest.mark.parametrize(("times", "each"), [([1000, 1001], 150), ([1000, 900], 150), ([1000, 90_000], 800)], ids=str)
def test_clocks_that_are_wrong_change_little(times: list[int], each: float) -> None:
    found = CommitInterval.of(times, 1100, 50)
    assert found.each_ms == each
    assert found.last_ms <= 1100
