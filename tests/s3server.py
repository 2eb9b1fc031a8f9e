"""An S3 server for tests: moto behind one lock, so that its conditional writes are exact.

moto checks a condition and writes in two steps, so that two of many racing threads can both win; one lock around every
request that writes makes the pair one step. It knows no condition of copies, which is checked in front of it. Run as
a process of its own (`python -m tests.s3server`), it prints its port, counts requests, and injects faults on demand.
`GET /_test/requests` returns counts and resets them; `POST /_test/faults` takes `[{"method", "match", "fault",
"times"}]`, `fault` one of `status:NNN` (answered before the effect), `lost` (the effect happens, the connection
breaks), `lost-before` (it breaks before the effect), `delay:N` (answered after N seconds more), `unconditional:HEADER`
(the request loses a header of a condition, as on a store that does not know it). `POST /_test/policies` takes
`[bucket, ARN, statements, roles by access key]`, by which requests of that bucket are then judged
(`tests/infra/judging.py`); `GET /_test/denials` returns what was denied, and forgets it.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import boto3
from botocore.client import Config

from tests.infra.judging import Policies

REGION = "us-east-1"
CREDENTIALS: dict[str, Any] = {"aws_access_key_id": "test-key", "aws_secret_access_key": "test-secret"}


class S3Endpoint:
    """Where an S3 server listens, and how tests speak to it."""

    def __init__(self, endpoint_url: str) -> None:
        self.endpoint_url = endpoint_url
        self.client = boto3.client(
            "s3",
            endpoint_url=endpoint_url,
            region_name=REGION,
            config=Config(s3={"addressing_style": "path"}, retries={"total_max_attempts": 1}, max_pool_connections=32),
            **CREDENTIALS,
        )

    @property
    def options(self) -> dict[str, Any]:
        """Return what `alluvia.connect` needs beside the URI."""
        return {
            "endpoint_url": self.endpoint_url,
            "region": REGION,
            "access_key_id": CREDENTIALS["aws_access_key_id"],
            "secret_access_key": CREDENTIALS["aws_secret_access_key"],
        }

    def new_bucket(self) -> str:
        """Create a bucket and return its name."""
        name = f"test-{uuid.uuid4().hex[:16]}"
        self.client.create_bucket(Bucket=name)
        return name


class S3Server(S3Endpoint):
    """The running server of this module; use `with running_server() as server`."""

    def requests(self) -> Counter[str]:
        """Return the requests since the last call, by method (LIST for a listing), and start from zero."""
        return Counter(self._call("GET", "requests"))

    def inject(self, *faults: dict[str, Any]) -> None:
        """Have the next requests that match fail."""
        self._call("POST", "faults", json.dumps(faults).encode())

    def judge(
        self, bucket: str, arn: str, statements: Sequence[Any], roles: Mapping[str, tuple[str, list[Any]]]
    ) -> None:
        """Have a bucket answer 403 to what policies deny; `roles` are ARNs and statements by access key."""
        self._call("POST", "policies", json.dumps([bucket, arn, statements, roles]).encode())

    def denials(self) -> list[str]:
        """Return what was denied since the last call."""
        return [*self._call("GET", "denials")]

    def _call(self, method: str, name: str, body: bytes | None = None) -> Any:
        from http.client import HTTPConnection

        connection = HTTPConnection(self.endpoint_url.removeprefix("http://"), timeout=30)
        try:
            connection.request(method, f"/_test/{name}", body)
            return json.loads(connection.getresponse().read())
        finally:
            connection.close()


@contextmanager
def running_server() -> Iterator[S3Server]:
    """Start a server on a free port of the loopback interface, and stop it afterwards."""
    root = Path(__file__).parent.parent
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.s3server"],
        cwd=root,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(root)},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline().decode()
        assert line.startswith("port "), f"the S3 server did not start: {line!r}"
        yield S3Server(f"http://127.0.0.1:{line.split()[1]}")
    finally:
        process.kill()
        process.wait()


Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class _Exact:
    """The WSGI application around moto's: one lock for writes, counts, faults."""

    def __init__(self, inner: Application) -> None:
        self._inner = inner
        self._lock = threading.Lock()
        self._state = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._faults: list[dict[str, Any]] = []
        self._policies: dict[str, Policies] = {}
        self._denied: list[str] = []

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        path, method = environ["PATH_INFO"], environ["REQUEST_METHOD"]
        if path.startswith("/_test/"):
            return self._control(path.removeprefix("/_test/"), environ, start_response)
        kind = "LIST" if method == "GET" and "list-type" in environ.get("QUERY_STRING", "") else method
        with self._state:
            self._counts[kind] += 1
            fault = self._fault(method, path)
        if self._denies(environ):
            return _refuse(403, environ, start_response)
        if fault.startswith("status:"):
            return _refuse(int(fault[7:]), environ, start_response)
        if fault.startswith("delay:"):
            time.sleep(float(fault[6:]))
        if fault == "lost-before":
            _break(environ)
        if fault.startswith("unconditional:"):
            environ.pop(f"HTTP_{fault[14:].upper().replace('-', '_')}", None)
        if method in ("PUT", "POST", "DELETE"):
            with self._lock:
                if self._is_copy_to_a_taken_key(environ):
                    return _refuse(412, environ, start_response)
                answer = list(self._inner(environ, start_response))
        else:
            answer = list(self._inner(environ, start_response))
        if fault == "lost":
            _break(environ)
        return answer

    def _denies(self, environ: dict[str, Any]) -> bool:
        bucket = environ["PATH_INFO"].split("/")[1]
        if bucket not in self._policies or "/s3/aws4_request" not in unquote(
            environ.get("HTTP_AUTHORIZATION", "") + environ.get("QUERY_STRING", "")
        ):
            return False
        body = environ["wsgi.input"].getvalue()
        denied = self._policies[bucket].denials(bucket, environ, body)
        with self._state:
            self._denied += denied
        return bool(denied)

    def _is_copy_to_a_taken_key(self, environ: dict[str, Any]) -> bool:
        if "HTTP_X_AMZ_COPY_SOURCE" not in environ or environ.get("HTTP_IF_NONE_MATCH") != "*":
            return False
        kept = {name: value for name, value in environ.items() if not name.startswith(("HTTP_X_AMZ_", "HTTP_IF_"))}
        found: list[str] = []
        head = kept | {"REQUEST_METHOD": "HEAD", "CONTENT_LENGTH": "0", "wsgi.input": BytesIO()}
        list(self._inner(head, lambda status, *_: found.append(status)))
        return found[-1].startswith("200")

    def _fault(self, method: str, path: str) -> str:
        for fault in self._faults:
            if fault["method"] == method and re.search(fault["match"], path) and fault.get("times", 1) > 0:
                fault["times"] = fault.get("times", 1) - 1
                return str(fault["fault"])
        return ""

    def _control(self, name: str, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        with self._state:
            if name == "requests":
                answer: Any = dict(self._counts)
                self._counts.clear()
            elif name == "denials":
                answer = self._denied
                self._denied = []
            else:
                given = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
                answer = True
                if name == "policies":
                    bucket, *policies = given
                    self._policies[bucket] = Policies(*policies)
                else:
                    self._faults = given
        body = json.dumps(answer).encode()
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]


