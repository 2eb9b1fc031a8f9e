"""The child side of worker processes: they answer their parent's requests until it hangs up.

Requests and replies are JSON objects, followed by bytes if they say so.
"""

from __future__ import annotations

import importlib
import os
import resource
import select
import signal
import sys
import traceback
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
        rest = memoryview(b"" if data is None else data)
        pipe.send_bytes(orjson.dumps({**reply, "size": rest.nbytes} if rest else reply, default=str))
        while rest:
            rest = rest[os.write(descriptor, rest) :]

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


_KIB = 1024
_RESERVED_BYTES = 4 << 30
"""What libraries reserve ahead, which counts although most of it is never touched."""


class _Sessions:
    """One object at a time."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._object: Any = None

    def answer(self, name: str, request: dict[str, Any]) -> Reply:
        """Answer a request: to make an object, to forget it, or to call one of its methods."""
        try:
            if name == "close":
                self._object = None
                pa.default_memory_pool().release_unused()
                return {}
            if name == "open":
                _limit_memory(request["memory_bytes"])
                module, _, kind = request["of"].partition(":")
                session = getattr(importlib.import_module(module), kind)
                data = {"data": request["rows"]} if "rows" in request else {}
                self._object = session(**request["given"], **data)
                self._send({"part": True}, b"")
            else:
                for reply, data in getattr(self._object, name)(**request):
                    self._send({"part": True, **reply}, data)
        except AlluviaError as error:
            return refusal(error)
        except ConnectionError:  # the parent is gone
            raise
        except MemoryError:  # ended as the system ends what takes more than there is
            os.kill(os.getpid(), signal.SIGKILL)
        except Exception:  # noqa: BLE001 - the parent raises it
            return {"error": traceback.format_exc()}
        return {"end": True}


def _limit_memory(limit_bytes: int | None) -> None:
    """Have the system refuse much more memory than the parent allows, who ends this process first if it can."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    soft = hard
    if limit_bytes is not None:
        wanted = _held_bytes() + limit_bytes + _RESERVED_BYTES
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _held_bytes() -> int:
    """Return how much memory for data this process has asked for; 0 where the system does not tell."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text("ascii").splitlines():
            name, _, value = line.partition(":")
            if name == "VmData":
                return int(value.split()[0]) * _KIB
    return 0


def main(descriptor: int) -> None:
    """Serve the parent at the other end of a socket until it hangs up."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    serve(descriptor, lambda send, _: _Sessions(send).answer)
