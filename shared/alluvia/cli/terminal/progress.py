"""Show progress of work that takes over a second, on standard error if that is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import field
from threading import Timer
from time import monotonic

from alluvia.cli.terminal.output import size
from alluvia.cli.terminal.terminal import escaped
from alluvia.lazy_dataclasses import dataclass
from alluvia.progress import reporting_to

AFTER_SECONDS = 1.0


@contextmanager
def progress(what: str, *, as_json: bool, after_seconds: float = AFTER_SECONDS) -> Iterator[None]:
    """Show what the work reports: how much of it, a share, a rate and the time that is left; no trace of it stays.

    Nothing is shown with `as_json`, nor before `after_seconds`.
    """
    if as_json or not sys.stderr.isatty():
        yield
        return
    state = _State(what)
    with ExitStack() as shown:

        def show() -> None:
            from alluvia.cli.terminal.layout import live_line

            shown.enter_context(live_line(lambda: (_line(state, monotonic()), state.done, state.total)))

        timer = Timer(after_seconds, show)
        timer.daemon = True
        timer.start()
        try:
            with reporting_to(state.take):
                yield
        finally:
            timer.cancel()
            timer.join()


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
