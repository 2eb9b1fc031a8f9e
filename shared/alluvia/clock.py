"""Time, ids and randomness: the one place they come from, so that a test can replace them."""

from __future__ import annotations

import os
import random
import time
import uuid
from abc import ABC, abstractmethod
from datetime import UTC, datetime

_VERSION_4 = 4 << 76 | 2 << 62
_RANDOM = ~(0xF << 76 | 3 << 62)
"""The bits of a UUID that say that it is random, and the others. Source: RFC 9562, section 5.4."""


def datetime_of(milliseconds: int) -> datetime:
    """Return a time from ms since the Unix epoch, in UTC. Raises `ValueError` or `OverflowError` beyond year 9999."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def moment(milliseconds: int) -> datetime | None:
    """Return a time from ms since the Unix epoch, in UTC; None for a time that Python does not have."""
    try:
        return datetime_of(milliseconds)
    except (ValueError, OverflowError, OSError):
        return None


class Clock(ABC):
    """What the library knows of time and chance."""

    @abstractmethod
    def now_us(self) -> int:
        """Microseconds since the Unix epoch."""

    @abstractmethod
    def sleep(self, seconds: float) -> None:
        """Wait."""

    @abstractmethod
    def new_id(self) -> str:
        """Return a fresh random UUID as text."""

    @abstractmethod
    def uniform(self) -> float:
        """Return a random number in [0, 1)."""

    def now_ms(self) -> int:
        """Milliseconds since the Unix epoch."""
        return self.now_us() // 1000


class SystemClock(Clock):
    """The machine's own clock and randomness."""

    def now_us(self) -> int:
        return time.time_ns() // 1000

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def new_id(self) -> str:
        digits = f"{int.from_bytes(os.urandom(16)) & _RANDOM | _VERSION_4:032x}"
        return f"{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}"

    def uniform(self) -> float:
        return random.random()


class ManualClock(Clock):
    """A clock that moves only when told: by `advance`, or by a `sleep` in the code under test."""

    def __init__(self, start_us: int = 1_700_000_000_000_000, seed: int = 0) -> None:
        self._now_us = start_us
        self._random = random.Random(seed)

    def now_us(self) -> int:
        return self._now_us

    def sleep(self, seconds: float) -> None:
        """Move this clock on."""
        self.advance(seconds)

    def advance(self, seconds: float) -> None:
        """Advance this clock by a number of seconds."""
        self._now_us += int(seconds * 1_000_000)

    def new_id(self) -> str:
        return str(uuid.UUID(int=self._random.getrandbits(128), version=4))

    def uniform(self) -> float:
        return self._random.random()
