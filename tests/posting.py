"""A client with many connections, each of which posts one event after another: cheap enough to load a server."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import Counter
from functools import partial
from typing import Any


class _Connection(asyncio.Protocol):
    """Posts an event, waits for the answer and a pause, posts the next, until enough are sent or the time is over."""

    def __init__(
        self, number: int, port: int, posts: int, end: float, pause_seconds: float, over: asyncio.Future[None]
    ) -> None:
        self._head = f"POST /v1/events/app HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        self._number, self._posts, self._end, self._pause_seconds, self._over = number, posts, end, pause_seconds, over
        self.cut_off = True
        self._sent, self._began, self._buffer, self._id = 0, 0.0, b"", ""
        self.taken_ms: list[float] = []
        self.answers: Counter[int] = Counter()
        self.acknowledged: list[str] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._post()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found or len(body) < int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0]):
            return
        self._buffer = b""
        self.taken_ms.append((time.monotonic() - self._began) * 1000)
        status = int(head.split(b" ", 2)[1])
        self.answers[status] += 1
        if status == 200:
            self.acknowledged.append(self._id)
        if self._sent >= self._posts or time.monotonic() >= self._end:
            self.cut_off = False
            self._transport.close()
        elif self._pause_seconds:
            asyncio.get_running_loop().call_later(self._pause_seconds, self._post)
        else:
            self._post()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._over.done():
            self._over.set_result(None)

    def _post(self) -> None:
        if self._over.done():
            return
        self._sent += 1
        self._id = f"{self._number}-{self._sent}"
        body = json.dumps({"event_id": self._id, "event": "viewed", "user": "u17", "path": "/pricing", "ms": 35})
        self._began = time.monotonic()
        self._transport.write(f"{self._head}Content-Length: {len(body)}\r\n\r\n{body}".encode())


async def post(
    port: int, connections: int, posts: int, seconds: float = 60.0, pause_seconds: float = 0.0
) -> dict[str, Any]:
    """Post to the table `app`, so many events on each connection or so long; return what was answered, and how fast.

    pause_seconds: between an answer and the next post of a connection.
    """
    loop = asyncio.get_running_loop()
    began = time.monotonic()
    clients, ends = [], []
    for number in range(connections):
        over = loop.create_future()
        client = _Connection(number, port, posts, began + seconds, pause_seconds, over)
        await loop.create_connection(partial(_itself, client), "127.0.0.1", port)
        clients.append(client)
        ends.append(over)
    await asyncio.gather(*ends)
    took = time.monotonic() - began
    taken = sorted(ms for client in clients for ms in client.taken_ms)
    answers: Counter[int] = sum((client.answers for client in clients), Counter())
    return {
        "a_second": len(taken) / took,
        "p50_ms": taken[len(taken) // 2],
        "p99_ms": taken[len(taken) * 99 // 100],
        "answers": dict(answers),
        "cut_off": sum(client.cut_off for client in clients),
        "acknowledged": [each for client in clients for each in client.acknowledged],
    }


def _itself(client: _Connection) -> _Connection:
    return client


if __name__ == "__main__":
    port, connections, seconds = sys.argv[1:]
    sys.stdout.write(json.dumps(asyncio.run(post(int(port), int(connections), sys.maxsize, float(seconds)))))
