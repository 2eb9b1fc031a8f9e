"""A store that fails once, in whatever executor comes first."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from alluvia.clock import Clock
from alluvia.errors import Unavailable
from alluvia.store import Store, Wrapper, open_store


class FailsOnce(Wrapper):
    """Writes the first data file that it is given and then fails: by an error, or by the death of the process."""

    def __init__(self, inner: Store, marker: Path, *, dies: bool) -> None:
        super().__init__(inner)
        self.marker = marker
        self.dies = dies

    def put_new(self, key: str, data: bytes) -> None:
        super().put_new(key, data)
        if not key.endswith(".parquet"):
            return
        try:
            self.marker.touch(exist_ok=False)
        except FileExistsError:
            return
        if self.dies:
            os._exit(1)
        raise Unavailable("the store failed once")


def open_failing(marker: Path, dies: bool, uri: str, clock: Clock, **options: str) -> Store:
    """Open a store as `open_store` does, but one that fails once in all the processes that share a marker."""
    return FailsOnce(open_store(uri, clock, **options), marker, dies=dies)


def dying(results: Callable[..., Iterator[Any]], marker: str) -> Callable[..., Iterator[Any]]:
    """Return what gives the results of tasks, the first of which dies at the end of its work."""

    def given(spark: Any, work: Callable[[Any], Any], *rest: Any) -> Iterator[Any]:
        return results(spark, Dying(work, marker), *rest)

    return given


class DyingTask:
    """A function of a task, over its rows, whose first process dies when it is done."""

    def __init__(self, function: Callable[..., Iterator[Any]], marker: str) -> None:
        self.function = function
        self.marker = marker

    def __call__(self, *arguments: Any) -> Iterator[Any]:
        done = list(self.function(*arguments))
        try:
            Path(self.marker).touch(exist_ok=False)
        except FileExistsError:
            return iter(done)
        os._exit(1)


class Dying:
    """Work whose first process dies when it is done."""

    def __init__(self, work: Callable[[Any], Any], marker: str) -> None:
        self.work = work
        self.marker = marker

    def __call__(self, piece: Any) -> Any:
        done = self.work(piece)
        try:
            Path(self.marker).touch(exist_ok=False)
        except FileExistsError:
            return done
        os._exit(1)
