"""The folder for the temporary files of a process, deleted when it ends.

If a process was killed, the next one deletes its folder, because a function that timed out leaves its disk to the next.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import tempfile
from functools import cache
from pathlib import Path
from threading import Lock

_lock = Lock()
_NAME = re.compile(r"alluvia-(\d+)-\w+")


def scratch_root() -> Path:
    """Return this process's folder, which only its user may open: the place for temporary files and folders."""
    with _lock:  # a second thread that comes first, too, would take the folder for that of a process that is gone
        return _own(os.getpid(), tempfile.gettempdir())


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
