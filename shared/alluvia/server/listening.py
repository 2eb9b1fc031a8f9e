"""The HTTP server: waitress, strict about its input, with every error in JSON."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, Protocol

import orjson
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.server import TcpWSGIServer
from waitress.task import ErrorTask, WSGITask
from waitress.utilities import BadRequest, Error

from alluvia.errors import Invalid
from alluvia.server.watching import SocketWatch
from alluvia.serverless.http import CHALLENGE, NOSNIFF

_LOOK_SECONDS = 0.05


class Drainable(Protocol):
    """What is asked to end."""

    @property
    def is_idle(self) -> bool:
        """Whether nothing is being answered."""


def drain_at_sigterm(server: Drainable, begin: Callable[[], object], seconds: float) -> None:
    """Have the first SIGTERM call `begin`, and end the process once the server is idle, or after `seconds`.

    A second SIGTERM ends it at once. To be called in the main thread, which must be the one that serves.
    """
    begun = threading.Event()

    def end(_number: int, _frame: FrameType | None) -> None:
        if begun.is_set():
            sys.exit()
        begun.set()
        begin()
        threading.Thread(target=_end_when_idle, args=[server, seconds], name="drain", daemon=True).start()

    signal.signal(signal.SIGTERM, end)


def _end_when_idle(server: Drainable, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until and not server.is_idle:
        time.sleep(_LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGTERM)


BODY_LIMIT_BYTES = 10 << 20
"""API Gateway's limit of an HTTP API: beyond it the server refuses the request without reading it."""
CONNECTIONS_MAX = 1000
"""Open connections: a further one replaces the slowest client."""
HELD_BYTES_MAX = 256 << 20
"""Bytes of bodies of unanswered requests: beyond this, the slowest clients are disconnected."""
PACE_BYTES = 10_000
"""Bytes a second: a client that sends or reads this much is never the slowest."""
PATH_CHARS_MAX = 200
JOINED_BYTES_MAX = 64 << 10
"""A body up to this size is sent together with its head."""
THREADS_SECONDS = 1
"""How long threads may take to end once the server does."""
UNPROVED = "this request needs a token: send Authorization: Bearer <token>"
Admits = Callable[[str, str, Mapping[str, str]], bool]
"""(method, path, headers by their names in CGI's form) → whether a body of such a request is read."""
Refused = Callable[[str, str, int, int], object]
"""(method, path, status, bytes of the answer): reports a request that does not reach the application."""
_LENGTH = re.compile(rb"\r\ncontent-length[ \t]*:", re.IGNORECASE)
_ENCODING = re.compile(rb"\r\ntransfer-encoding[ \t]*:([^\r\n]*)", re.IGNORECASE)
_FOLDED = re.compile(rb"\r\n[ \t]")
_REASONS = {
    413: f"the body is larger than {BODY_LIMIT_BYTES} bytes: send it in several requests; a file of rows, with "
    "`alluvia upload` or in parts (POST /v1/upload/{table}?parts=2)"
}


_TLS = b"\x16\x03"
"""So begins a client that speaks TLS."""
_HTTP_ONLY = (
    "this server speaks http, not https: begin the address with http://, or put a proxy with a certificate here"
)


class _Parser(HTTPRequestParser):  # type: ignore[misc]
    admits: Admits | None = None
    asked = False

    def received(self, data: bytes) -> int:
        """Ask, once the head is there, whether the body is to be read at all."""
        if not self.header_plus and data.startswith(_TLS):  # else it would wait for the end of a line
            self.error, self.completed = BadRequest(_HTTP_ONLY), True
            return len(data)
        consumed = int(super().received(data))
        if self.headers_finished and not self.asked and not self.empty:
            self.asked = True
            has_body = getattr(self, "error", None) is None and (self.content_length or self.chunked)
            if has_body and self.admits is not None and not self.admits(self.command, self.path, self.headers):
                self.error, self.completed = _Unauthorized(UNPROVED), True
        return consumed

    def parse_header(self, header_plus: bytes) -> None:
        """Refuse a request whose end a proxy in front may find elsewhere (RFC 9112, 5.2, 6.1 and 6.3).

        The connection is closed after that, so nothing behind it is taken for another request.
        """
        super().parse_header(header_plus)
        if _FOLDED.search(header_plus):
            raise ParsingError("a header continues on the next line: send it on one line")
        encodings = [each.strip(b" \t").lower() for each in _ENCODING.findall(header_plus)]
        if not encodings:
            return
        if _LENGTH.search(header_plus):
            raise ParsingError("Content-Length and Transfer-Encoding: send one of them")
        if encodings != [b"chunked"] or self.version != "1.1":
            raise ParsingError("Transfer-Encoding must be chunked, once, in HTTP/1.1; or send Content-Length")


