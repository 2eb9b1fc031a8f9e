"""A store that fails once, in whatever executor comes first."""

from __future__ import annotations

import os
from pathlib import Path

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
