"""The child side of worker processes: they answer their parent's requests until it hangs up.

Requests and replies are JSON objects, followed by bytes if they say so.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Thread
from typing import Any

import orjson
import pyarrow as pa

from alluvia.errors import AlluviaError

NICENESS = 5
"""Other processes of the machine, such as those that accept events, take precedence."""

Reply = dict[str, Any]
Send = Callable[..., None]
"""Takes a reply, and the bytes that follow it if any do."""
Answer = Callable[[str, dict[str, Any]], Reply]
"""Takes the name of a request and its fields, the bytes that came with it as `rows`."""


def serve(descriptor: int, make: Callable[[Send, Callable[[], bool]], Answer]) -> None:
    """Serve the parent at the other end of a socket until it hangs up.

    `make` gets what sends replies while a request is answered, and what says whether another request has come since.
    The bytes that follow a reply are its `body`.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(NICENESS)
    with suppress(OSError):  # where memory runs out, Linux ends this process and no other
        Path("/proc/self/oom_score_adj").write_text("1000", "ascii")
    Thread(target=_end_with_parent, args=(descriptor,), daemon=True).start()
    pipe = Connection(descriptor)

    def send(reply: Reply, data: bytes | pa.Buffer | None = None) -> None:
        pipe.send_bytes(orjson.dumps(reply, default=str))
        if data is not None:
            pipe.send_bytes(data)

    answer = make(send, pipe.poll)
    try:
        while True:
            request = orjson.loads(pipe.recv_bytes())
            if request.pop("bytes", False):
                request["rows"] = pipe.recv_bytes()
            reply = answer(request.pop("do"), request)
            send(reply, reply.pop("body", None))
    except (EOFError, ConnectionError):
        sys.exit()


def refusal(error: AlluviaError) -> Reply:
    """Return the reply that raises an error on the other side."""
    kind = type(error)
    return {"refused": f"{kind.__module__}:{kind.__qualname__}", "message": str(error)}


def _end_with_parent(descriptor: int) -> None:
    """End this process, whatever it does, once the other end is gone."""
    poll = select.poll()
    poll.register(descriptor, 0)
    poll.poll()
    os._exit(1)