def _refuse(status: int, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
    codes = {
        409: "ConditionalRequestConflict",
        503: "SlowDown",
        403: "AccessDenied",
        412: "PreconditionFailed",
        501: "NotImplemented",
    }
    code = codes.get(status, "InternalError")
    body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
    start_response(f"{status} Injected", [("Content-Type", "application/xml"), ("Content-Length", str(len(body)))])
    return [body]


def _break(environ: dict[str, Any]) -> None:
    """Cut the connection without an answer."""
    environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
    raise ConnectionAbortedError


def main() -> None:
    import logging

    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import WSGIRequestHandler, make_server

    class Handler(WSGIRequestHandler):
        """Keeps connections, as S3 does: werkzeug's own ends each, and waits 10 ms for more to read before."""

        protocol_version = "HTTP/1.1"
        wbufsize = -1
        disable_nagle_algorithm = True

        def run_wsgi(self) -> None:
            if self.headers.get("Expect", "").lower() == "100-continue":
                self.wfile.write(b"HTTP/1.1 100 Continue\r\n\r\n")
                self.wfile.flush()
            environ = self.make_environ()
            chunked = environ.get("wsgi.input_terminated")
            size = -1 if chunked else int(environ.get("CONTENT_LENGTH") or 0)
            environ["wsgi.input"] = BytesIO(environ["wsgi.input"].read(size))
            begun: list[tuple[str, list[tuple[str, str]]]] = []

            def start_response(status: str, headers: list[tuple[str, str]], _: Any = None) -> Callable[[bytes], object]:
                begun.append((status, headers))
                return self.wfile.write

            try:
                body = b"".join(self.server.app(environ, start_response))
            except ConnectionAbortedError:
                self.close_connection = True
                return
            status, headers = begun[-1]
            code, _, reason = status.partition(" ")
            self.send_response(int(code), reason)
            for name, value in headers:
                self.send_header(name, value)
            bodiless = self.command == "HEAD" or code in ("204", "304")
            if not bodiless and not any(name.lower() == "content-length" for name, _ in headers):
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if not bodiless:
                self.wfile.write(body)

        def log_request(self, *_: object) -> None:
            pass

    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    os.environ.setdefault("MOTO_S3_CUSTOM_ENDPOINTS", "")
    # For each request, moto's dispatcher would look through its directory of services twice.
    s3, others = create_backend_app("s3"), DomainDispatcherApplication(create_backend_app)

    def by_service(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        signed_for = re.search("/([a-z0-9-]+)/aws4_request", environ.get("HTTP_AUTHORIZATION", ""))
        answer: Iterable[bytes] = (s3 if signed_for is None or signed_for[1] == "s3" else others)(
            environ, start_response
        )
        return answer

    application = _Exact(by_service)
    server = make_server("127.0.0.1", 0, application, threaded=True, request_handler=Handler)
    sys.stdout.write(f"port {server.server_port}\n")
    sys.stdout.flush()
    server.serve_forever()


if __name__ == "__main__":
    main()
