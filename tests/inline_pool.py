"""A pool that does its work at once, on the thread that asks for it."""

from __future__ import annotations

from typing import Any, ClassVar


class InlinePool:
    """Stands in for a `ThreadPoolExecutor`, and counts the work of all pools."""

    runs: ClassVar[int] = 0

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def submit(self, work: Any, *args: Any) -> None:
        InlinePool.runs += 1
        work(*args)

    def shutdown(self, *, wait: bool) -> None:
        assert not wait
