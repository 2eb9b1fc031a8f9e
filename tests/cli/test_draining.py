"""How `alluvia serve` ends: it is not ready any more, and what runs comes to its end, within limits."""

from __future__ import annotations

import json
import signal
import socket
from http.client import HTTPConnection
from pathlib import Path

import pytest

import alluvia
from tests.serving import serving

SLOW = b"""{"query": "SELECT levenshtein(repeat('ab', 10000000), repeat('ba', 10000000))"}"""


def get(port: int, path: str) -> tuple[int, bytes]:
    connection = HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path)
    answer = connection.getresponse()
    return answer.status, answer.read()


def until_not_ready(port: int) -> tuple[int, bytes]:
    """Ask whether the server is ready until it is not: a signal comes when it comes."""
    while (found := get(port, "/readyz"))[0] == 200:
        pass
    return found


def begun(port: int, path: str, body: bytes) -> socket.socket:
    """Send the head of a request, and return the connection once the server waits for the body."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=60)
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    connection.sendall(f"{head}Expect: 100-continue\r\n\r\n".encode())
    assert connection.recv(100).startswith(b"HTTP/1.1 100 ")
    return connection


def answered(connection: socket.socket) -> bytes:
    """Return all of what comes back; nothing where the server is gone."""
    found = b""
    with connection:
        try:
            while part := connection.recv(65536):
                found += part
        except ConnectionResetError:
            return b""
    return found


def test_a_request_that_has_begun_is_answered_before_the_server_ends(tmp_path: Path) -> None:
    event = b'{"event_id": "1"}'
    with serving(tmp_path / "lake", "--drain-seconds", "300") as (process, port):
        connection = begun(port, "/v1/events/t", event)
        process.send_signal(signal.SIGTERM)
        status, body = until_not_ready(port)
        assert (status, json.loads(body)) == (503, {"error": "the server is shutting down"})
        assert get(port, "/healthz")[0] == 200
        late = begun(port, "/v1/events/t", event)  # a balancer may not know yet
        for each in (late, connection):
            each.sendall(event)
            assert answered(each).startswith(b"HTTP/1.1 200 ")
        assert process.wait(timeout=60) == 0
    assert alluvia.connect(str(tmp_path / "lake"))["t"].count() == 1


@pytest.mark.slow
def test_a_query_that_runs_is_answered_before_the_server_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_QUERY_TIMEOUT_SECONDS", "9")  # longer than waitress waits for its threads
    with serving(tmp_path / "lake") as (process, port):
        connection = begun(port, "/q", SLOW)
        connection.sendall(SLOW)
        process.send_signal(signal.SIGTERM)
        assert answered(connection).startswith(b"HTTP/1.1 422 ")
        assert process.wait(timeout=60) == 0


@pytest.mark.parametrize(("seconds", "signals"), [("1", 1), ("300", 2)])
def test_what_runs_longer_than_it_may_is_cut_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: str, signals: int
) -> None:
    monkeypatch.setenv("ALLUVIA_QUERY_TIMEOUT_SECONDS", "300")
    with serving(tmp_path / "lake", "--drain-seconds", seconds) as (process, port):
        connection = begun(port, "/q", SLOW)
        connection.sendall(SLOW)
        process.send_signal(signal.SIGTERM)
        until_not_ready(port)
        if signals == 2:
            process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
        assert answered(connection) == b""


def test_an_idle_server_ends_at_once(tmp_path: Path) -> None:
    with serving(tmp_path / "lake", "--drain-seconds", "300") as (process, port):
        assert get(port, "/readyz")[0] == 200
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=60) == 0
