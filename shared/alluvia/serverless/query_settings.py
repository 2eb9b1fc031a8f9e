"""Settings of queries, which the query function and Flight SQL read from the environment."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field

from alluvia.errors import Invalid
from alluvia.lazy_dataclasses import dataclass
from alluvia.query.limits import FILE_CACHE_BYTES, QueryLimits
from alluvia.serverless.authorization import Authorization, check_row_filter
from alluvia.serverless.settings import choice, number

TIMEOUT_SECONDS = 25
RESULT_LIMIT_BYTES = 4_000_000
CACHE_CONTROL = "private, no-cache"
"""Caches of one caller keep answers, and ask before they use them."""
KEPT_BYTES_MAX = 4_000_000
JOB_SECONDS = 840
"""A minute less than a function may run."""
RESULT_HOURS = 24
CALLER_RESULT_BYTES = "ALLUVIA_CALLER_RESULT_BYTES"
JOB_CONCURRENCY_MAX = 100
"""Sending a job reads as many objects."""
SPILL_LIMIT_BYTES = 1_500_000_000


@dataclass(frozen=True, slots=True)
class QuerySettings:
    """Settings of queries: limits, the rights to write and publish, the identity of callers, and caching.

    A result of more than `result_limit_bytes` is too large for an answer. It goes to the lake, if it has no more than
    `max_result_bytes`; None: it is refused. `cache_control` is said of answers to GET that have a tag. With
    `keeps_results`, the lake keeps results too, of up to `kept_bytes_max` bytes each. No more than `job_concurrency`
    jobs are queued or running at once; None: what runs them says how many. Large results get links for
    `result_hours`. With `ready_writes`, the process is ready only while the lake's storage takes writes.
    """

    limits: QueryLimits
    result_limit_bytes: int
    allow_writes: bool = False
    authorization: Authorization = field(default_factory=Authorization)
    cache_control: str = CACHE_CONTROL
    keeps_results: bool = False
    kept_bytes_max: int = KEPT_BYTES_MAX
    max_result_bytes: int | None = None
    allow_publish: bool = False
    job_seconds: int = JOB_SECONDS
    job_concurrency: int | None = None
    result_hours: int = RESULT_HOURS
    caller_jobs: int | None = None
    """Jobs of one caller that may be queued or running; None: one less than of all, and 10 in a server."""
    ready_writes: bool = False
    caller_result_bytes: int | None = None
    """Bytes of large results that one caller may have links to; None: `max_result_bytes`."""

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> QuerySettings:
        """Read the settings. Raises `Invalid`, naming the variable, if one is unusable."""
        authorization = Authorization.read(environment)
        if authorization.mapping.where is not None:
            check_row_filter(authorization.mapping.where)
        memory_mb = number(environment, "ALLUVIA_QUERY_MEMORY_MB", "MB", None)
        return cls(
            QueryLimits(
                timeout_seconds=number(environment, "ALLUVIA_QUERY_TIMEOUT_SECONDS", "seconds", TIMEOUT_SECONDS),
                memory_bytes=None if memory_mb is None else memory_mb * 1_000_000,
                spill_bytes=SPILL_LIMIT_BYTES,
                allowed_bytes=number(environment, "ALLUVIA_QUERY_BYTES", "bytes", None),
                file_cache_bytes=number(environment, "ALLUVIA_FILE_CACHE_BYTES", "bytes", FILE_CACHE_BYTES, least=0),
            ),
            number(environment, "ALLUVIA_RESULT_LIMIT_BYTES", "bytes", RESULT_LIMIT_BYTES),
            choice(environment, "ALLUVIA_ALLOW_WRITES", ("false", "true")) == "true",
            authorization,
            _cache_control(environment),
            choice(environment, "ALLUVIA_RESULT_CACHE", ("off", "on")) == "on",
            number(environment, "ALLUVIA_RESULT_CACHE_RESULT_BYTES", "bytes", KEPT_BYTES_MAX),
            number(environment, "ALLUVIA_MAX_RESULT_BYTES", "bytes", None),
            choice(environment, "ALLUVIA_ALLOW_PUBLISH", ("false", "true")) == "true",
            number(environment, "ALLUVIA_JOB_SECONDS", "seconds", JOB_SECONDS),
            number(environment, "ALLUVIA_JOB_CONCURRENCY", "jobs", None, most=JOB_CONCURRENCY_MAX),
            number(environment, "ALLUVIA_RESULT_CACHE_HOURS", "hours", RESULT_HOURS),
            number(environment, "ALLUVIA_CALLER_JOBS", "jobs", None, most=JOB_CONCURRENCY_MAX),
            choice(environment, "ALLUVIA_READY_WRITES", ("false", "true")) == "true",
            number(environment, CALLER_RESULT_BYTES, "bytes", None),
        )


def _cache_control(environment: Mapping[str, str]) -> str:
    directives = environment.get("ALLUVIA_CACHE_CONTROL") or CACHE_CONTROL
    if not re.fullmatch(r"[\w=,\" -]+", directives, re.ASCII):
        raise Invalid(f"ALLUVIA_CACHE_CONTROL is {directives!r:.200}: use directives, such as {CACHE_CONTROL}")
    return directives
