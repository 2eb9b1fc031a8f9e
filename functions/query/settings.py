"""What the query function reads from its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from alluvia.query.limits import FILE_CACHE_BYTES, QueryLimits
from alluvia.serverless.authorization import Authorization
from alluvia.serverless.settings import choice, number

TIMEOUT_SECONDS = 25
RESULT_LIMIT_BYTES = 4_000_000
SPILL_LIMIT_BYTES = 1_500_000_000


@dataclass(frozen=True, slots=True)
class QuerySettings:
    """What a query may take, whether statements may write, and how callers are told apart."""

    limits: QueryLimits
    result_limit_bytes: int
    allow_writes: bool = False
    authorization: Authorization = field(default_factory=Authorization)

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> QuerySettings:
        """Read the settings. Raises `Invalid`, naming the variable, if one is unusable."""
        memory_mb = number(environment, "ALLUVIA_QUERY_MEMORY_MB", "MB", None)
        return cls(
            QueryLimits(
                timeout_seconds=number(environment, "ALLUVIA_QUERY_TIMEOUT_SECONDS", "seconds", TIMEOUT_SECONDS),
                memory_bytes=None if memory_mb is None else memory_mb * 1_000_000,
                spill_bytes=SPILL_LIMIT_BYTES,
                file_cache_bytes=number(environment, "ALLUVIA_FILE_CACHE_BYTES", "bytes", FILE_CACHE_BYTES, least=0),
            ),
            number(environment, "ALLUVIA_RESULT_LIMIT_BYTES", "bytes", RESULT_LIMIT_BYTES),
            choice(environment, "ALLUVIA_ALLOW_WRITES", ("false", "true")) == "true",
            Authorization.read(environment),
        )
