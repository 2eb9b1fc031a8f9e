"""The HTTP server's connections: clients that are slow to send or to read shut nobody out."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from waitress.channel import HTTPChannel
from waitress.server import BaseWSGIServer

from alluvia.cli.client import Client
from alluvia.server.listening import PACE_BYTES, listen
from alluvia.server.watching import SocketWatch

CONNECTIONS = 4
BODY_BYTES = 1 << 20
STARTED = f"POST /slow HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BODY_BYTES}\r\n\r\n".encode()
HELD = b"GET /held HTTP/1.1\r\nHost: localhost\r\n\r\n"
QUICK = b"GET /quick HTTP/1.1\r\nHost: localhost\r\n\r\n"


class Place:
    """A server with room for few connections, and the sockets of its slow clients."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.held, self.go_on = threading.Event(), threading.Event()
        self.server: BaseWSGIServer = listen(self._answer, "127.0.0.1", 0, 2, self.lines.append, None, CONNECTIONS)
        self.port = int(self.server.effective_port)
        self.sockets: list[socket.socket] = []

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> list[bytes]:
        if environ["PATH_INFO"] == "/held":
            self.held.set()
            assert self.go_on.wait(30)
        body = b"x" * (8 << 20 if environ["PATH_INFO"] == "/long" else 1)
        start("200 OK", [("Content-Length", str(len(body)))])
        return [body]

    def connect(self, data: bytes = STARTED) -> socket.socket:
        """Open a connection and send a request, or its beginning; return once the server has it."""
        found = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        self.sockets.append(found)
        found.sendall(data)
        port = found.getsockname()[1]
        self.until(lambda: port in self.open() and _has_begun(self.open()[port]))
        return found

    def read_nothing(self) -> None:
        """Open a connection, ask for a long answer and read nothing of it; return once the server waits for that."""
        port = self.connect(b"GET /long HTTP/1.1\r\nHost: localhost\r\n\r\n").getsockname()[1]
        self.until(lambda: not self.open()[port].requests and self.open()[port].total_outbufs_len)

    def post(self) -> int:
        """Post something quick, and return the status once that connection is closed."""
        status = Client(self.port).post("/quick", {}).status
        ports = {each.getsockname()[1] for each in self.sockets}
        self.until(lambda: ports >= self.open().keys())
        return status

    def closed(self) -> list[int]:
        """Return which of the connections the server has closed."""
        return [at for at, each in enumerate(self.sockets) if each.getsockname()[1] not in self.open()]

    def open(self) -> dict[int, Any]:
        return {each.addr[1]: each for each in list(self.server.active_channels.values())}

    def until(self, holds: Callable[[], object]) -> None:
        end = time.monotonic() + 30
        while not holds():
            assert time.monotonic() < end
            time.sleep(0.005)


def _has_begun(channel: Any) -> bool:
    return bool(channel.request or channel.requests or channel.total_outbufs_len)


@pytest.fixture
def place() -> Iterator[Place]:
    place = Place()

    def serve() -> None:
        with contextlib.suppress(OSError):  # closing the server ends its loop
            place.server.run()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield place
    place.go_on.set()
    for each in place.sockets:
        each.close()
    place.server.task_dispatcher.shutdown()
    place.server.close()
    thread.join(timeout=5)


def test_who_comes_takes_the_place_of_the_slowest(place: Place) -> None:
    for _ in range(CONNECTIONS):
        place.connect()
    assert place.post() == 200
    assert place.closed() == [0]
    place.connect()
    assert place.closed() == [0]
    assert place.post() == 200
    assert place.closed() == [0, 1]
    assert [line for line in place.lines if "closed" in line] == [
        f"127.0.0.1 closed: it is the slowest of {CONNECTIONS} connections, and another has come"
    ] * 2


def test_an_upload_that_goes_on_is_not_the_slowest(place: Place) -> None:
    upload = place.connect()
    for _ in range(CONNECTIONS - 1):
        place.connect()
    upload.sendall(b"a" * 60 * PACE_BYTES)
    port = upload.getsockname()[1]
    place.until(lambda: place.open()[port].moved_bytes > 60 * PACE_BYTES)
    assert place.post() == 200
    assert place.closed() == [1]


