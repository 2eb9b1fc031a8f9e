"""`alluvia serve --flight-port` as a process, and callers of it."""

from __future__ import annotations

import contextlib
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any, Self

import grpc
from adbc_driver_flightsql import DatabaseOptions, dbapi

from alluvia.flight.messages import Message, new, packed, read
from alluvia.flight.service import SERVICE
from tests.serving import serving


@dataclass(frozen=True)
class Served:
    """A server: its process, and where it listens."""

    process: subprocess.Popen[str]
    http_port: int
    flight_port: int
    jdbc: str

    @property
    def uri(self) -> str:
        return f"grpc://127.0.0.1:{self.flight_port}"

    def connect(self, token: str = "", *, autocommit: bool = True) -> dbapi.Connection:
        options = {DatabaseOptions.AUTHORIZATION_HEADER.value: f"Bearer {token}"} if token else {}
        return dbapi.connect(self.uri, options, autocommit=autocommit)

    def rows(self, sql: str, parameters: Any = None, token: str = "") -> list[tuple[Any, ...]]:
        with self.connect(token) as connection, connection.cursor() as cursor:
            cursor.execute(sql, parameters)
            return list(cursor.fetchall())


@contextlib.contextmanager
def serving_flight(lake: Path, *words: str) -> Iterator[Served]:
    with serving(lake, "--flight-port", "0", *words, quiet=True) as (process, port):
        assert process.stdout is not None
        lines = [process.stdout.readline(), process.stdout.readline()]
        match = re.search(r"grpc://127\.0\.0\.1:(\d+) for ADBC, (\S+) for JDBC", lines[-1])
        assert match, lines
        yield Served(process, port, int(match[1]), match[2])


class RawClient:
    """Calls the methods of Flight with any bytes, as no driver would."""

    def __init__(self, served: Served, token: str = "") -> None:
        self._channel = grpc.insecure_channel(f"127.0.0.1:{served.flight_port}")
        self._headers = (("authorization", f"Bearer {token}"),) if token else ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._channel.close()

    def one(self, method: str, request: bytes) -> bytes:
        call: Any = self._channel.unary_unary(f"/{SERVICE}/{method}")
        return bytes(call(request, metadata=self._headers, timeout=60))

    def stream(self, method: str, request: bytes) -> Iterator[bytes]:
        call: Any = self._channel.unary_stream(f"/{SERVICE}/{method}")
        found: Iterator[bytes] = call(request, metadata=self._headers, timeout=60)
        return found

    def without_a_request(self, method: str, *, ends: bool) -> grpc.StatusCode:
        """Call a method with headers alone, and end the call there, or leave it open; return how it ends."""
        call: Any = self._channel.stream_stream(f"/{SERVICE}/{method}")
        requests = iter(()) if ends else iter(Event().wait, True)
        found: grpc.StatusCode = call(requests, metadata=self._headers, timeout=20).code()
        return found

    def put(self, *requests: bytes) -> list[bytes]:
        call: Any = self._channel.stream_stream(f"/{SERVICE}/DoPut")
        return list(call(iter(requests), metadata=self._headers, timeout=60))

    def info(self, name: str, **fields: Any) -> Message:
        found = self.one("GetFlightInfo", descriptor(packed(name, **fields)))
        return read("FlightInfo", found)

    def action(self, name: str, body: bytes) -> list[bytes]:
        found = self.stream("DoAction", new("Action", type=name, body=body).SerializeToString())
        return [read("Result", each).body for each in found]


def descriptor(command: bytes) -> bytes:
    return bytes(new("FlightDescriptor", type=2, cmd=command).SerializeToString())


def ticket(data: bytes) -> bytes:
    return bytes(new("Ticket", ticket=data).SerializeToString())
