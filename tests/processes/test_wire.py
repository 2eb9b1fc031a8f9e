"""The bad network does what it says: each fate's effect on the server, and what the client sees of it."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.processes.wire import FATES, Wire, running_wire

BODY = b"what was asked for" * 1000


class Counting(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    bodies: list[bytes]

    def do_PUT(self) -> None:
        length = int(self.headers["Content-Length"])
        body = self.rfile.read(length)
        if len(body) == length:
            self.bodies.append(body)
        self.send_response(200)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - as the base class has it
        pass


@contextmanager
def serving() -> Iterator[tuple[int, list[bytes]]]:
    """Give a server's port, and the whole bodies that it was sent."""
    bodies: list[bytes] = []
    handler = type("Handler", (Counting,), {"bodies": bodies})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=[0.05])
        thread.start()
        yield server.server_port, bodies
        server.shutdown()
        thread.join()


def put(wire: Wire) -> str:
    """Send a request through the wire, and say what came back."""
    client = http.client.HTTPConnection("127.0.0.1", wire.port, timeout=30)
    try:
        client.request("PUT", "/k", b"sent" * 5000, {"Expect": "100-continue"})
        answer = client.getresponse()
        return f"{answer.status} whole" if answer.read() == BODY else f"{answer.status}"
    except (ConnectionError, http.client.HTTPException):
        return "cut"
    finally:
        client.close()


@pytest.mark.parametrize(
    ("fate", "seen", "effects"),
    [
        ("passed", "200 whole", 1),
        ("refused", "cut", 0),
        ("cut before", "cut", 0),
        ("cut within", "cut", 0),
        ("lost", "cut", 1),
        ("late", "cut", 1),
        ("gateway", "502", 1),
        ("slow request", "200 whole", 1),
        ("slow answer", "200 whole", 1),
    ],
)
def test_each_fate_does_what_it_says(fate: str, seen: str, effects: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wire, "_fate", lambda wire, among: fate if wire.faulty and fate in among else "passed")
    with serving() as (port, bodies), running_wire(port, 0) as wire:
        assert put(wire) == seen
        wire.calm()
        assert bodies == [b"sent" * 5000] * effects
        assert not wire.broken
        assert wire.fates[fate] == 1
        assert put(wire) == "200 whole"


def test_a_torn_answer_is_never_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wire, "_fate", lambda wire, among: "torn" if "torn" in among else "passed")
    with serving() as (port, bodies), running_wire(port, 0) as wire:
        for _ in range(20):
            assert put(wire) in ("cut", "200")
        assert len(bodies) == 20


def test_every_fate_is_rarer_than_none() -> None:
    assert sum(FATES.values()) < 500
