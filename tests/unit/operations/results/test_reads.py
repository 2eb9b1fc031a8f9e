"""Which requests get the result that a reader began with, by the clocks of the machines that answer."""

from __future__ import annotations

import pytest

from alluvia.operations.results.reads import CLOCKS_MS, GOES_ON_MS, SAME_MS, SAME_MS_MAX, Read

BEGAN = 10_000_000


@pytest.mark.parametrize(
    ("after_ms", "goes_on", "begins"),
    [
        (0, True, True),
        (-200, True, True),  # noted by a machine whose clock is ahead of the one that answers
        (-CLOCKS_MS, True, True),
        (-CLOCKS_MS - 1, False, False),
        (SAME_MS, True, False),
        (GOES_ON_MS, False, False),
    ],
)
def test_a_read_serves_requests_by_its_age(after_ms: int, goes_on: bool, begins: bool) -> None:
    read = Read("key", BEGAN, BEGAN)
    assert read.serves(BEGAN + after_ms, begins=False) is goes_on
    assert read.serves(BEGAN + after_ms, begins=True) is begins


def test_a_read_in_use_serves_others_that_begin_for_a_while() -> None:
    used = Read("key", BEGAN, BEGAN + SAME_MS_MAX)
    assert used.serves(BEGAN + SAME_MS_MAX - 1, begins=True)
    assert not used.serves(BEGAN + SAME_MS_MAX, begins=True)
