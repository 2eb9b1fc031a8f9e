"""What S3 refuses of a bulk delete, object by object."""

from __future__ import annotations

import re
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import pytest

from alluvia.clock import ManualClock
from alluvia.errors import Invalid, NotDeleted
from alluvia.store import open_store

REFUSED = re.compile(r"/locked")


class Server(BaseHTTPRequestHandler):
    """Answers bulk deletes: keys that begin with `locked` are refused."""

    requests: list[list[str]]

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        keys = re.findall("<Key>(.*?)</Key>", body)
        self.requests.append(keys)
        error = "<Error><Key>{}</Key><Code>AccessDenied</Code><Message>x may not: s3:Delete</Message></Error>"
        done = "<Deleted><Key>{}</Key></Deleted>"
        answers = "".join((error if REFUSED.search(key) else done).format(key) for key in keys)
        answer = f"<?xml version='1.0'?><DeleteResult>{answers}</DeleteResult>".encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    Server.requests = []
    server = HTTPServer(("127.0.0.1", 0), Server)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    thread.join()
    server.server_close()


def test_refused_objects_are_named_and_all_others_deleted(url: str) -> None:
    store = open_store("s3://b/lake", ManualClock(), endpoint_url=url, region="us-east-1", access_key_id="k",
                       secret_access_key="s")  # fmt: skip
    with pytest.raises(NotDeleted, match="2 objects were not deleted, such as locked 1: AccessDenied") as caught:
        store.delete(["a", "locked 1", "b", "locked/2"])
    assert caught.value.keys == ("locked 1", "locked/2")
    assert Server.requests[-1] == ["lake/a", "lake/b"]
    store.delete(["a", "b"])


def test_where_everything_is_refused_that_is_no_matter_of_one_object(url: str) -> None:
    store = open_store("s3://b/lake", ManualClock(), endpoint_url=url, region="us-east-1", access_key_id="k",
                       secret_access_key="s")  # fmt: skip
    with pytest.raises(Invalid, match="AccessDenied"):
        store.delete([f"locked{number}" for number in range(150)])
    assert len(Server.requests) == 101