class _Unauthorized(Error):  # type: ignore[misc]
    code = 401
    reason = "Unauthorized"


class _Refusal(ErrorTask):  # type: ignore[misc]
    def execute(self) -> None:
        """Answer a request that never got to the application."""
        error = self.request.error
        body = orjson.dumps({"error": _REASONS.get(error.code, error.body)})
        self.status = f"{error.code} {error.reason}"
        self.response_headers += [("Content-Type", "application/json"), NOSNIFF]
        if error.code == _Unauthorized.code:
            self.response_headers.append(("WWW-Authenticate", CHALLENGE))
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)
        method, path = getattr(self.request, "command", "-"), utf8_path(getattr(self.request, "path", "-"))
        self.channel.log(request_line(self.channel.addr[0], method, path, error.code, len(body), 0))
        self.channel.refused(method, path, error.code, len(body))


class _Answer(WSGITask):  # type: ignore[misc]
    def write(self, data: bytes) -> None:
        """Send the head and a small body together."""
        if self.wrote_header or len(data) > JOINED_BYTES_MAX:
            super().write(data)
            return
        pieces: list[bytes] = []
        self.channel.joining = pieces
        try:
            super().write(data)
        finally:
            self.channel.joining = None
        self.channel.write_soon(b"".join(pieces))


