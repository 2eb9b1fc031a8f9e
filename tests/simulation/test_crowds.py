"""Functions that post to one table at the same time, in simulated time: what a post costs and how long it takes."""

from __future__ import annotations

import pytest

from benchmarks import costs
from benchmarks.crowds import Load, load

SECONDS, WARM_SECONDS = 5, 2


@pytest.fixture(scope="module")
def crowd() -> Load:
    return load(64, SECONDS, warm_seconds=WARM_SECONDS)


def test_functions_that_meet_take_few_requests_a_post(crowd: Load) -> None:
    assert crowd.rows == crowd.ids == crowd.sent
    assert crowd.each("put") < 1.2
    assert crowd.each("list") < 0.5
    assert crowd.each("get") < 4
    assert len(crowd.posts) > 150 * (SECONDS - WARM_SECONDS)
    assert crowd.wait_ms(0.99) < 600


def test_what_the_costs_of_functions_that_meet_are_computed_from_is_what_they_take(crowd: Load) -> None:
    for kind, most_off in (("put", 0.1), ("list", 0.3), ("get", 0.9)):
        assert crowd.each(kind) == pytest.approx(costs.CROWD[kind], abs=most_off), kind
    assert crowd.wait_ms(0.5) / 1000 == pytest.approx(costs.CROWD["seconds"], abs=0.07)


def test_large_posts_of_functions_that_meet_are_committed_together() -> None:
    found = load(24, 3, warm_seconds=1, rows=100, text="x" * 5000)
    assert found.rows == found.ids == found.sent
    assert found.each("put") < 1.5
    assert found.wait_ms(0.99) < 1000
