"""What `alluvia serve` refuses, and requests that do not wait for others."""

from __future__ import annotations

import contextlib
import gzip
import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.client import HTTPException
from pathlib import Path
from queue import Queue

import pytest

import alluvia
from alluvia.cli.client import Client, Reply
from alluvia.server.gateway import ServerRules
from alluvia.server.listening import BODY_LIMIT_BYTES
from alluvia.server.serve import memory_mb
from tests.cli.exchanges import exchange, post, served_to_others
from tests.serving import serving

SLOW = {"query": "SELECT levenshtein(repeat('ab', 10000000), repeat('ba', 10000000))"}


def test_slow_queries_hold_up_no_event(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLUVIA_QUERY_TIMEOUT_SECONDS", "300")
    rules = ServerRules()
    answers: Queue[Reply] = Queue()

    def ask(port: int) -> None:
        with contextlib.suppress(OSError, HTTPException):  # the server is killed in the end
            answers.put(Client(port).post("/q", SLOW))

    with serving(tmp_path / "lake") as (_, port):
        for _ in range(rules.queries.total + 1):
            threading.Thread(target=ask, args=(port,), daemon=True).start()
        refused = answers.get(timeout=120)
        assert (refused.status, "too many queries are waiting" in refused.json()["error"]) == (503, True)
        reply = Client(port).post("/v1/events/app", {"event": "signup"})
        assert (reply.status, reply.json()["accepted"]) == (200, 1)
        assert answers.empty()


def test_queries_come_as_json_text_or_a_form(tmp_path: Path) -> None:
    bodies = {
        "application/json; charset=utf-8": b'{"query": "SELECT 1 AS x"}',
        "text/plain": b"SELECT 1 AS x",
        "application/x-www-form-urlencoded": b"query=SELECT+1+AS+x",
        "": b'{"query": "SELECT 1 AS x"}',
    }
    with serving(tmp_path / "lake") as (_, port):
        for kind, body in bodies.items():
            status, _, answer = exchange(port, post("/q", body, f"Content-Type: {kind}"))
            assert (status, answer) == (200, b'{"x":1}\n'), kind
        status, _, answer = exchange(port, post("/q", b"SELECT 1", "Content-Type: application/xml"))
        assert (status, "application/json" in json.loads(answer)["error"]) == (415, True)


def test_a_request_with_two_lengths_is_refused(tmp_path: Path) -> None:
    with serving(tmp_path / "lake") as (_, port):
        for name in ("Transfer-Encoding", "transfer-encoding"):
            status, headers, body = exchange(port, post("/v1/events/app", b"2\r\n{}\r\n0\r\n\r\n", f"{name}: chunked"))
            assert (status, headers["content-type"]) == (400, "application/json")
            assert json.loads(body) == {"error": "Content-Length and Transfer-Encoding: send one of them"}
        chunked = (
            b"POST /v1/events/app HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n"
        )
        assert exchange(port, chunked + b"\r\n2\r\n{}\r\n0\r\n\r\n")[0] == 200


HEAD = b"POST /v1/events/app HTTP/1.1\r\nHost: localhost\r\n"
BODY = b"2\r\n{}\r\n0\r\n\r\n"
BEHIND = b"POST /v1/events/smuggled HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}"


@pytest.mark.parametrize(
    "head",
    [
        HEAD + b"Transfer-Encoding: chunked, chunked\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\ntransfer-encoding: identity\r\n",
        HEAD + b"Transfer-Encoding: ,chunked\r\n",
        HEAD + b"Transfer-Encoding: chunked,\r\n",
        HEAD + b"Transfer-Encoding:\r\n",
        HEAD + b"Transfer-Encoding: gzip, chunked\r\n",
        HEAD + b"Transfer-Encoding: chunked;q=1\r\n",
        HEAD + b"Transfer-Encoding: \x0bchunked\r\n",
        HEAD + b"Transfer-Encoding:\r\n chunked\r\n",
        HEAD + b"X-Note: a\r\n Transfer-Encoding: chunked\r\n",
        HEAD + b"Transfer-Encoding : chunked\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n",
        HEAD + b"Content-Length: 4\r\nContent-Length: 5\r\n",
        HEAD + b"Content-Length: +4\r\n",
        HEAD + b"Content-Length: 4, 4\r\n",
        HEAD.replace(b"1.1", b"1.0") + b"Transfer-Encoding: chunked\r\n",
        HEAD + b"X-Note: a\nTransfer-Encoding: chunked\r\n",
        HEAD + b"X-Note: a\rTransfer-Encoding: chunked\r\n",
    ],
)
def test_what_a_proxy_may_end_elsewhere_is_refused_and_ends_the_connection(port_of_a_lake: int, head: bytes) -> None:
    status, headers, answer = exchange(port_of_a_lake, head + b"\r\n" + BODY + BEHIND)
    assert status in (400, 501), answer
    assert (headers["connection"], headers["x-content-type-options"]) == ("close", "nosniff")
    assert b"HTTP/1.1 " not in answer  # nothing behind it is a request
    assert "smuggled" not in json.loads(exchange(port_of_a_lake, GET_TABLES)[2])["tables"]


GET_TABLES = b"GET /v1/tables HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


@pytest.fixture(scope="module")
def port_of_a_lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with serving(tmp_path_factory.mktemp("lake"), quiet=True) as (_, port):
        yield port


@pytest.mark.parametrize(
    ("request_line", "more", "status"),
    [
        ("GET /healthz", "", 200),
        ("HEAD /healthz", "", 200),
        ("GET /readyz", "", 200),
        ("GET /metrics", "", 200),
        ("GET /openapi.json", "", 200),
        ("GET /q?query=SELECT+1", "", 200),
        ("GET /q?query=SELECT+1&format=parquet", "", 200),
        ("GET /q?query=SELECT", "", 400),
        ("GET /nowhere", "", 404),
        ("DELETE /q", "", 405),
        ("GET /v1/results/x.csv", "", 403),
        ("GET /q?query=SELECT+1", "Origin: http://evil.example\r\n", 403),
        ("OPTIONS /v1/webhooks/none", "Origin: http://evil.example\r\n", 401),
        ("GET /v1/webhooks/none", "", 401),
        ("GET /healthz", "Host: evil.example\r\n", 403),
        ("an email", "", 400),
    ],
)
def test_every_answer_says_that_its_type_is_what_it_is(
    port_of_a_lake: int, request_line: str, more: str, status: int
) -> None:
    host = "" if "Host" in more else "Host: localhost\r\n"
    request = f"{request_line} HTTP/1.1\r\n{host}{more}Connection: close\r\n\r\n"
    found, headers, _ = exchange(port_of_a_lake, request.encode())
    assert (found, headers["x-content-type-options"]) == (status, "nosniff")


def test_a_body_over_the_limit_is_refused_in_json(tmp_path: Path) -> None:
    with serving(tmp_path / "lake") as (_, port):
        head = f"POST /v1/events/app HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BODY_LIMIT_BYTES + 1}\r\n\r\n"
        status, headers, body = exchange(port, head.encode())
        assert (status, headers["content-type"]) == (413, "application/json")
        assert json.loads(body)["error"] == (
            "the body is larger than 10485760 bytes: send it in several requests; a file of rows, with "
            "`alluvia upload` or in parts (POST /v1/upload/{table}?parts=2)"
        )
        assert exchange(port, post("/v1/events/app", b" " * (BODY_LIMIT_BYTES - 2) + b"{}"))[0] == 200


def test_each_request_is_a_line_of_the_log(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    command = [sys.executable, "-m", "alluvia.cli", "serve", "--lake", str(tmp_path), "--port", "0"]
    for quiet in ([], ["--quiet"]):
        process = subprocess.Popen([*command, *quiet], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        request.addfinalizer(process.kill)
        assert process.stdout is not None
        port = int(process.stdout.readline().rpartition(":")[2])
        assert Client(port).post("/v1/events/app?key=secret", {"event": "a"}).status == 400
        assert exchange(port, b"GET /a%0Ab%1B[31m HTTP/1.0\r\n\r\n")[0] == 403
        assert exchange(port, b"POST /v1/events/app HTTP/1.0\r\nContent-Length: 99999999\r\n\r\n")[0] == 413
        assert exchange(port, b"an email\r\n\r\n")[0] == 400
        for name, shown in (("caf%C3%A9", "'caf\u00e9'"), ("caf%E9", "'caf\ufffd'"), ("%2561pp", "'%61pp'")):
            status, _, body = exchange(port, post(f"/v1/events/{name}", b"{}"))
            assert (status, shown in json.loads(body)["error"]) == (400, True), body
        process.terminate()
        lines = process.communicate(timeout=30)[1].splitlines()
        assert process.returncode == 0
        if quiet:
            assert lines == []
            continue
        stamp = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00 127\.0\.0\.1"
        assert re.fullmatch(rf"{stamp} POST /v1/events/app 400 \d+ bytes \d+ ms", lines[0])
        assert re.fullmatch(rf"{stamp} GET /a\\nb\\u001b\[31m 403 \d+ bytes \d+ ms", lines[1])
        assert re.fullmatch(rf"{stamp} POST /v1/events/app 413 \d+ bytes 0 ms", lines[2])
        assert re.fullmatch(rf"{stamp} - - 400 \d+ bytes 0 ms", lines[3])
        assert re.fullmatch(rf"{stamp} POST /v1/events/caf\\u00e9 400 \d+ bytes \d+ ms", lines[4])
        assert len(lines) == 7


def test_it_warns_if_others_can_reach_it(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    process = served_to_others(request, tmp_path, "--auth", "open")
    assert process.stdout is not None
    port = int(process.stdout.readline().rpartition(":")[2])
    assert exchange(port, post("/v1/events/app", b"{}"))[0] == 200
    process.terminate()
    assert "Warning: anyone who can reach 0.0.0.0 can read and write this lake" in process.communicate(timeout=30)[1]


def test_memory_for_queries_is_shared() -> None:
    assert memory_mb(1) > 3 * memory_mb(4) > 0


def test_work_for_a_file_ends_when_its_sender_goes(tmp_path: Path) -> None:
    file = gzip.compress(b"a,b\n" + b"12345,67890\n" * 40_000_000, 1)
    with serving(tmp_path / "lake") as (process, port):
        with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
            connection.sendall(post("/v1/upload/t?format=csv", file))
            reader = _reading_process(process.pid)
        until = time.monotonic() + 60
        while Path(f"/proc/{reader}").exists():  # a process that has read a file waits for the next
            assert time.monotonic() < until
            time.sleep(0.01)
        assert process.poll() is None
    assert alluvia.connect(str(tmp_path / "lake")).tables() == []


def _reading_process(parent: int) -> int:
    while True:
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                stat = (path.parent / "stat").read_text().rpartition(")")[2].split()
                if int(stat[1]) == parent and b"alluvia.processes.child" in path.read_bytes():
                    return int(path.parent.name)
        time.sleep(0.01)


def test_a_body_without_a_token_is_not_read(tmp_path: Path) -> None:
    """The answer comes before the body has been sent, and the server holds none of it."""
    body = b'{"event_id": "1"}'
    with serving(tmp_path / "lake", "--auth", "tokens", quiet=True) as (_, port):
        for path in ("/v1/events/t", "/v1/upload/t", "/q", "/v1/logs"):
            for length in (f"Content-Length: {BODY_LIMIT_BYTES}", "Transfer-Encoding: chunked"):
                head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\n{length}\r\n\r\n"
                status, headers, answer = exchange(port, head.encode())
                assert (status, headers["www-authenticate"]) == (401, 'bearer realm="alluvia"')
                assert json.loads(answer)["error"].startswith("this request needs a token")
        assert exchange(port, post("/v1/events/t", body, "Authorization: Bearer a.b.c"))[0] == 401
        assert exchange(port, post("/v1/webhooks/s", body))[0] == 401  # which its body may prove
        assert exchange(port, post("/nowhere", body))[0] == 404
