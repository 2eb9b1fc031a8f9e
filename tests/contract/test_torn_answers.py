"""Answers that break off, over real connections: none of them is taken for a whole one."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from itertools import repeat
from pathlib import Path

import pytest

from alluvia.clock import ManualClock
from alluvia.errors import AnswerLost, Unavailable
from alluvia.store import PutResult, Store, open_store

HEAD = b"HTTP/1.1 200 OK\r\nETag: x\r\nContent-Length: 900\r\n\r\n"
CHUNKS = b"HTTP/1.1 200 OK\r\nETag: x\r\nTransfer-Encoding: chunked\r\n\r\n"
ANSWERS = {
    "within its status": HEAD[:11],
    "after its status": HEAD[:17],
    "within its fields": HEAD[:26],
    "within its length": HEAD[:-7],
    "before its length": HEAD[:-8],
    "after its head": HEAD,
    "within its body": HEAD + b"<?xml",
    "before its chunks": CHUNKS,
    "within its encoding": CHUNKS[:-6],
    "within a chunk": CHUNKS + b"40\r\n<?xml",
    "refused, within its body": HEAD.replace(b"200 OK", b"503 Slow") + b"<?xml",
    "not found, within a chunk": CHUNKS.replace(b"200 OK", b"404 Not Found") + b"40\r\n<?xml",
}
"""Answers by where they break off."""


ANSWERED = ("after its head", "within its body", "before its chunks", "within a chunk")
"""Where a PUT is answered nevertheless: its answer is the head, and S3's has no body."""


@pytest.fixture(params=ANSWERS)
def where(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def store(where: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    """A store on a server that begins to answer each request and then hangs up, and passes for one of AWS's."""
    monkeypatch.setattr("alluvia.store.s3.bucket.is_aws", lambda _: True)
    answer = ANSWERS[where]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_serve, args=[listening, repeat(answer)], daemon=True)
        thread.start()
        options = {"access_key_id": "k", "secret_access_key": "s", "region": "us-east-1"}
        yield open_store(
            "s3://bucket/lake",
            ManualClock(),
            endpoint_url=f"http://127.0.0.1:{listening.getsockname()[1]}",
            **options,
        )
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def _serve(listening: socket.socket, answers: Iterable[bytes]) -> None:
    for answer in answers:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with connection, connection.makefile("rb") as request:
            head = b"".join(iter(request.readline, b"\r\n")).lower()
            if b"100-continue" in head:
                connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            _, _, length = head.partition(b"content-length: ")
            request.read(int(length.split(b"\r\n")[0] or 0))
            connection.sendall(answer)


def test_half_an_answer_is_a_reason_to_try_again(store: Store, where: str, tmp_path: Path) -> None:
    calls: list[Callable[[], object]] = [
        lambda: store.get("k"),
        lambda: store.get_file("k", tmp_path / "file"),
        lambda: list(store.list("")),
        lambda: list(store.list_folders("")),
        lambda: store.delete(["k"]),
    ]
    if where not in ANSWERED:
        calls.append(lambda: store.put("k", b"data"))
    for call in calls:
        with pytest.raises(Unavailable, match="S3"):
            call()
    if where in ANSWERED:
        assert store.put_if_absent("k", b"data") is PutResult.CREATED
        return
    with pytest.raises(AnswerLost, match="the conditional write of k"):
        store.put_if_absent("k", b"data")


@pytest.mark.parametrize("torn", [1, 2])
def test_a_body_that_breaks_off_is_read_again(torn: int, tmp_path: Path) -> None:
    head = b"HTTP/1.1 200 OK\r\nETag: x\r\nContent-Length: 4\r\n\r\n"
    answers = [*[head + b"da"] * torn, head + b"data"]
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_serve, args=[listening, answers * 2], daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        store = open_store("s3://b/lake", ManualClock(), endpoint_url=url, access_key_id="k", secret_access_key="s")
        assert store.get("k") == b"data"
        store.get_file("k", tmp_path / "file")
        assert (tmp_path / "file").read_bytes() == b"data"
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def test_an_upload_that_is_refused_midway_is_tried_again(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(5_000_000))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=_refuse_early, args=[listening], daemon=True)
        thread.start()
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        store = open_store("s3://b/lake", ManualClock(), endpoint_url=url, access_key_id="k", secret_access_key="s")
        with pytest.raises(Unavailable, match="S3"):
            store.put_new_file("k", tmp_path / "file")
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(10)


def _refuse_early(listening: socket.socket) -> None:
    kept = []
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        kept.append(connection)
        connection.recv(1 << 16)
        connection.sendall(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\n\r\n")
