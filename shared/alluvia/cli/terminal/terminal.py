"""Write to standard output and standard error. No control character of a value reaches a terminal, and if the reader
has left, the command ends silently."""

from __future__ import annotations

import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import click

_BROKEN_PIPE = 128 + getattr(signal, "SIGPIPE", 13)
"""The exit code that a shell shows for a tool whose reader has left."""
_UNSAFE = re.compile(
    "[\x00-\x1f\x7f-\x9f"  # C0 with ESC, CR and BEL; DEL; C1
    "\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # direction, and what hides
    "\ud800-\udfff\U000e0000-\U000e007f]"  # bytes of file names that are not text; tags
)
_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def escaped(text: str) -> str:
    r"""Return a text with its control, direction and invisible characters as `\n`, `\x1b` or `\u202e`."""
    return _UNSAFE.sub(_escape, text)


def escaped_json(text: str) -> str:
    """Return JSON that means the same, with such characters of its strings escaped as JSON does it."""
    return "\n".join(_UNSAFE.sub(_escape_json, line) for line in text.split("\n"))


def is_terminal() -> bool:
    """Whether people read standard output as it comes."""
    return sys.stdout.isatty()


def say(text: str) -> None:
    """Print lines to standard output; on a terminal, with what could harm it escaped."""
    _write(_lines(text) + "\n" if is_terminal() else text + "\n")


def say_json(data: bytes) -> None:
    """Print JSON to standard output as it is, without adding a line's end; on a terminal, with all escaped."""
    _write(escaped_json(data.decode()) if is_terminal() else data)


def say_text(data: bytes) -> None:
    """Print a part of an answer to standard output as it is; on a terminal, harmful characters are escaped."""
    if is_terminal():
        lines = data.decode().replace("\r\n", "\n").split("\n")
        _write("\n".join("\t".join(map(escaped, line.split("\t"))) for line in lines))
    else:
        _write(data)


def tell(text: str) -> None:
    """Print lines to standard error, always escaped, because people read logs in terminals later."""
    sys.stderr.write(f"{_lines(text)}\n")  # not by `click.echo`, which would write into a line of progress
    sys.stderr.flush()


def _lines(text: str) -> str:
    return "\n".join(map(escaped, text.split("\n")))


@contextmanager
def ending_with_its_reader() -> Iterator[None]:
    """Exit silently if the block writes to a standard output that nobody reads any more."""
    try:
        yield
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for what is flushed at exit
        sys.exit(_BROKEN_PIPE)


def _write(text: str | bytes) -> None:
    with ending_with_its_reader():
        click.echo(text, nl=False, color=True)  # without `color`, a pipe would get texts with their ESC sequences cut


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    if code > 0xFFFF:
        return f"\\U{code:08x}"
    return _SHORT.get(match[0]) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")


def _escape_json(match: re.Match[str]) -> str:
    units = match[0].encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
