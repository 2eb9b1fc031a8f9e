"""Sixteen processes at work, killed and paused at random and started again."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from tests.processes.events import SLOTS
from tests.processes.journal import entries
from tests.processes.worker import main
from tests.warm import started

STEP_SECONDS = (0.5, 2.0)
PAUSE_CHANCE = 0.3
PAUSE_SECONDS = (0.2, 3.0)
READY_SECONDS_MAX = 120


@dataclass
class Fleet:
    """The processes of one run. `uri` and `options` say where the lake is, as they see it."""

    uri: str
    options: dict[str, str]
    folder: Path
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    _lives: Counter[str] = field(default_factory=Counter)
    _running: dict[str, ForkServerProcess] = field(default_factory=dict)
    _alive: dict[str, Connection[Any, Any]] = field(default_factory=dict)
    _resume: list[tuple[float, ForkServerProcess]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def work(self, seconds: float) -> None:
        """Start all, let them work for a while under fire from when they are ready, and kill them all."""
        for slot in SLOTS:
            self._start(slot)
        self._wait_ready()
        end = time.monotonic() + seconds
        while time.monotonic() < end and not self.failures:
            time.sleep(self._random.uniform(*STEP_SECONDS))
            self._wake()
            self._bury()
            if self._random.random() < PAUSE_CHANCE:
                self._pause()
            else:
                self._kill(self._random.choice(sorted(self._running)))
        self.stop()

    def stop(self) -> None:
        """Kill all at once, as a power cut does."""
        for process in self._running.values():
            process.kill()
        for process in self._running.values():
            process.join(timeout=60)
        self._bury()
        self._running.clear()

    def _start(self, slot: str) -> None:
        role, stream = SLOTS[slot]
        life = self._lives[slot]
        arguments = {
            "uri": self.uri,
            "options": self.options,
            "slot": slot,
            "life": life,
            "folder": str(self.folder),
            "seed": self.seed,
        }
        scratch = self.folder / "scratch"  # what a killed one leaves among its temporary files goes with the run
        scratch.mkdir(exist_ok=True)
        theirs, self._alive[slot] = Pipe(duplex=False)
        with theirs:
            errors = str(self._errors(slot, life))
            self._running[slot] = started(main, theirs, errors, str(scratch), role, stream, arguments)
        self._lives[slot] += 1
        self.counts["processes"] += 1

    def _errors(self, slot: str, life: int) -> Path:
        return self.folder / f"{slot}.{life}.err"

    def _wait_ready(self) -> None:
        end = time.monotonic() + READY_SECONDS_MAX
        while not all(any(entries(path)) for path in self._journals()) or len(self._journals()) < len(SLOTS):
            self._bury()
            assert not self.failures, self.failures
            assert time.monotonic() < end, "the processes did not get ready"
            time.sleep(0.2)

    def _journals(self) -> list[Path]:
        return list(self.folder.glob("*.0.journal"))

    def _kill(self, slot: str) -> None:
        process = self._running[slot]
        process.kill()
        process.join(timeout=60)
        self.counts["kills"] += 1
        self._start(slot)

    def _pause(self) -> None:
        process = self._running[self._random.choice(sorted(self._running))]
        _signal(process, signal.SIGSTOP)
        self._resume.append((time.monotonic() + self._random.uniform(*PAUSE_SECONDS), process))
        self.counts["pauses"] += 1

    def _wake(self) -> None:
        due = [process for at, process in self._resume if at <= time.monotonic()]
        self._resume = [(at, process) for at, process in self._resume if process not in due]
        for process in due:
            _signal(process, signal.SIGCONT)

    def _bury(self) -> None:
        """Note the processes that ended by themselves: none should."""
        for slot, process in list(self._running.items()):
            if process.exitcode not in (None, -signal.SIGKILL):
                del self._running[slot]
                said = self._errors(slot, self._lives[slot] - 1).read_text(errors="replace")
                self.failures.append(f"{slot} ended by itself:\n{said[-3000:]}")


def _signal(process: ForkServerProcess, number: signal.Signals) -> None:
    if process.exitcode is None and process.pid is not None:
        with contextlib.suppress(ProcessLookupError):  # it ended just now: `_bury` will tell
            os.kill(process.pid, number)


@contextmanager
def fleet(uri: str, options: dict[str, str], folder: Path, seed: int) -> Iterator[Fleet]:
    """Give a fleet, none of whose processes outlives the block."""
    ships = Fleet(uri, options, folder, seed)
    try:
        yield ships
    finally:
        ships.stop()
