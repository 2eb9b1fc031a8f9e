"""The lake behind a local HTTP server, with merge and vacuum on a schedule."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import waitress

from alluvia.cli.bundled import LocalContext, load_handler
from alluvia.cli.gateway import Gateway, ServerRules
from alluvia.cli.guards import is_loopback
from alluvia.cli.listening import listen
from alluvia.cli.refreshing import Refresher
from alluvia.lake import Lake
from alluvia.query.processes import POOL
from alluvia.serverless.environment import environment
from alluvia.serverless.warm_lake import using

QUERY_MEMORY = "ALLUVIA_QUERY_MEMORY_MB"
MERGE_SECONDS = 60.0
VACUUM_SECONDS = 24 * 3600.0
THREADS = 8
"""Threads for other requests than queries, which have as many as may run or wait."""


class Schedule:
    """Calls the merge and vacuum functions in the background, as their schedules would. Failures go to stderr."""

    def __init__(self, lake: Lake, merge_seconds: float, vacuum_seconds: float) -> None:
        self._lake = lake
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(name, seconds), name=f"schedule-{name}", daemon=True)
            for name, seconds in (("merge", merge_seconds), ("vacuum", vacuum_seconds))
            if seconds > 0
        ]

    def start(self) -> None:
        """Begin; the first calls come after one interval."""
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End, after a call that is under way."""
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _run(self, function: str, seconds: float) -> None:
        handler = load_handler(function)
        while not self._stop.wait(seconds):
            try:
                handler(schedule_event(self._lake), LocalContext(function, self._lake.clock))
            except Exception as error:  # noqa: BLE001 - one failed run must not end the schedule; the next may pass
                sys.stderr.write(f"{function} failed: {error}\n")


def schedule_event(lake: Lake) -> dict[str, Any]:
    """Return the event that EventBridge sends to a scheduled function."""
    return {
        "version": "0",
        "id": lake.clock.new_id(),
        "source": "aws.events",
        "detail-type": "Scheduled Event",
        "detail": {},
    }


@dataclass(frozen=True, slots=True)
class Options:
    """How a lake is served: where, to whom, and how often it is merged and vacuumed (in seconds; 0: never)."""

    host: str = "127.0.0.1"
    port: int = 0
    """0 chooses a free one."""
    allow_hosts: tuple[str, ...] = ()
    merge_seconds: float = MERGE_SECONDS
    vacuum_seconds: float = VACUUM_SECONDS
    log_requests: bool = True
    refresh_rollups: bool = False
    """Refresh rollups at once after events came into their source, and not only with each merge."""

    @property
    def hosts(self) -> tuple[str, ...] | None:
        """Names that the server may be called by, besides those of loopback; None: any."""
        if self.allow_hosts or is_loopback(self.host):
            return (self.host, *self.allow_hosts)
        return None


@contextmanager
def running(lake: Lake, options: Options) -> Iterator[waitress.server.BaseWSGIServer]:
    """Serve a lake until the block ends; `effective_port` of what it yields says where.

    The block must call `run()` of it, here or in a thread.
    """
    rules = ServerRules(options.hosts)
    memory = {QUERY_MEMORY: str(memory_mb(rules.queries))} if QUERY_MEMORY not in os.environ else {}
    log = _log if options.log_requests else _log_nothing
    with using(lake), environment(memory):
        schedule = Schedule(lake, options.merge_seconds, options.vacuum_seconds)
        threads = THREADS + rules.queries + rules.queries_waiting
        refresher = Refresher(lake)
        gateway = Gateway(lake.clock, rules, log, refresher.changed if options.refresh_rollups else _log_nothing)
        server = listen(gateway, options.host, options.port, threads, log)
        POOL.prepare(1)
        schedule.start()
        refresher.start()
        try:
            yield server
        finally:
            server.close()
            schedule.stop()
            refresher.stop()


def memory_mb(queries: int) -> int:
    """Return how much memory each of some queries at once may take on this machine, in MB: two thirds in all."""
    size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):  # no such file, or "max"
        size = min(size, int(Path("/sys/fs/cgroup/memory.max").read_text("ascii")))
    return max(64, size * 2 // 3 // queries // 1_000_000)


def _log(line: str) -> None:
    sys.stderr.write(f"{datetime.now(UTC).isoformat(timespec='milliseconds')} {line}\n")


def _log_nothing(_: str) -> None:
    """Let a line go."""


@contextmanager
def in_background(lake: Lake) -> Iterator[int]:
    """Serve a lake in a thread, without schedules, and yield the port."""
    with running(lake, Options(merge_seconds=0, vacuum_seconds=0, log_requests=False)) as server:

        def serve() -> None:
            with suppress(OSError):  # closing the server's sockets is what ends its loop
                server.run()

        thread = threading.Thread(target=serve, name="http", daemon=True)
        thread.start()
        try:
            yield int(server.effective_port)
        finally:
            server.task_dispatcher.shutdown()
            server.close()
            thread.join(timeout=5)
