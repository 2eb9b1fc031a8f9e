"""Have jobs run: in this process, by a server's pool, or by the function that ALLUVIA_JOBS_FUNCTION names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import orjson

from alluvia.errors import Unavailable

JOBS_FUNCTION = "ALLUVIA_JOBS_FUNCTION"
_pools: list[Callable[[str, str, int | None], None]] = []


def can_start() -> bool:
    """Whether there is anything that runs jobs."""
    return bool(_pools or os.environ.get(JOBS_FUNCTION))


def start(job_id: str, caller: str, caller_jobs: int | None = None) -> None:
    """Have a job run soon; twice is as good as once. `caller` is what its sender is told apart by, if at all.

    A pool of this process gives a caller at most `caller_jobs` jobs; None: as many as it gives by itself.

    Raises `Unavailable` where it will not, and `TooManyRequests` where the caller has too many.
    """
    if _pools:
        _pools[-1](job_id, caller, caller_jobs)
        return
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        _client().invoke(
            FunctionName=os.environ[JOBS_FUNCTION], InvocationType="Event", Payload=orjson.dumps({"job": job_id})
        )
    except (BotoCoreError, ClientError) as error:
        raise Unavailable(f"the job could not be started ({type(error).__name__})") from error


@contextmanager
def using_pool(take: Callable[[str, str, int | None], None]) -> Iterator[None]:
    """Have a pool of this process take ids of jobs, callers, and how many jobs each caller may have.

    It may raise `Unavailable` and `TooManyRequests`.
    """
    _pools.append(take)
    try:
        yield
    finally:
        _pools.remove(take)


@cache
def _client() -> Any:
    import boto3
    from botocore.config import Config

    config = Config(connect_timeout=2, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 3})
    return boto3.client("lambda", config=config)
