"""The command in a process of its own, on a pseudo-terminal of a given width."""

from __future__ import annotations

import fcntl
import os
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

COMMAND = (sys.executable, "-m", "alluvia.cli")
_CONTROLS = re.compile(r"(\n|\r?\x1b\[1A|\r?\x1b\[2K|\x1b\[\?25[lh])")
"""A new line; the cursor up, always in the first column; a line erased; the cursor hidden or shown."""


@dataclass(frozen=True, slots=True)
class Shown:
    """What a terminal got, with its own line ends (CR LF) made plain ones, and how the command ended."""

    text: str
    returncode: int

    @property
    def lines(self) -> list[str]:
        return self.text.splitlines()

    @property
    def left(self) -> list[str]:
        """The lines that stay on the screen: those that were erased, as progress is, are not among them."""
        lines, row = [""], 0
        for part in _CONTROLS.split(self.text):
            if part == "\n":
                row += 1
                lines += [""] * (row + 1 - len(lines))
            elif part.endswith("[1A"):
                row -= 1
            elif part.endswith("[2K"):
                lines[row] = ""
            elif not part.startswith("\x1b[?25"):
                assert not set(part) & {"\r", "\x1b"}, f"unknown control in {self.text!r}"
                lines[row] += part
        return lines if lines[-1] else lines[:-1]


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


class Typist:
    """Types at a command whose terminal this is, and waits for what it shows, without its escape sequences."""

    _SEQUENCE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|\x1b[=>]")

    def __init__(self, process: subprocess.Popen[bytes], reader: int) -> None:
        self.process = process
        self._reader = reader
        self._shown = ""

    def type(self, text: str) -> None:
        os.write(self._reader, text.encode())

    def until(self, *texts: str) -> str:
        """Read until all of some texts have been shown, one after the other, and return what has been shown."""
        begin = 0
        for text in texts:
            while (at := self._shown.find(text, begin)) < 0:
                ready = select.select([self._reader], [], [], 5)[0]
                try:
                    data = os.read(self._reader, 1 << 16) if ready else b""
                except OSError:
                    data = b""
                assert data, f"{text!r} is not in {self._shown!r}"
                self._shown = self._SEQUENCE.sub("", self._shown + data.decode()).replace("\r", "")
            begin = at + len(text)
        found, self._shown = self._shown[:begin], self._shown[begin:]
        return found

    def end(self) -> str:
        """Return what is shown until the command has ended."""
        found = self._shown + self._SEQUENCE.sub("", read_all(self._reader)).replace("\r", "")
        self.process.wait()
        return found


@contextmanager
def typing(words: Sequence[str], columns: int = 80, **given: str) -> Iterator[Typist]:
    """Run the command with a terminal of its own, on which Ctrl-C is the signal that it is for people."""
    reader, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-c", _CONTROLLED, *words],
        env=environment({"PROMPT_TOOLKIT_NO_CPR": "1", **given}),
        stdin=terminal, stdout=terminal, stderr=terminal, start_new_session=True,
    )  # fmt: skip
    os.close(terminal)
    try:
        yield Typist(process, reader)
    finally:
        process.kill()
        process.wait()
        os.close(reader)


_CONTROLLED = """
import fcntl, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
sys.argv[0] = "alluvia"
from alluvia.cli import main
main()
"""


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
