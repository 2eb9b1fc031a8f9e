"""Starts the processes that run queries. Loads little, so that one can start before its parent has loaded the rest."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from multiprocessing import Pipe
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

_START = """
import gc, json, sys
gc.disable()  # what is loaded stays
sys.path[:] = json.loads(sys.argv[1])
from alluvia.query.worker import main
gc.freeze()
gc.enable()
main({})
"""
_KEPT = ("LD_LIBRARY_PATH", "PATH", "TMPDIR", "LANG", "LC_ALL", "SSL_CERT_FILE")


class Started(NamedTuple):
    """A process, and this side's end of its pipe."""

    process: subprocess.Popen[bytes]
    pipe: Connection


_lock = Lock()
_ahead: list[tuple[int, Started]] = []


def start_ahead() -> None:
    """Start a process for the first query, which takes as long to load as this one does."""
    with _lock:
        _ahead.append((os.getpid(), _start()))


def start() -> Started:
    """Return a new process, or one that this process has started ahead."""
    with _lock:
        while _ahead:
            owner, started = _ahead.pop()
            if owner == os.getpid():  # else it belongs to the parent that this process was forked from
                return started
    return _start()


def _start() -> Started:
    pipe, theirs = Pipe()
    with theirs:
        process = subprocess.Popen(  # noqa: S603 - our own interpreter, and nothing of a user's
            [sys.executable, "-I", "-c", _START.format(theirs.fileno()), json.dumps(_module_folders())],
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
