"""Servers that answer as Alluvia's do not, or break off: what stands in front of them, or takes their place."""

from __future__ import annotations

import hmac
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import ibis
import pyarrow as pa
import pytest
from pyarrow import parquet

from alluvia.client import uploading
from alluvia.client.requests import signature
from alluvia.errors import AlluviaError, CommitUnknown, Conflict, Forbidden, Invalid, Unavailable, VersionExpired

Answer = tuple[int, dict[str, str], bytes]
TOKEN = "a.secret.token"


@dataclass
class Stub:
    """A server with answers in turn, the last of which it repeats. `asked` has the requests, with their headers."""

    answers: list[Answer]
    asked: list[tuple[str, str, dict[str, str], bytes]] = field(default_factory=list)
    url: str = ""

    def connect(self, **options: Any) -> Any:
        return ibis.alluvia.connect(self.url, **{"token": TOKEN, **options})

    @property
    def requests(self) -> list[str]:
        return [f"{method} {path}" for method, path, _, _ in self.asked]


@pytest.fixture
def stub() -> Iterator[Callable[..., Stub]]:
    servers: list[ThreadingHTTPServer] = []

    def start(*answers: Answer) -> Stub:
        made = Stub([*answers])

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle_any(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                made.asked.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                status, headers, answer = made.answers.pop(0) if len(made.answers) > 1 else made.answers[0]
                self.send_response(status)
                for name, value in {"Content-Length": str(len(answer)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(answer)
                self.close_connection = "Content-Length" in headers

            do_GET = do_POST = do_PUT = handle_any  # noqa: N815

            def log_message(self, *_: Any) -> None: ...

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        servers.append(server)
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        made.url = f"http://127.0.0.1:{server.server_port}"
        return made

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def arrow(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return sink.getvalue().to_pybytes()


def told(status: int, body: bytes, **headers: str) -> Answer:
    return status, headers, body


ROWS = pa.table({"n": range(100_000)})


@pytest.mark.parametrize(
    ("status", "body", "error", "says"),
    [
        (400, b'{"error": "wrong, so"}', Invalid, "^wrong, so$"),
        (401, b'{"message": "Unauthorized"}', Forbidden, "answered with status 401: Unauthorized"),
        (403, b'{"message": "Forbidden"}', Forbidden, "Forbidden"),
        (404, b"<html>nothing here</html>", AlluviaError, "no answer of Alluvia, but '<html>nothing here</html>'"),
        (409, b'{"error": "lost"}', Conflict, "lost"),
        (410, b'{"error": "gone"}', VersionExpired, "gone"),
        (413, b'{"error": "large"}', Invalid, "large"),
        (418, b"", Invalid, "status 418"),
        (429, b'{"error": "often"}', Unavailable, "often"),
        (500, b'{"error": "look"}', CommitUnknown, "look"),
        (504, b'{"message": "Endpoint request timed out"}', Unavailable, "timed out"),
        (200, b"<html>please sign in</html>", Unavailable, "is this a server of Alluvia?"),
    ],
)
def test_what_a_server_says_is_an_error(
    stub: Callable[..., Stub], status: int, body: bytes, error: type[Exception], says: str
) -> None:
    server = stub(told(status, body))
    con = server.connect()
    for does in (lambda: con.sql("SELECT 1"), lambda: con.raw_sql("DROP TABLE t"), con.con.tables):
        with pytest.raises(error, match=says.replace("?", r"\?")) as raised:
            does()
        assert TOKEN not in str(raised.value)
    assert server.requests == ["POST /q", "POST /sql", "GET /v1/tables"]


def test_a_read_is_sent_again_and_a_write_is_not(stub: Callable[..., Stub]) -> None:
    busy, rows = told(503, b'{"error": "busy"}', **{"Retry-After": "0"}), told(200, arrow(ROWS))
    server = stub(busy, busy, rows)
    assert server.connect().sql("FROM t").columns == ("n",)
    assert len(server.asked) == 3
    server = stub(busy, rows)
    with pytest.raises(Unavailable, match="busy"):
        server.connect().raw_sql("DELETE FROM t")
    assert len(server.asked) == 1


def test_an_answer_that_breaks_off_is_no_answer(stub: Callable[..., Stub]) -> None:
    whole = arrow(ROWS)
    for kept in (len(whole) - 8, len(whole) // 2, 100):  # before the mark of the end, in the rows, in the columns
        server = stub(told(200, whole[:kept], **{"Content-Length": str(len(whole))}))
        con = server.connect()
        expr = con.sql("FROM t", schema={"n": "int64"})
        with pytest.raises(Unavailable):
            expr.to_pyarrow()


SESSION = "a.secret.session.token"


def signed(method: str, path: str, headers: dict[str, str], body: bytes, region: str) -> str:
    """Return the header that AWS documents for a request: Signature Version 4, of three headers."""
    moment = headers["x-amz-date"]
    scope = f"{moment[:8]}/{region}/execute-api/aws4_request"
    names = ("host", "x-amz-date", "x-amz-security-token")
    place, _, query = path.partition("?")
    lines = [method, place, "&".join(sorted(query.split("&"))), *(f"{name}:{headers[name]}" for name in names)]
    canonical = "\n".join([*lines, "", ";".join(names), sha256(body).hexdigest()])
    to_sign = "\n".join(["AWS4-HMAC-SHA256", moment, scope, sha256(canonical.encode()).hexdigest()])
    key = b"AWS4secret"
    for part in (*scope.split("/"), to_sign):
        key = hmac.digest(key, part.encode(), "sha256")
    return f"AWS4-HMAC-SHA256 Credential=AKID/{scope}, SignedHeaders={';'.join(names)}, Signature={key.hex()}"


def test_requests_are_signed_with_aws_credentials(stub: Callable[..., Stub], monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"ACCESS_KEY_ID": "AKID", "SECRET_ACCESS_KEY": "secret", "SESSION_TOKEN": SESSION}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    elsewhere = stub(told(200, arrow(ROWS.slice(0, 0))))
    linked = told(303, b"{}", Location=f"{elsewhere.url}/object")
    server = stub(told(200, b'{"tables": [{"name": "t"}]}'), linked, linked, told(200, b"{}"))
    con = ibis.alluvia.connect(server.url, auth="iam", region="eu-south-2")
    assert con.con.tables() == ["t"]
    assert con.sql("FROM t", schema={"n": "int64"}).to_pyarrow().num_rows == 0
    con.insert("t", [{"n": 1}])
    assert [method for method, *_ in server.asked] == ["GET", "POST", "POST", "POST"]
    for method, path, headers, body in server.asked:
        assert headers["authorization"] == signed(method, path, headers, body, "eu-south-2")
    for _, _, headers, _ in elsewhere.asked:
        assert SESSION not in str(headers)
        assert "authorization" not in headers


@pytest.mark.parametrize(
    ("host", "scope"),
    [
        ("a1.execute-api.eu-west-3.amazonaws.com", "eu-west-3/execute-api"),
        ("a1.lambda-url.ap-east-1.on.aws", "ap-east-1/lambda"),
        ("lake.example.com", "us-east-1/execute-api"),
        ("a1.execute-api.eu-west-3.amazonaws.com.example.com", "us-east-1/execute-api"),
    ],
)
def test_hosts_of_aws_name_their_region(monkeypatch: pytest.MonkeyPatch, host: str, scope: str) -> None:
    for name, value in {"ACCESS_KEY_ID": "AKID", "SECRET_ACCESS_KEY": "secret", "DEFAULT_REGION": "us-east-1"}.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
    headers = signature(f"https://{host}", None)("GET", f"https://{host}/q", None)
    assert f"/{scope}/aws4_request, SignedHeaders=host;x-amz-date" in headers["Authorization"]


def test_a_token_goes_to_its_server_alone(stub: Callable[..., Stub]) -> None:
    elsewhere = stub(told(200, arrow(ROWS)))
    server = stub(told(303, b"{}", Location=f"{elsewhere.url}/object?X-Amz-Signature=1"))
    assert server.connect().sql("FROM t", schema={"n": "int64"}).to_pyarrow().num_rows == len(ROWS)
    assert server.asked[0][2]["authorization"] == f"Bearer {TOKEN}"
    ((method, path, headers, _),) = elsewhere.asked
    assert (method, path, "authorization" in headers) == ("GET", "/object?X-Amz-Signature=1", False)


def test_parts_go_where_the_server_says_and_it_is_asked_until_it_has_stored_them(
    stub: Callable[..., Stub], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploading, "WHOLE_BYTES_MAX", 1000)
    monkeypatch.setattr(uploading, "WAIT_SECONDS", 0.0)
    bucket = stub(told(200, b""))
    begun = {
        "parts": [{"url": f"{bucket.url}/1?Signature=s"}, {"url": "/v1/upload/t/7/2?signed"}],
        "part_bytes": 200_000,
        "complete": "/v1/upload/t/7/complete",
    }
    server = stub(
        told(200, arrow(pa.table({"n": pa.array([], pa.int64())}))),
        told(201, json.dumps(begun).encode()),
        told(200, b"{}"),
        told(504, b'{"message": "Endpoint request timed out"}'),
        told(202, b'{"state": "running"}'),
        told(200, b'{"table": "t", "rows": 100000}'),
    )
    server.connect().insert("t", ROWS)
    complete = "POST /v1/upload/t/7/complete"
    begin, part = server.requests[1], server.requests[2]
    assert begin.startswith("POST /v1/upload/t?format=parquet&create=false&bytes=")
    assert [part, *server.requests[3:]] == ["PUT /v1/upload/t/7/2?signed", complete, complete, complete]
    ((method, path, headers, first),) = bucket.asked
    assert (method, path, "authorization" in headers) == ("PUT", "/1?Signature=s", False)
    rest = server.asked[2][3]
    assert len(first) == 200_000
    assert len(rest) > 0
    assert parquet.read_table(pa.BufferReader(first + rest)).equals(ROWS)


def test_events_that_are_rejected_are_told(stub: Callable[..., Stub]) -> None:
    columns = told(200, arrow(pa.table({"n": pa.array([], pa.int64())})))
    server = stub(columns, told(200, b'{"accepted": 1, "rejected": 2}'))
    with pytest.raises(
        Invalid, match=r"2 of the rows were rejected, and the others stored.*t._rejects has the reasons"
    ):
        server.connect().insert("t", [{"n": 1}])


def test_a_server_that_is_gone_or_slow(stub: Callable[..., Stub]) -> None:
    @contextmanager
    def unavailable() -> Iterator[None]:
        with pytest.raises(Unavailable, match=r"^http://127\.0\.0\.1:|^the answer") as error:
            yield
        assert TOKEN not in str(error.value)

    with unavailable():
        ibis.alluvia.connect("http://127.0.0.1:9", token=TOKEN).list_tables()
    silent = stub(told(200, b"", **{"Content-Length": "10"}))
    with unavailable():
        silent.connect(timeout_seconds="0.2").list_tables()
