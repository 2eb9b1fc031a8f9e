"""Start worker processes. Loads little, so that a process can start before its parent loads the rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from multiprocessing import Pipe
from pathlib import Path
from socket import SO_SNDBUF, SOL_SOCKET, socket
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_START = """
import gc, json, sys
gc.disable()  # what is loaded stays
sys.path[:] = json.loads(sys.argv[1])
from {} import main
gc.freeze()
gc.enable()
main({})
"""
_SENT_BYTES = 4 << 20
"""Size of the send buffer, if the system allows it: a large one means fewer switches between the processes."""
_PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
_KEPT = (
    *("LD_LIBRARY_PATH", "PATH", "TMPDIR", "LANG", "LC_ALL", "SSL_CERT_FILE", "AWS_CA_BUNDLE"),
    *_PROXIES,
    *(name.lower() for name in _PROXIES),
)
"""What reading files of the lake, over the same way as this process, needs of the environment, and little else."""


class Started(NamedTuple):
    """A process, and this side's end of its pipe."""

    process: subprocess.Popen[bytes]
    pipe: Connection


_lock = Lock()
_ahead: list[tuple[int, str, Started]] = []


def start_ahead(module: str) -> None:
    """Start a process before it is needed: it takes as long to load as this one does. See `start`."""
    with _lock:
        _ahead.append((os.getpid(), module, _start(module)))


def start(module: str) -> Started:
    """Return a new process that runs the `main` of a module, or one that this process has started ahead.

    `main` takes the number of the other end of its pipe.
    """
    with _lock:
        own = os.getpid()
        _ahead[:] = [each for each in _ahead if each[0] == own]  # others are of a parent that was forked
        for at, (_, name, started) in enumerate(_ahead):
            if name == module:
                del _ahead[at]
                return started
    return _start(module)


def _start(module: str) -> Started:
    pipe, theirs = Pipe()
    with theirs:
        with socket(fileno=os.dup(theirs.fileno())) as end:
            end.setsockopt(SOL_SOCKET, SO_SNDBUF, _SENT_BYTES)
        process = subprocess.Popen(  # noqa: S603 - our own interpreter, and nothing of a user's
            [sys.executable, "-I", "-c", _START.format(module, theirs.fileno()), json.dumps(_module_folders())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd="/",
            env={name: os.environ[name] for name in _KEPT if name in os.environ},
            process_group=0,  # signals of a terminal are for this process
        )
    return Started(process, pipe)


def _module_folders() -> list[str]:
    return [str(Path(folder).absolute()) for folder in sys.path]