def test_who_is_being_answered_keeps_its_place(place: Place) -> None:
    held = place.connect(b"GET /held HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert place.held.wait(30)
    for _ in range(CONNECTIONS - 1):
        place.connect()
    assert place.post() == 200
    assert place.closed() == [1]
    place.go_on.set()
    assert held.recv(100).startswith(b"HTTP/1.1 200 OK")


def test_who_does_not_read_its_answer_gives_way(place: Place) -> None:
    for _ in range(CONNECTIONS):
        place.read_nothing()
    assert place.post() == 200
    assert place.closed() == [0]


def test_bodies_that_are_not_complete_hold_no_more_than_they_may(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alluvia.server.listening.HELD_BYTES_MAX", 64 * 1024)

    def arrived(port: int) -> bool:
        return port not in place.open() or place.open()[port].held_bytes > 40 * 1024

    for at in range(CONNECTIONS):
        upload = place.connect()
        upload.sendall(b"a" * 40 * 1024)
        place.until(partial(arrived, upload.getsockname()[1]))
        assert sum(each.held_bytes for each in place.open().values()) <= 64 * 1024 + 40 * 1024, at
    assert place.post() == 200
    assert any("unfinished request bodies take too much space" in line for line in place.lines)


def test_an_answer_is_sent_in_one_piece_and_quiet_connections_cost_nothing(
    monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    looks: Counter[int] = Counter()
    readable = HTTPChannel.readable

    def counted(channel: Any) -> bool:
        looks[channel.addr[1]] += 1
        return bool(readable(channel))

    quiet = [place.connect(STARTED).getsockname()[1] for _ in range(2)]
    busy = socket.create_connection(("127.0.0.1", place.port), timeout=30)
    monkeypatch.setattr(HTTPChannel, "readable", counted)
    for _ in range(20):
        busy.sendall(QUICK)
        assert busy.recv(1 << 16).endswith(b"\r\n\r\nx")
    busy.close()
    assert [looks[each] for each in quiet] == [0, 0]


def test_a_request_that_arrives_during_an_answer_is_answered_next(place: Place) -> None:
    sender = place.connect(HELD)
    assert place.held.wait(30)
    sender.sendall(QUICK)
    place.go_on.set()
    answers = b""
    while answers.count(b"\r\n\r\nx") < 2:
        answers += sender.recv(1 << 16)
    sender.sendall(QUICK)
    assert sender.recv(1 << 16).endswith(b"\r\n\r\nx")


def test_a_client_that_leaves_during_its_answer_leaves_no_connection(place: Place) -> None:
    gone = place.connect(HELD)
    port = gone.getsockname()[1]
    assert place.held.wait(30)
    gone.close()
    place.go_on.set()
    place.until(lambda: port not in place.open())
    assert Client(place.port).post("/quick", {}).status == 200


def test_a_client_that_starts_to_read_late_gets_the_whole_answer(place: Place) -> None:
    place.read_nothing()
    [client] = place.sockets
    text = b""
    while len(text.partition(b"\r\n\r\n")[2]) < 8 << 20:
        text += client.recv(1 << 20)
    client.sendall(QUICK)
    assert client.recv(1 << 16).endswith(b"\r\n\r\nx")


class _Sender:
    """A connection on which another thread sends while the server checks what the connection waits for."""

    accepting = False

    def __init__(self, watch: SocketWatch, number: int) -> None:
        self._watch, self._fileno = watch, number
        self.requests = [object()]
        self.waits_to_send = False
        self.look = 0
        self.sends_at = 0
        self.fit: list[bool] = []

    def readable(self) -> bool:
        return False

    def handle_write_event(self) -> None:
        self.waits_to_send = False

    def writable(self) -> bool:
        self.look += 1
        before = self.waits_to_send
        if self.look == self.sends_at:
            sender = threading.Thread(target=self._send)
            sender.start()
            sender.join(0.2)  # less where it waits for the end of the look
        return before

    def _send(self) -> None:
        self.waits_to_send = True
        self.fit.append(self._watch.is_fit(self))


@pytest.mark.parametrize(("had_sent_all", "sends_at"), [(True, 1), (False, 2)])
def test_bytes_left_by_a_thread_during_that_check_are_sent(had_sent_all: bool, sends_at: int) -> None:
    here, there = socket.socketpair()
    with here, there:
        dispatchers: dict[int, Any] = {}
        watch = SocketWatch(dispatchers)
        sender = dispatchers[here.fileno()] = _Sender(watch, here.fileno())
        sender.waits_to_send = True
        watch.renew(sender)
        sender.waits_to_send, sender.look, sender.sends_at = not had_sent_all, 0, sends_at
        watch.wait(5)
        until = time.monotonic() + 30
        while not sender.fit and time.monotonic() < until:
            time.sleep(0.005)
        assert sender.fit == [False] or watch.is_fit(sender)
