"""Requests in a minute, counted by caller in one process."""

from __future__ import annotations

from collections import OrderedDict
from threading import Lock

CALLERS_MAX = 10_000
"""Callers that are counted: those that have not been here for longest are forgotten."""
_MINUTE_MS = 60_000


class RequestRates:
    """Lets each caller make a number of requests at once, and as many again with each minute. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._left: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def wait_ms(self, caller: str, per_minute: int, now_ms: int) -> int:
        """Count a request. Returns 0 if it may be made, else after how many ms the next one may."""
        with self._lock:
            left, before_ms = self._left.pop(caller, (float(per_minute), now_ms))
            left = min(float(per_minute), left + max(0, now_ms - before_ms) * per_minute / _MINUTE_MS)
            allowed = left >= 1
            self._left[caller] = (left - allowed, now_ms)
            if len(self._left) > CALLERS_MAX:
                self._left.popitem(last=False)
        return 0 if allowed else max(1, round((1 - left) * _MINUTE_MS / max(per_minute, 1)))