class _Channel(HTTPChannel):  # type: ignore[misc]
    parser_class = _Parser
    task_class = _Answer
    error_task_class = _Refusal
    refused: Refused
    joining: list[bytes] | None = None
    """The pieces of an answer that are sent together."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._begin()
        super().__init__(*arguments, **options)

    def _begin(self) -> None:
        self._began, self.moved_bytes = time.monotonic(), 0
        self.held_bytes = 0

    @property
    def waits_since(self) -> float:
        """When the server began to wait for the client, in seconds, later by the time that what has moved may take."""
        return self._began + self.moved_bytes / PACE_BYTES

    def received(self, data: bytes) -> bool:
        self.moved_bytes += len(data)
        self.held_bytes += len(data)
        done = bool(super().received(data))
        self.server.make_room(len(data))
        return done

    def write_soon(self, data: Any) -> int:
        if self.joining is None:
            return int(super().write_soon(data))
        self.joining.append(data)
        return len(data)

    def send(self, data: bytes, do_close: bool = True) -> int:
        sent: int = super().send(data, do_close)
        self.moved_bytes += sent
        return sent

    def check_client_disconnected(self) -> bool:
        """Whether the client has closed its side; waitress does not look while it answers."""
        try:
            return not self.connected or not self.socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def service(self) -> None:
        self.server.serving.channel = self
        super().service()
        self._begin()

    def add_channel(self, map: dict[int, Any] | None = None) -> None:  # noqa: A002 - waitress's name
        super().add_channel(map)
        self.server.watch.change(self)

    def del_channel(self, map: dict[int, Any] | None = None) -> None:  # noqa: A002
        self.server.watch.drop(self._fileno)
        super().del_channel(map)


class HttpServer(TcpWSGIServer):  # type: ignore[misc]
    """Never full of clients that send or read slowly: waitress alone closes only those that do nothing at all."""

    def __init__(self, application: Callable[..., Any], connections_max: int, **options: Any) -> None:
        self._connections_max, self._since_looked = connections_max, 0
        self._is_full = False
        self.serving = threading.local()
        """`channel` is the connection whose request the thread answers."""
        super().__init__(application, connection_limit=connections_max + 10, **options)  # it counts other things, too
        self.watch = SocketWatch(self._map)

    @property
    def is_idle(self) -> bool:
        """Whether no request is coming in, being answered, or answered in part."""
        channels = list(self.active_channels.values())
        return not any(each.requests or each.request is not None or each.total_outbufs_len for each in channels)

    def make_room(self, new_bytes: int) -> None:
        """Close connections whose bodies are not complete while all of them hold too much; the slowest go first."""
        self._since_looked += new_bytes
        if self._since_looked < HELD_BYTES_MAX // 64:
            return
        self._since_looked = 0
        channels = list(self.active_channels.values())
        held = sum(each.held_bytes for each in channels)
        waiting = [each for each in channels if not each.requests and each.held_bytes]
        for slowest in sorted(waiting, key=lambda each: each.waits_since):
            if held <= HELD_BYTES_MAX:
                return
            held -= slowest.held_bytes
            slowest.log(f"{slowest.addr[0]} closed, the slowest client: unfinished request bodies take too much space")
            slowest.handle_close()

    def run(self) -> None:
        """Serve until `SystemExit` or `KeyboardInterrupt`; then requests that still run are cut off."""
        try:
            self.watch.renew(self.trigger)
            while self._map:
                self.watch.renew(self)
                self.watch.wait(self.adj.asyncore_loop_timeout)
        except (SystemExit, KeyboardInterrupt):
            self.task_dispatcher.shutdown(timeout=THREADS_SECONDS)

    def readable(self) -> bool:
        full = len(self.active_channels) >= self._connections_max
        self._is_full = full and all(each.requests for each in self.active_channels.values())
        return super().readable() and not self._is_full

    def maintenance(self, now: float) -> None:
        """Close connections that have been idle for too long."""
        super().maintenance(now)
        for channel in self.active_channels.values():
            if channel.will_close:
                self.watch.change(channel)

    def pull_trigger(self) -> None:
        """Wake the waiting thread if the connection that this thread answers needs something."""
        channel = self.serving.channel
        if self._is_full or not self.watch.is_fit(channel):
            self.watch.change(channel)
            super().pull_trigger()

    def handle_accept(self) -> None:
        """Accept a connection; where it is one too many, close another, unless the server works for all others."""
        super().handle_accept()
        others = list(self.active_channels.values())[:-1]
        waiting = [each for each in others if not each.requests]
        if len(others) >= self._connections_max and waiting:
            slowest = min(waiting, key=lambda each: each.waits_since)
            who = f"{slowest.addr[0]} closed"
            slowest.log(f"{who}: it is the slowest of {len(others)} connections, and another has come")
            slowest.handle_close()


def utf8_path(path: str) -> str:
    """Return the text of a path, whose bytes WSGI passes on as Latin-1 (PEP 3333)."""
    return path.encode("latin-1").decode("utf-8", "replace")


def request_line(
    address: str, method: str, path: str, status: int, answer_bytes: int, took_ms: int, caller: str = ""
) -> str:
    """Return the line that the log has of a request; at its end, the name of a caller with a token."""
    shown = json.dumps(path[:PATH_CHARS_MAX])[1:-1]
    by = f" by {json.dumps(caller)}" if caller else ""
    return f"{address} {method} {shown} {status} {answer_bytes} bytes {took_ms} ms{by}"


def listen(
    application: Callable[..., Any],
    host: str,
    port: int,
    threads: int,
    log: Callable[[str], object],
    option: str | None = None,
    connections_max: int = CONNECTIONS_MAX,
    admits: Admits | None = None,
    refused: Refused = lambda *_: None,
) -> HttpServer:
    """Return a server of a WSGI application; `log` and `refused` get the requests that do not reach the application.

    With `connections_max` open, the next one takes the place of the client that is slowest to send its request or to
    read its answer. A client that is being answered keeps its connection.

    Raises `Invalid` where it cannot listen, naming the option that says where (None: --host and --port).
    """

    class Parser(_Parser):
        pass

    class Channel(_Channel):
        parser_class = Parser

    Channel.log = staticmethod(log)
    Channel.refused = staticmethod(refused)
    if admits is not None:
        Parser.admits = staticmethod(admits)
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        server = HttpServer(
            application,
            connections_max,
            host=min(addresses)[4][0],  # one address, of the older family first: a name may have several
            port=port,
            threads=threads,
            asyncore_use_poll=True,  # select() takes no file number beyond 1,023
            max_request_body_size=BODY_LIMIT_BYTES + 1,
            ident="alluvia",
        )
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            msg = f"{option or '--port'} {port} of {host} is in use: choose another, or 0 for a free one"
        elif isinstance(error, PermissionError):
            msg = f"{option or '--port'} {port} needs more privileges: choose one above 1023, or 0 for a free one"
        else:
            place = f"{option or '--host'} {host}"
            msg = f"{place}: cannot listen there: choose an address of this machine, such as 127.0.0.1"
        raise Invalid(msg) from error
    server.channel_class = Channel
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)  # it warns of each request that waits for a thread
    return server
