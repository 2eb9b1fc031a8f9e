"""What `serve` does in place of notifications and schedules: merge and vacuum tables, and run derived ones."""

from __future__ import annotations

import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from alluvia.api.lake import Lake
from alluvia.clock import Clock
from alluvia.server.gateway import LocalContext, load_handler
from alluvia.store import PutResult, Store
from alluvia.store.wrapper import Wrapper
from alluvia.table_names import TABLE_OR_REJECTS

REST_TIMES = 9
"""How long a table rests, as a multiple of its last call: one that always changes takes a tenth of a core."""
REST_SECONDS_MAX = 5.0
_COMMIT = re.compile(rf"(?P<table>{TABLE_OR_REJECTS.pattern})/_delta_log/(?P<version>\d{{20}})\.json")


class CommitWatch(Wrapper):
    """A store that reports every commit of a table that is written through it: the table, and its version."""

    def __init__(self, inner: Store, told: Callable[[str, int], object]) -> None:
        super().__init__(inner)
        self._told = told

    def put_if_absent(self, key: str, data: bytes) -> PutResult:
        result = super().put_if_absent(key, data)
        commit = _COMMIT.fullmatch(key) if result is PutResult.CREATED else None
        if commit is not None:
            self._told(commit["table"], int(commit["version"]))
        return result


class Upkeep:
    """Calls a function in a thread of its own: for each table that has changed, and for all tables every so often.

    One call at a time; tables that change meanwhile wait, each once, and each rests after its call. Failures go to
    stderr, and end nothing.
    """

    def __init__(
        self, lake: Lake, function: str, sweep_seconds: float, options: Mapping[str, Any] | None = None
    ) -> None:
        """`options` are further fields of the event for a table that has changed."""
        self._lake = lake
        self._function = function
        self._options = dict(options or {})
        self._sweep_seconds = sweep_seconds
        self._news = threading.Condition()
        self._waiting: dict[str, None] = {}
        self._resting_until: dict[str, float] = {}
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"upkeep-{function}", daemon=True)

    def changed(self, table: str) -> None:
        """Have the function look at a table soon."""
        with self._news:
            self._waiting[table] = None
            self._news.notify()

    def start(self) -> None:
        """Begin; the first sweep comes after one interval."""
        self._thread.start()

    def stop(self) -> None:
        """End, after what is under way: a merge ends with its current group of files."""
        with self._news:
            self._stopping = True
            self._news.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        handler = load_handler(self._function)
        sweep_at = time.monotonic() + self._sweep_seconds
        while not self._stopping:
            event = self._next_event(sweep_at)
            if event is None:
                continue
            began = time.monotonic()
            if "tables" not in event:
                sweep_at = began + self._sweep_seconds
            try:
                done = handler(event, _Context(self._function, self._lake.clock, self))
                for table in done["left"]:
                    self.changed(table)
            except Exception as error:  # noqa: BLE001 - one failed call must not end the upkeep; the next may pass
                sys.stderr.write(f"{self._function} failed: {error}\n")
            self._rest(event.get("tables", ()), time.monotonic() - began)

    def _rest(self, tables: Iterable[str], took_seconds: float) -> None:
        now = time.monotonic()
        resting = {table: until for table, until in self._resting_until.items() if until > now}
        rest_seconds = min(REST_TIMES * took_seconds, REST_SECONDS_MAX)
        self._resting_until = resting | dict.fromkeys(tables, now + rest_seconds)

    def _next_event(self, sweep_at: float) -> dict[str, Any] | None:
        """Wait for a table or the next sweep, and return the event for it; None if there is neither."""
        with self._news:
            times = [self._resting_until.get(table, 0.0) for table in self._waiting]
            seconds = min([sweep_at, *times]) - time.monotonic()
            if seconds > 0 and not self._stopping:
                self._news.wait(min(seconds, threading.TIMEOUT_MAX))
            if self._stopping:
                return None
            now = time.monotonic()
            if now >= sweep_at:
                return {}
            table = next((each for each in self._waiting if self._resting_until.get(each, 0.0) <= now), None)
            if table is None:
                return None
            del self._waiting[table]
            return {"tables": [table], **self._options}


class _Context(LocalContext):
    """A Lambda context whose time is over when the server stops."""

    def __init__(self, function: str, clock: Clock, upkeep: Upkeep) -> None:
        super().__init__(function, clock)
        self._upkeep = upkeep

    def get_remaining_time_in_millis(self) -> int:
        """Return the milliseconds that are left."""
        return 0 if self._upkeep._stopping else super().get_remaining_time_in_millis()  # noqa: SLF001 - its own
