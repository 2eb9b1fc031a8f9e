"""Reading processes, which open untrusted files: a damaged file can crash the libraries that read it.

A `ReadingSession` is an object of a class of ours in such a process. Its methods yield replies, each with bytes.
"""

from __future__ import annotations

import atexit
import signal
from collections.abc import Iterator, Mapping
from typing import Any, Self

import pyarrow as pa

from alluvia.processes.pool import Cancelled, OutOfMemory, OutOfTime, Pool, ProcessDied, Watch, Worker

MODULE = "alluvia.processes.child"
_IDLE_MAX = 2
Told = tuple[Mapping[str, Any], pa.Buffer]
"""A reply, and the bytes that came with it."""


class ReadingFailed(Exception):
    """Code of ours failed in a reading process; the message is its traceback."""

    def __init__(self, reply: Mapping[str, Any]) -> None:
        super().__init__(reply["error"])


class Crashed(Exception):
    """What was read ended the process by a signal, such as the one by which a library aborts."""


class _Reader(Worker):
    def __init__(self) -> None:
        super().__init__(MODULE, ReadingFailed)


READERS = Pool(_Reader, _IDLE_MAX)
atexit.register(READERS.close)


class ReadingSession:
    """An object of a class in a reading process: made with `given` and `data`, closed when it is done with.

    Its methods raise the `AlluviaError` that it raised; `Crashed`, `OutOfTime`, `OutOfMemory` and `Cancelled`, after
    which the process is gone; and `ReadingFailed`. Not for use from several threads at once.
    """

    def __init__(self, of: type, watch: Watch, data: bytes | None = None, /, **given: Any) -> None:
        self._watch = watch
        self._worker: Worker | None = READERS.take()
        name = f"{of.__module__}:{of.__qualname__}"
        try:
            self.ask("open", data, of=name, given=given, memory_bytes=watch.memory_bytes)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ask(self, name: str, data: bytes | None = None, /, **given: Any) -> Told:
        """Return the only reply of a method, with its bytes."""
        [reply] = self.stream(name, data, **given)
        return reply

    def stream(self, name: str, data: bytes | None = None, /, **given: Any) -> Iterator[Told]:
        """Yield the replies of a method as they come. If they are not all taken, the process ends."""
        worker = self._worker
        if worker is None:
            raise ValueError("the session is closed")
        whole = False
        try:
            worker.send(name, None if data is None else pa.py_buffer(data), **given)
            while "end" not in (reply := worker.reply(self._watch)):
                yield reply, worker.buffer(self._watch)
            whole = True
        except ProcessDied as error:
            if -error.status == signal.SIGKILL:
                raise OutOfMemory from None  # the system ends what takes more than there is
            if error.status < 0:
                raise Crashed(signal.Signals(-error.status).name) from None
            raise
        except (Cancelled, OutOfTime, OutOfMemory, GeneratorExit):
            raise
        except Exception:
            whole = True  # it has answered: by an error
            raise
        finally:
            if not whole:
                self._worker = None
                worker.kill()

    def close(self) -> None:
        """Give the process back, which forgets the object."""
        worker, self._worker = self._worker, None
        if worker is not None:
            READERS.give_back(worker, wait=True)
