"""The command in a process of its own, on a pseudo-terminal of a given width."""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
import termios
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

COMMAND = (sys.executable, "-m", "alluvia.cli")


@dataclass(frozen=True, slots=True)
class Shown:
    """What a terminal got, with its own line ends (CR LF) made plain ones, and how the command ended."""

    text: str
    returncode: int

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()


def environment(given: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment in which nothing but the terminal says how wide it is."""
    plain = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES", "ALLUVIA_LAKE"}}
    return {**plain, "TERM": "xterm-256color", **(given or {})}


def on_terminal(words: Sequence[str], columns: int = 80, typed: str = "", **given: str) -> Shown:
    """Run the command with all three streams on a terminal, after typing something."""
    reader, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [*COMMAND, *words], env=environment(given), stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    if typed:
        os.write(reader, typed.encode())
    try:
        text = read_all(reader)
    finally:
        os.close(reader)
    return Shown(text.replace("\r\n", "\n"), process.wait())


def read_all(reader: int) -> str:
    """Read what a terminal gets until nobody has it open any more."""
    parts = []
    while True:
        try:
            data = os.read(reader, 1 << 16)
        except OSError:  # how Linux says that the other side is closed
            break
        if not data:
            break
        parts.append(data)
    return b"".join(parts).decode()


def through_pipe(words: Sequence[str], **given: str) -> subprocess.CompletedProcess[bytes]:
    """Run the command with its output in pipes and nothing to read."""
    command = [*COMMAND, *words]
    return subprocess.run(command, env=environment(given), stdin=subprocess.DEVNULL, capture_output=True, check=False)
