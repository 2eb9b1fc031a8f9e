"""The lake behind a local HTTP server, with merge and vacuum on a schedule."""

from __future__ import annotations

import errno
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import waitress
from waitress.server import create_server

from alluvia.cli.context import LocalContext
from alluvia.cli.gateway import Gateway, load_handler
from alluvia.errors import Invalid
from alluvia.lake import Lake
from alluvia.runtime import using

BODY_LIMIT_BYTES = 10 << 20
"""API Gateway's limit of an HTTP API: beyond it the server refuses the request without reading it."""
MERGE_SECONDS = 60.0
VACUUM_SECONDS = 24 * 3600.0
THREADS = 8


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


@contextmanager
def running(
    lake: Lake,
    host: str = "127.0.0.1",
    port: int = 0,
    merge_seconds: float = MERGE_SECONDS,
    vacuum_seconds: float = VACUUM_SECONDS,
) -> Iterator[waitress.server.BaseWSGIServer]:
    """Serve a lake on a port (any free one for 0) until the block ends; `effective_port` of what it yields says which.

    The block must call `run()` of it, here or in a thread.
    """
    with using(lake):
        schedule = Schedule(lake, merge_seconds, vacuum_seconds)
        server = _listen(lake, host, port)
        schedule.start()
        try:
            yield server
        finally:
            server.close()
            schedule.stop()


def _listen(lake: Lake, host: str, port: int) -> waitress.server.BaseWSGIServer:
    try:
        return create_server(
            Gateway(lake.clock),
            host=host,
            port=port,
            threads=THREADS,
            max_request_body_size=BODY_LIMIT_BYTES,
            ident="alluvia",
        )
    except (OSError, ValueError) as error:  # waitress raises ValueError for a host that has no address
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            msg = f"--port {port} of {host} is in use: give another, or 0 for a free one"
        elif isinstance(error, PermissionError):
            msg = f"--port {port} may not be used by this user: give one above 1023, or 0 for a free one"
        else:
            msg = f"--host {host}: cannot listen there: give an address of this machine, such as 127.0.0.1"
        raise Invalid(msg) from error


@contextmanager
def in_background(lake: Lake) -> Iterator[int]:
    """Serve a lake in a thread, without schedules, and yield the port."""
    with running(lake, merge_seconds=0, vacuum_seconds=0) as server:

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
