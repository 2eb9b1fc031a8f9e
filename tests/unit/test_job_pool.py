"""What the queue of a server's jobs takes of whom."""

from __future__ import annotations

import pytest

import alluvia
from alluvia.errors import Unavailable
from alluvia.server.job_pool import CALLER_JOBS, WAITING_MAX, JobPool
from alluvia.serverless.http import TooManyRequests


def test_one_caller_does_not_fill_the_queue_of_all() -> None:
    pool = JobPool(alluvia.connect("memory://jobs"), lambda _: None)
    for number in range(CALLER_JOBS):
        pool.take(f"ann-{number}", "ann")
    with pytest.raises(TooManyRequests, match="you have 10 jobs queued or running"):
        pool.take("ann-more", "ann")
    pool.take("ann-0", "ann")  # which it has
    pool.take("bob-0", "bob", 1)
    with pytest.raises(TooManyRequests, match="you have 1 jobs queued or running"):
        pool.take("bob-more", "bob", 1)
    for number in range(WAITING_MAX - CALLER_JOBS - 1):
        pool.take(f"all-{number}")
    with pytest.raises(Unavailable, match="too many jobs are waiting"):
        pool.take("bob-1", "bob")
