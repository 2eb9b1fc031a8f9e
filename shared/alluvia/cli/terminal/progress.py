"""Show progress of work that takes over a second, on standard error if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import field
from os import get_terminal_size
from threading import Event, Thread
from time import monotonic

from alluvia.cli.terminal.layout import cut_to, width_of
from alluvia.cli.terminal.output import size
from alluvia.cli.terminal.terminal import escaped
from alluvia.lazy_dataclasses import dataclass
from alluvia.progress import reporting_to

AFTER_SECONDS = 1.0
_EVERY_SECONDS = 0.2


@contextmanager
def progress(what: str, *, as_json: bool, after_seconds: float = AFTER_SECONDS) -> Iterator[None]:
    """Show what the work reports: how much of it, a share, a rate and the time that is left; no trace of it stays.

    Nothing is shown with `as_json`, nor before `after_seconds`.
    """
    if as_json or not sys.stderr.isatty():
        yield
        return
    display = _Display(_State(what), after_seconds)
    thread = Thread(target=display.run, name="alluvia-progress", daemon=True)
    thread.start()
    try:
        with reporting_to(display.state.take):
            yield
    finally:
        display.ended.set()
        thread.join()


@dataclass(slots=True)
class _State:
    """What was told last. Rates count from `started`, when this piece of the work began."""

    what: str
    done: int = 0
    total: int = 0
    unit: str = ""
    started: float = field(default_factory=monotonic)
    begun: float = field(default_factory=monotonic)

    def take(self, what: str, done: int, total: int, unit: str = "") -> None:
        if what != self.what:
            self.what, self.started = what, monotonic()
        self.done, self.total, self.unit = done, total, unit


class _Display:
    """A line that its own thread draws, so that it moves even while the work reports nothing.

    It is drawn with carriage returns only, so a killed process leaves the terminal as it was.
    """

    def __init__(self, state: _State, after_seconds: float) -> None:
        self.state = state
        self.ended = Event()
        self._after_seconds = after_seconds

    def run(self) -> None:
        """Draw until the work has ended, and wipe the line out; nothing is drawn where that is soon."""
        pause, drawn = self._after_seconds, 0
        while not self.ended.wait(pause):
            pause = _EVERY_SECONDS
            columns = get_terminal_size(sys.stderr.fileno()).columns or 80  # 0 where nobody has said
            line = cut_to(_line(self.state, monotonic()), columns - 1)
            sys.stderr.write(f"\r{line}{' ' * (drawn - width_of(line))}")
            sys.stderr.flush()
            drawn = width_of(line)
        if drawn:
            sys.stderr.write(f"\r{' ' * drawn}\r")
            sys.stderr.flush()


def _line(state: _State, now: float) -> str:
    """Return such as `merging clicks: 42% of 1.2 GB, 35.0 MB/s, 20 s left`, or how long it has taken so far."""
    seconds = now - state.started
    left = _left(state.done, state.total, seconds)
    parts = [_amount(state.done, state.total, state.unit), _rate(state.done, seconds, state.unit)]
    parts.append(f"{left} left" if left else _time(now - state.begun))
    return f"{escaped(state.what)}: {', '.join(filter(None, parts))}"


def _amount(done: int, total: int, unit: str) -> str:
    if not total:
        return _counted(done, unit) if done else ""
    return f"{min(1, done / total):.0%} of {_counted(total, unit)}"


def _rate(done: int, seconds: float, unit: str) -> str:
    return f"{_counted(round(done / seconds), unit)}/s" if done and seconds > 0 else ""


def _left(done: int, total: int, seconds: float) -> str:
    return _time(seconds * (total - done) / done) if 0 < done < total else ""


def _time(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return " ".join(f"{n} {unit}" for n, unit in ((hours, "h"), (minutes, "min"), (rest, "s")) if n or unit == "s")


def _counted(number: int, unit: str) -> str:
    return size(number) if unit == "bytes" else f"{number:,} {unit}".rstrip()
