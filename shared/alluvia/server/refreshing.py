"""Refreshing rollups at once, in the background of `alluvia serve`, after events came into their source."""

from __future__ import annotations

import sys
import threading

from alluvia.api.lake import Lake


class Refresher:
    """Refreshes the rollups of tables that changed, one after another; what comes meanwhile waits for the next turn.

    Requests never wait for it. A rollup that fails goes to stderr, and is left to the next events or the next merge.
    """

    def __init__(self, lake: Lake) -> None:
        self._lake = lake
        self._changed: set[str] = set()
        self._stopping = False
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="refresh", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def changed(self, table: str) -> None:
        """Note that a table changed."""
        with self._news:
            self._changed.add(table)
            self._news.notify()

    def stop(self) -> None:
        """End, after a refresh that is under way."""
        with self._news:
            self._stopping = True
            self._news.notify()
        self._thread.join()

    def _run(self) -> None:
        while (tables := self._next()) is not None:
            for table in tables:
                self._refresh(table)

    def _next(self) -> set[str] | None:
        """Wait for tables that changed; None at the end."""
        with self._news:
            self._news.wait_for(lambda: self._changed or self._stopping)
            found, self._changed = self._changed, set()
            return None if self._stopping else found

    def _refresh(self, table: str) -> None:
        try:
            for name in self._lake.rollups(table, nested=True):
                self._attempt(name)
        except Exception as error:  # noqa: BLE001 - the server goes on; the next events, or a merge, try again
            sys.stderr.write(f"looking for the rollups of {table} failed: {error}\n")

    def _attempt(self, name: str) -> None:
        try:
            self._lake.table(name).refresh()
        except Exception as error:  # noqa: BLE001 - as above, and the other rollups get their turn
            sys.stderr.write(f"refreshing the rollup {name} failed: {error}\n")
