"""A store in which other writers win: what they do happens right before a commit of ours is put."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from alluvia.api.lake import Lake, Table
from alluvia.store import CountingStore, PutResult, Store

Winner = Callable[[], Any]


class RacingStore(CountingStore):
    """Calls the next winner before each conditional put, until there are no more."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.winners: list[Winner] = []

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        if self.winners:
            self.winners.pop(0)()
        return super().put_if_absent(key, data)


class Race:
    """A lake `ours`, and another on the same store, `theirs`, which wins whenever it is told to."""

    def __init__(self, lake: Lake) -> None:
        inner = lake.store.inner if isinstance(lake.store, CountingStore) else lake.store
        self.store = RacingStore(inner)
        self.clock = lake.clock
        self.ours = Lake(self.store, lake.clock)
        self.theirs = Lake(inner, lake.clock)

    def table(self, *winners: Callable[[Table], Any]) -> Table:
        """Return our table `t`, over whose next commits others win with what they do to theirs."""
        theirs = self.theirs.table("t")
        self.store.winners = [partial(winner, theirs) for winner in winners]
        return self.ours.table("t")
