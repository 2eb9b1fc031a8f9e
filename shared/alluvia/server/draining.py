"""Graceful shutdown: report not ready, finish running requests, then stop."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Protocol

_LOOK_SECONDS = 0.05


class Drainable(Protocol):
    """What is asked to end."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being answered."""


def drain_at_sigterm(server: Drainable, begin: Callable[[], object], seconds: float) -> None:
    """Have the first SIGTERM call `begin`, and end the process once the server is idle, or after so many seconds.

    A second SIGTERM ends it at once. To be called in the main thread, which must be the one that serves.
    """
    begun = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        if begun.is_set():
            sys.exit()
        begun.set()
        begin()
        threading.Thread(target=_end_when_idle, args=[server, seconds], name="drain", daemon=True).start()

    signal.signal(signal.SIGTERM, end)


def _end_when_idle(server: Drainable, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not server.is_idle:
        time.sleep(_LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)
