"""The two ways to the ingest function: `alluvia serve`, and the handler behind what API Gateway makes of HTTP."""

from __future__ import annotations

import base64
import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import pytest
import waitress

import alluvia
from alluvia.clock import SystemClock
from alluvia.server.gateway import to_event
from alluvia.server.serve import in_background
from functions.ingest.handler import handler


@dataclass(frozen=True)
class Served:
    """A lake, and the address that takes events for it."""

    lake: alluvia.Lake
    url: str
    way: str

    def rows(self, table: str) -> list[dict[str, Any]]:
        """Return the rows of a table in the order of their ids, with properties as JSON."""
        found = self.lake.table(table).scan().read_all().to_pylist()
        for row in found:
            row["properties"] = json.loads(row["properties"]) if row["properties"] else {}
        return sorted(found, key=lambda row: str(row["event_id"]))


Application = Callable[[dict[str, Any], Callable[..., Any]], list[bytes]]


def as_function(environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
    """Call the function's handler with a request, as API Gateway does."""
    answer = handler(to_event(environ, SystemClock()), None)
    body = answer["body"]
    data = base64.b64decode(body) if answer["isBase64Encoded"] else body.encode()
    start_response(f"{answer['statusCode']} Status", [*answer["headers"].items(), ("Content-Length", str(len(data)))])
    return [data]


class LosesTheFirst:
    """Takes each request, but answers the first one as if nothing had become of it."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> list[bytes]:
        self.bodies.append(environ["wsgi.input"].read())
        environ["wsgi.input"] = BytesIO(self.bodies[-1])
        if len(self.bodies) > 1:
            return as_function(environ, start_response)
        as_function(environ, lambda *_: None)
        start_response("503 Lost", [("Content-Length", "0")])
        return [b""]


@contextlib.contextmanager
def behind_a_gateway(application: Application = as_function) -> Iterator[int]:
    server = waitress.create_server(application, host="127.0.0.1", port=0, threads=2)

    def serve() -> None:
        with contextlib.suppress(OSError):  # closing the server's sockets is what ends its loop
            server.run()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield int(server.effective_port)
    finally:
        server.task_dispatcher.shutdown()
        server.close()
        thread.join(timeout=5)


@pytest.fixture(scope="package")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[alluvia.Lake]:
    folder = tmp_path_factory.mktemp("lake")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALLUVIA_LAKE", str(folder))
        patch.setenv("ALLUVIA_AUTH", "open")
        patch.setenv("ALLUVIA_CREATE_TABLES", "true")
        yield alluvia.connect(folder)


@pytest.fixture(scope="package", params=["serve", "function"])
def served(request: pytest.FixtureRequest, lake: alluvia.Lake) -> Iterator[Served]:
    """Serve one lake for all clients: a server takes a second to end."""
    with in_background(lake) if request.param == "serve" else behind_a_gateway() as port:
        yield Served(lake, f"http://127.0.0.1:{port}", request.param)
