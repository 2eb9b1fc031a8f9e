"""Functions that post to one table at the same time, in simulated time: what a post costs and how long it takes."""

from __future__ import annotations

from statistics import mean

import pytest

from benchmarks import costs
from benchmarks.crowds import Load, load

pytestmark = pytest.mark.xdist_group("crowds")  # one process makes the crowds for all of these tests
SECONDS, WARM_SECONDS = 5, 2
SEEDS = 5
"""One load may have a commit whose next one is late; what they take on average is what counts."""


@pytest.fixture(scope="module")
def crowds() -> list[Load]:
    return [load(64, SECONDS, seed=seed, warm_seconds=WARM_SECONDS) for seed in range(SEEDS)]


def each(crowds: list[Load], kind: str) -> float:
    return mean(crowd.each(kind) for crowd in crowds)


def test_functions_that_meet_take_few_requests_a_post(crowds: list[Load]) -> None:
    assert all(crowd.rows == crowd.ids == crowd.sent for crowd in crowds)
    assert each(crowds, "put") < 1.2
    assert each(crowds, "list") < 0.5
    assert each(crowds, "get") < 4
    assert mean(len(crowd.posts) for crowd in crowds) > 150 * (SECONDS - WARM_SECONDS)
    assert mean(crowd.wait_ms(0.99) for crowd in crowds) < 600


def test_what_the_costs_of_functions_that_meet_are_computed_from_is_what_they_take(crowds: list[Load]) -> None:
    for kind, most_off in (("put", 0.1), ("list", 0.3), ("get", 0.9)):
        assert each(crowds, kind) == pytest.approx(costs.CROWD[kind], abs=most_off), kind
    assert mean(crowd.wait_ms(0.5) for crowd in crowds) / 1000 == pytest.approx(costs.CROWD["seconds"], abs=0.07)


def test_large_posts_of_functions_that_meet_are_committed_together() -> None:
    found = load(24, 3, warm_seconds=1, rows=100, text="x" * 5000)
    assert found.rows == found.ids == found.sent
    assert found.each("put") < 1.5
    assert found.wait_ms(0.99) < 1000
