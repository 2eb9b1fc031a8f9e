"""The parent side of worker processes: started in advance, watched, and killed at a limit.

Their work can crash a library, ignore interrupts, or take memory that no other limit counts. In a separate process, it
harms nothing else. A process that has answered normally is used again.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import time
from collections.abc import Callable, Iterator
from functools import partial
from threading import Lock
from typing import Any, TypeVar

import orjson
import pyarrow as pa

from alluvia.errors import AlluviaError
from alluvia.lazy_dataclasses import dataclass
from alluvia.processes.starting import start

IDLE_MAX = 4
"""Processes kept ready for work to come."""
IDLE_BYTES_MAX = 400_000_000
"""A process that holds more memory than this after its work is not kept."""
OVERHEAD_BYTES = 384_000_000
"""What a process may take besides the memory that its work is allowed: the libraries, and rows on their way out."""
_POLL_SECONDS = 0.025
_END_SECONDS = 5.0
"""How long a process may take to end its work."""
_WAIT_SECONDS = 0.5
"""How long new work waits for a process that is still ending other work; starting another takes about as long."""
_T = TypeVar("_T")
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class ProcessDied(Exception):
    """The process ended: by a signal, if `status` is negative."""

    def __init__(self, status: int) -> None:
        super().__init__(f"a worker process ended with status {status}")
        self.status = status


class OutOfTime(Exception):
    """The process exceeded its time and was killed."""


class Cancelled(Exception):
    """The caller has disconnected, and the process was killed."""


class OutOfMemory(Exception):
    """The process exceeded its memory and was killed."""


@dataclass(frozen=True, slots=True)
class Watch:
    """Limits of a process: a deadline by `time.monotonic()`, and bytes of memory; None: no limit."""

    deadline: float | None = None
    memory_bytes: int | None = None
    cancelled: Callable[[], bool] | None = None
    """True once the caller has disconnected."""


class Worker:
    """One process that runs the `main` of a module, from this side. Not for use from several threads at once.

    `failure` turns a reply with an `error` into an exception.
    """

    def __init__(self, module: str, failure: Callable[[Any], Exception]) -> None:
        self._process, self._pipe = start(module)
        self._memory = _open_memory(self._process.pid)
        self._failure = failure
        self._size = 0
        self.refusal: Exception | None = None
        """The error of its last reply that refused a request; such a reply ends the answer."""
        self._ends_by: float | None = None

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return self._process.poll() is None

    def send(self, name: str, rows: pa.Buffer | None = None, /, **request: Any) -> None:
        """Send a request; its replies must be taken before the next. Raises `ProcessDied`."""
        try:
            self._pipe.send_bytes(orjson.dumps({"do": name, "bytes": rows is not None, **request}))
            if rows is not None:
                self._pipe.send_bytes(rows)
        except OSError:
            raise ProcessDied(self._end()) from None

    def end_work(self) -> None:
        """Tell the process to end its work and prepare for more, without waiting for that. Raises `ProcessDied`."""
        self.send("close")
        self._ends_by = time.monotonic() + _END_SECONDS

    def is_ready(self, seconds: float = 0.0) -> bool:
        """Whether the process has ended its work, or ends it within some seconds."""
        return self._ends_by is None or self._pipe.poll(seconds)

    @property
    def is_late(self) -> bool:
        """Whether the process should have ended its work by now."""
        return self._ends_by is not None and time.monotonic() > self._ends_by

    def settle(self) -> bool:
        """Wait until the process is ready for more work. If it never will be, end it and return False."""
        if self._ends_by is not None:
            ends_by, self._ends_by = self._ends_by, None
            try:
                self.reply(Watch(None if self._pipe.poll() else ends_by))
            except (ProcessDied, OutOfTime):
                return False
        if self.alive and self.held_bytes() < IDLE_BYTES_MAX:
            return True
        self.kill()
        return False

    def reply(self, watch: Watch) -> dict[str, Any]:
        """Return the next reply. Raises the error in the reply, or why the process ended."""
        reply: dict[str, Any] = orjson.loads(self._awaited(watch, self._pipe.recv_bytes))
        self._size = reply.pop("size", 0)
        if "refused" in reply:
            self.refusal = told_error(reply["refused"], reply["message"])
            raise self.refusal
        if "error" in reply:
            raise self._failure(reply)
        return reply

    def data(self, watch: Watch) -> bytes:
        """Return the bytes that follow a reply which says so. Raises as `reply` does."""
        return bytes(self.buffer(watch))

    def buffer(self, watch: Watch) -> pa.Buffer:
        """Return the same bytes in a buffer of Arrow's, without a copy."""
        buffer = pa.allocate_buffer(self._size) if self._size else pa.py_buffer(b"")
        rest = memoryview(buffer)
        while rest:
            rest = rest[self._awaited(watch, partial(self._read_into, rest)) :]
        return buffer

    def _awaited(self, watch: Watch, receive: Callable[[], _T]) -> _T:
        try:
            self._check(watch)
            while not self._pipe.poll(_POLL_SECONDS):
                self._check(watch)
            return receive()
        except (EOFError, OSError):
            raise ProcessDied(self._end()) from None

    def _read_into(self, rest: memoryview) -> int:
        count = os.readv(self._pipe.fileno(), [rest])
        if not count:
            raise EOFError
        return count

    def kill(self) -> None:
        """End the process at once."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        self._end()

    def held_bytes(self) -> int:
        """Return how much memory the process holds; 0 where the system does not tell."""
        if self._memory is None:
            return 0
        try:
            pages = os.pread(self._memory, 64, 0).split()[1]
        except (OSError, IndexError):  # it has ended
            return 0
        return int(pages) * _PAGE_BYTES

    def _check(self, watch: Watch) -> None:
        if watch.cancelled is not None and watch.cancelled():
            self.kill()
            raise Cancelled
        if watch.deadline is not None and time.monotonic() > watch.deadline:
            self.kill()
            raise OutOfTime
        if watch.memory_bytes is not None and self.held_bytes() > watch.memory_bytes + OVERHEAD_BYTES:
            self.kill()
            raise OutOfMemory

    def _end(self) -> int:
        self._pipe.close()
        memory, self._memory = self._memory, None
        if memory is not None:
            os.close(memory)
        return self._process.wait()


class Pool:
    """Processes that wait for work. Safe for use from several threads."""

    def __init__(self, make: Callable[[], Worker], idle_max: int = IDLE_MAX) -> None:
        self._make = make
        self._idle_max = idle_max
        self._lock = Lock()
        self._idle: list[Worker] = []
        self._owner = os.getpid()

    def prepare(self, count: int) -> None:
        """Have this many processes ready."""
        with self._lock:
            self._keep_own()
            self._idle += [self._make() for _ in range(min(count, self._idle_max) - len(self._idle))]

    def take(self) -> Worker:
        """Return a process for one piece of work: give it back, or kill it."""
        while True:
            with self._lock:
                self._keep_own()
                worker = next((each for each in reversed(self._idle) if each.is_ready()), None)
                worker = worker or (self._idle[-1] if self._idle else None)
                if worker is not None:
                    self._idle.remove(worker)
            if worker is None:
                return self._make()
            if worker.is_ready(_WAIT_SECONDS) or worker.is_late:
                if worker.settle():
                    return worker
            else:
                self._keep(worker, to_be_last=True)
                return self._make()

    def give_back(self, worker: Worker, *, wait: bool = False) -> None:
        """Take back a process after its last answer. With `wait`, return only once it has ended its work."""
        if not self._idle_max:
            worker.kill()
            return
        try:
            worker.end_work()
        except ProcessDied:
            return
        if (wait or worker.held_bytes() >= IDLE_BYTES_MAX) and not worker.settle():
            return
        self._keep(worker)

    def _keep(self, worker: Worker, *, to_be_last: bool = False) -> None:
        """Keep a process for more work, `to_be_last` among the idle ones; end it if enough others are idle."""
        with self._lock:
            keep = len(self._idle) < self._idle_max
            if keep:
                self._idle.insert(0 if to_be_last else len(self._idle), worker)
        if not keep:
            worker.kill()

    @contextlib.contextmanager
    def keeping_none(self) -> Iterator[None]:
        """During a block, end each process with its work, so that none prepares for more."""
        idle_max, self._idle_max = self._idle_max, 0
        try:
            yield
        finally:
            self._idle_max = idle_max

    def close(self) -> None:
        """End the processes that wait."""
        with self._lock:
            self._keep_own()
            while self._idle:
                self._idle.pop().kill()

    def _keep_own(self) -> None:
        """Forget the processes of a parent that this process was forked from: they are the parent's."""
        if self._owner != os.getpid():
            self._idle, self._owner = [], os.getpid()


def _open_memory(process_id: int) -> int | None:
    """Open the file with the memory use of a process; None on systems without it."""
    try:
        return os.open(f"/proc/{process_id}/statm", os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None


def told_error(name: str, message: str) -> AlluviaError:
    """Return the error that a process told, by the module and the name of its class."""
    module, _, kind = name.partition(":")
    error = getattr(importlib.import_module(module), kind) if module.startswith("alluvia.") else None
    if not (isinstance(error, type) and issubclass(error, AlluviaError)):
        raise TypeError(f"a worker process reported {name!r:.100}, which is not an error of Alluvia")
    return error(message)
