"""What the query function reads from its environment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from alluvia.errors import Invalid
from alluvia.query.limits import Limits

TIMEOUT_SECONDS = 25
RESULT_LIMIT_BYTES = 4_000_000
SPILL_LIMIT_BYTES = 1_500_000_000


@dataclass(frozen=True, slots=True)
class Settings:
    """What a query may take."""

    limits: Limits
    result_limit_bytes: int

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Settings:
        """Read the settings. Raises `Invalid`, naming the variable, if one is unusable."""
        memory_mb = _number(environment, "ALLUVIA_QUERY_MEMORY_MB", None)
        return cls(
            Limits(
                timeout_seconds=_number(environment, "ALLUVIA_QUERY_TIMEOUT_SECONDS", TIMEOUT_SECONDS),
                memory_bytes=None if memory_mb is None else memory_mb * 1_000_000,
                spill_bytes=SPILL_LIMIT_BYTES,
            ),
            _number(environment, "ALLUVIA_RESULT_LIMIT_BYTES", RESULT_LIMIT_BYTES) or RESULT_LIMIT_BYTES,
        )


def _number(environment: Mapping[str, str], name: str, default: int | None) -> int | None:
    text = environment.get(name) or ""
    if not text:
        return default
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        msg = f"{name} is {text!r}: use a whole number above 0"
        raise Invalid(msg)
    return int(text)
