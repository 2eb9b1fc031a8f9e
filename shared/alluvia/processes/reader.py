"""A reading process, from its side: it makes the object that it is told to, and calls its methods."""

from __future__ import annotations

import importlib
import os
import resource
import signal
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa

from alluvia.errors import AlluviaError
from alluvia.processes.child import Reply, Send, refusal, serve

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
                found = getattr(importlib.import_module(module), kind)
                data = {"data": request["rows"]} if "rows" in request else {}
                self._object = found(**request["given"], **data)
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
