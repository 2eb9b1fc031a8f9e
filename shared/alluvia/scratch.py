"""Folders for work in progress, below one of this process.

They go when their work is done, and with the process. Where a process was killed, the next one takes its folder away.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

_NAME = re.compile(r"alluvia-(\d+)-\w+")


def new_folder() -> Path:
    """Make an empty folder that only this user may open; whoever asks for it removes it."""
    return Path(tempfile.mkdtemp(dir=_own(os.getpid(), tempfile.gettempdir())))


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Make an empty folder, and remove it with all that it holds."""
    folder = new_folder()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@cache
def _own(pid: int, place: str) -> Path:
    """Return this process's folder in a place; the first call removes those of processes that are gone."""
    for path in Path(place).glob("alluvia-*"):
        match = _NAME.fullmatch(path.name)
        if match and (int(match[1]) == pid or not _runs(int(match[1]))):
            shutil.rmtree(path, ignore_errors=True)  # another user's stays
    own = Path(tempfile.mkdtemp(prefix=f"alluvia-{pid}-", dir=place))
    atexit.register(_remove, own, pid)
    return own


def _remove(folder: Path, pid: int) -> None:
    if os.getpid() == pid:
        shutil.rmtree(folder, ignore_errors=True)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
