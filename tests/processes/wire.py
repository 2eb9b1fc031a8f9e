"""A proxy before an S3 server that does what networks do: it drops, delays and cuts requests and answers.

It reads whole requests, so that each fate is known to come before the effect or after it. The worst is `late`: the
client's connection is cut at once, and the request takes effect a while afterwards, when the client may long have sent
it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

FATES = {
    "refused": 4,
    "cut before": 8,
    "cut within": 6,
    "lost": 12,
    "torn": 8,
    "late": 10,
    "gateway": 6,
    "slow request": 20,
    "slow answer": 20,
}
"""How many of a thousand requests each fate befalls (`refused`: connections)."""

DELAY_SECONDS_MAX = 0.5
LATE_SECONDS_MAX = 2.0
_HEAD_BYTES_MAX = 1 << 16
_GATEWAY = b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Cut(Exception):
    """The client's connection ends here."""


ENDS = (Cut, ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError)
"""How serving a client ends as it should: it was cut off, went away, or the proxy stops."""


@dataclass
class Wire:
    """A running proxy. `fates` counts what befell requests; without `faulty` it lets everything pass."""

    server_port: int
    random: random.Random
    faulty: bool = True
    port: int = 0
    fates: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)
    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    _late: set[asyncio.Task[None]] = field(default_factory=set)
    _serving: set[asyncio.Task[None] | None] = field(default_factory=set)
    """Tasks at work: the loop itself would forget one whose client has hung up while it waits for the server."""

    @property
    def cut(self) -> int:
        """Return how many connections were cut."""
        return sum(self.fates[fate] for fate in ("refused", "cut before", "cut within", "lost", "torn", "late"))

    def _fate(self, among: tuple[str, ...]) -> str:
        if not self.faulty:
            return "passed"
        weights = [FATES[fate] for fate in among]
        return self.random.choices([*among, "passed"], [*weights, 1000 - sum(weights)])[0]

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Relay one client's requests, one after another."""
        upstream: Stream | None = None
        task = asyncio.current_task()
        self._serving.add(task)
        try:
            if self._fate(("refused",)) == "refused":
                self.fates["refused"] += 1
                return
            while (request := await self._request(reader, writer)) is not None:
                upstream = upstream or await asyncio.open_connection("127.0.0.1", self.server_port)
                keep = await self._relay(request, upstream, writer)
                if not keep:
                    upstream[1].close()
                    upstream = None
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the driver reports it
            if not isinstance(error, ENDS):  # a proxy that errs proves nothing
                self.broken.append(f"{type(error).__name__}: {error}")
        finally:
            self._serving.discard(task)
            for each in (writer, None if upstream is None else upstream[1]):
                if each is not None:
                    each.transport.abort()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes | None:
        """Read one whole request; None at the end. The server need not be asked whether it wants the body."""
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except asyncio.IncompleteReadError:
            return None
        fields = _fields(head)
        if "transfer-encoding" in fields:
            msg = "a request in chunks"
            raise ValueError(msg)
        if fields.get("expect", "").lower() == "100-continue":
            writer.write(_CONTINUE)
            head = b"\r\n".join(line for line in head.split(b"\r\n") if not line.lower().startswith(b"expect:"))
        return head + await reader.readexactly(int(fields.get("content-length", "0")))

    async def _relay(self, request: bytes, upstream: Stream, client: asyncio.StreamWriter) -> bool:
        """Have one request answered, or not. Returns whether the server keeps the connection."""
        fate = self._fate(tuple(each for each in FATES if each != "refused"))
        self.fates[fate] += 1
        wait = self.random.random()
        if fate == "cut before":
            raise Cut
        if fate == "cut within":
            cut = self.random.randrange(1, len(request))
            # moto takes a head that breaks off for a whole one, and makes an empty object; S3 would miss its signature.
            if cut > request.index(b"\r\n\r\n") + 3:
                upstream[1].write(request[:cut])
                await upstream[1].drain()
            raise Cut
        if fate == "late":
            task = asyncio.create_task(self._send_late(request, wait * LATE_SECONDS_MAX))
            self._late.add(task)
            task.add_done_callback(self._late.discard)
            raise Cut
        if fate == "slow request":
            await asyncio.sleep(wait * DELAY_SECONDS_MAX)
        upstream[1].write(request)
        answer = await _answer(upstream[0], request.startswith(b"HEAD "))
        if fate == "lost":
            raise Cut
        if fate == "torn":
            client.write(answer[: self.random.randrange(1, len(answer))])
            await client.drain()
            client.close()
            await client.wait_closed()
            raise Cut
        if fate == "gateway":
            client.write(_GATEWAY)
            await client.drain()
            client.close()
            raise Cut
        if fate == "slow answer":
            await asyncio.sleep(wait * DELAY_SECONDS_MAX)
        client.write(answer)
        await client.drain()
        return _fields(answer).get("connection", "").lower() != "close"

    async def _send_late(self, request: bytes, seconds: float) -> None:
        """Deliver a request whose sender has gone. The server may be gone too by then."""
        await asyncio.sleep(seconds)
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.server_port)
            writer.write(request)
            await _answer(reader, request.startswith(b"HEAD "))
            writer.close()

    def calm(self) -> None:
        """Let everything pass from now on, and wait until every late request has taken effect."""
        self.faulty = False
        asyncio.run_coroutine_threadsafe(self._settle(), self.loop).result()

    async def _settle(self) -> None:
        while self._late:
            await asyncio.wait(self._late)


def _fields(head: bytes) -> dict[str, str]:
    lines = head.split(b"\r\n\r\n", 1)[0].decode("latin-1").split("\r\n")[1:]
    return {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}


async def _answer(reader: asyncio.StreamReader, head_only: bool) -> bytes:
    """Read one whole answer, passing over interim ones."""
    head = await reader.readuntil(b"\r\n\r\n")
    status = int(head.split(b" ", 2)[1])
    if status == 100:
        return await _answer(reader, head_only)
    fields = _fields(head)
    if head_only or status in (204, 304):
        return head
    if fields.get("transfer-encoding", "").lower() == "chunked":
        return head + await _chunks(reader)
    if "content-length" in fields:
        return head + await reader.readexactly(int(fields["content-length"]))
    return head + await reader.read()


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    found = b""
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        found += line + await reader.readexactly(size + 2)
        if not size:
            return found


@contextmanager
def running_wire(server_port: int, seed: int) -> Iterator[Wire]:
    """Start a proxy on a free port of the loopback interface, in a thread, and stop it afterwards."""
    wire = Wire(server_port, random.Random(seed))
    started = threading.Event()
    stop = asyncio.Event()

    async def run() -> None:
        server = await asyncio.start_server(wire.serve, "127.0.0.1", 0, limit=_HEAD_BYTES_MAX)
        wire.port = server.sockets[0].getsockname()[1]
        started.set()
        await stop.wait()
        server.close()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            await asyncio.sleep(0.1)  # a connection that was accepted just before begins its task now

    thread = threading.Thread(target=wire.loop.run_until_complete, args=[run()], daemon=True)
    thread.start()
    try:
        assert started.wait(30), "the proxy did not start"
        yield wire
    finally:
        wire.loop.call_soon_threadsafe(stop.set)
        thread.join(30)
