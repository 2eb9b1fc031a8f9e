"""Start and stop the server."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import grpc

from alluvia.api.lake import Lake
from alluvia.errors import Invalid
from alluvia.flight.commands import Commands
from alluvia.flight.service import REQUEST_BYTES_MAX, FlightService, Gate
from alluvia.flight.statements import StatementRules, Statements

CALLS_MAX = 256
"""Calls at once, nearly all of which wait: for a place, or for the client. One more is refused."""
_STOP_SECONDS = 2.0
_OPTIONS = (
    ("grpc.max_receive_message_length", REQUEST_BYTES_MAX + 65_536),
    ("grpc.max_send_message_length", -1),
    ("grpc.so_reuseport", 0),  # else two servers share a port, and callers get either
    ("grpc.keepalive_time_ms", 60_000),  # so that a call ends whose client has gone without a word
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.min_ping_interval_without_data_ms", 10_000),
)


@contextmanager
def serving(lake: Lake, rules: Callable[[], StatementRules], gate: Gate, host: str, port: int) -> Iterator[int]:
    """Serve a lake until the block ends, and yield the port. Raises `Invalid` where it cannot listen."""
    statements = Statements(lake, rules)
    commands = Commands(statements, lake.clock)
    pool = ThreadPoolExecutor(CALLS_MAX, thread_name_prefix="flight")
    server = grpc.server(pool, options=_OPTIONS, maximum_concurrent_rpcs=CALLS_MAX)
    server.add_generic_rpc_handlers((FlightService(statements, commands, gate).handler(),))
    try:
        found = server.add_insecure_port(_address(host, port))
    except RuntimeError as error:
        raise Invalid(f"--flight-port {port} of {host}: cannot listen there: choose another, or 0") from error
    server.start()
    try:
        yield found
    finally:
        server.stop(_STOP_SECONDS).wait()
        pool.shutdown(wait=False, cancel_futures=True)
        commands.close()


def _address(host: str, port: int) -> str:
    """Return where to listen: one address, of the older family first, as HTTP does."""
    family, _, _, _, address = min(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
    shown = f"[{address[0]}]" if family == socket.AF_INET6 else str(address[0])
    return f"{shown}:{port}"
